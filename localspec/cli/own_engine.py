"""An engine in a process of its own, for `run` and `batch` with workers: one that goes away ends that process, and not this one.

Imports nothing that loads models.
"""

from collections.abc import Callable

from msgspec.structs import astuple

from localspec.cli.output import ProgressLine
from localspec.engine.client import COMMAND, EngineClient
from localspec.engine.protocol import (
    Downloading,
    EngineDied,
    Failed,
    LoadCancelled,
    Loading,
    Measuring,
    Notice,
    Ready,
)
from localspec.engine.remote import trouble_of
from localspec.models.transfer import Progress
from localspec.options import LaunchOptions

_LOOK_S = 0.1


def loaded_engine(
    launch: LaunchOptions,
    line: ProgressLine,
    stopped: Callable[[], bool],
    *arguments: str,
    on_download: Callable[[], None] = lambda: None,
) -> tuple[EngineClient, Ready] | None:
    """Start an engine and have it load; return None where that was stopped.

    Args:
        launch: what to load.
        line: shows how far that is.
        stopped: says whether to stop; asked ten times a second.
        arguments: of the engine's process, see `localspec.launch.child`.
        on_download: called before a download is shown.

    Raises:
        EngineGone: the engine died of it.
        LocalspecError: it cannot be loaded; as the class of errors that says why.
    """
    client = EngineClient((*COMMAND, *arguments))
    client.start()
    client.load(launch)
    try:
        outcome = _outcome(client, line, stopped, on_download)
    except BaseException:
        client.close(0)
        raise
    if isinstance(outcome, Ready):
        return client, outcome
    client.close()
    if isinstance(outcome, LoadCancelled):
        return None
    raise trouble_of(outcome)


def _outcome(
    client: EngineClient,
    line: ProgressLine,
    stopped: Callable[[], bool],
    on_download: Callable[[], None],
) -> Ready | LoadCancelled | Failed | EngineDied:
    """Show how far loading is, until it ends one way or another."""
    told = False
    while True:
        notice = client.wait(_LOOK_S)
        if isinstance(notice, Ready | LoadCancelled | Failed | EngineDied):
            return notice
        if isinstance(notice, Downloading):
            on_download()
        if notice is not None:
            show_loading(notice, line)
        if stopped() and not told:
            told = True
            client.cancel()


def show_loading(notice: Notice, line: ProgressLine) -> None:
    """Show how far loading is, if a notice says so."""
    match notice:
        case Downloading():
            line.download(Progress(*astuple(notice)))
        case Loading(name, share):
            line.load(name, share)
        case Measuring(name, share):
            line.measure(name, share)
