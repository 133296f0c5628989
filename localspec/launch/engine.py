"""open_engine: names and flags become an engine that answers, in this process, in a child, or in a server of the user.

Cheap to import: where a server has the models in memory, nothing of what loads them is needed.
"""

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from localspec.engine.engine import (
    COMMAND,
    Engine,
    FirstRequest,
    NoSignals,
    OnProgress,
    RemoteEngine,
    Signals,
)
from localspec.engine.link import ServerLink
from localspec.engine.protocol import Downloading, Load, Loading, Measuring, Notice
from localspec.engine.running import Running, servers
from localspec.engine.shared import connect
from localspec.errors import LocalspecError
from localspec.launch.names import with_full_names
from localspec.launch.recording import recorded
from localspec.options import LaunchOptions

if TYPE_CHECKING:
    from localspec.launch.plan import LoadPlan

REMOTE = (sys.executable, "-P", "-m", "localspec.remote.child")
"""The command of the process in which a server on the network is the engine."""
_USUAL_PARALLEL = 4
"""What a server answers at a time, if its user did not say."""


@asynccontextmanager
async def open_engine(
    load: Load,
    progress: OnProgress = lambda _notice: None,
    signals: Signals | None = None,
    *,
    own: bool = False,
    shared: ServerLink | None = None,
    plan: "LoadPlan | None" = None,
    first: FirstRequest | None = None,
    notify: Callable[[str], None] = lambda _text: None,
) -> AsyncIterator[Engine]:
    """Open an engine: a server's that was named or has the models in memory, else one here, or in a child where workers compute.

    Args:
        load: what to load, and how.
        progress: gets how far that is.
        signals: how the user ends it; None leaves that alone.
        own: ask no server.
        shared: the engine of a server, where one is known already.
        plan: of `load`, where it is made already.
        first: what is asked first.
        notify: prints what goes wrong with recording, and that a server is busy.

    Raises:
        Interrupted: loading was stopped.
        EngineGone: the child died of it.
        LocalspecError: it cannot be loaded.
    """
    signals = signals or NoSignals()
    if load.options.server is not None:
        engine: Engine = await _child(load, progress, signals, REMOTE)
        engine.notify = notify
    elif (shared := shared or (None if own else resident(load))) is not None:
        engine = RemoteEngine.of_server(shared, load.parallel or _USUAL_PARALLEL)
    elif load.options.workers:  # llama.cpp ends a process whose worker goes away
        engine = await _child(load, progress, signals)
    else:
        from localspec.launch.local_engine import local_engine  # noqa: PLC0415 - all that loads

        engine = local_engine(load, progress, signals, plan, first, notify)
    with signals.running(engine.stop):
        try:
            yield engine
        finally:
            engine.close()


async def _child(
    load: Load, progress: OnProgress, signals: Signals, command: Sequence[str] = COMMAND
) -> Engine:
    """Return an engine in a process of its own, once it has loaded."""

    def watch(notice: Notice) -> None:
        if isinstance(notice, Downloading | Loading | Measuring):
            progress(notice)

    engine = RemoteEngine(
        command, settings=load, watch=watch, parallel=load.parallel or _USUAL_PARALLEL
    )
    try:
        engine.load(load.options)
        with signals.running(engine.cancel):
            await engine.loaded()
    except BaseException:
        engine.close(0)
        raise
    return engine


def resident(load: Load) -> ServerLink | None:
    """Return the engine of a server that has this in memory and answers as this program would; None without one."""
    if load.options.server or load.workload or "--debug" in sys.argv:
        return None
    # What is wrong with names or directories is told by whoever loads.
    with suppress(LocalspecError, OSError, RuntimeError, ValueError):
        running = [each for each in servers() if each.engine and each.records == recorded()]
        return first_of(running, with_full_names(load.options)) if running else None
    return None


def server_finder(
    *, own: bool, workload: str | None = None
) -> Callable[[LaunchOptions], ServerLink | None]:
    """Return what looks for the engine of a server, see `resident`; with `own` it returns None."""
    return lambda options: None if own else resident(Load(options, workload=workload))


def first_of(running: Sequence[Running], wanted: LaunchOptions) -> ServerLink | None:
    """Return the first that has the models in memory; where none has, the first that would load them again."""
    chosen: ServerLink | None = None
    resting: list[ServerLink] = []
    for each in running:
        link = connect(each.engine, each.pid, wanted)
        if link is not None and not link.rests:
            chosen = link
            break
        resting += [] if link is None else [link]
    chosen = chosen or next(iter(resting), None)
    for other in resting:
        if other is not chosen:
            other.end(0)
    return chosen
