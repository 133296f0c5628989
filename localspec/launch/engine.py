"""open_engine: names and flags become an engine that answers, in this process, in a child, or in a server of the user.

Cheap to import: where a server has the models in memory, nothing of what loads them is needed.
"""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from localspec.config.recorded import recorded
from localspec.engine.engine import Engine, Needs, NoSignals, OnProgress, Signals
from localspec.engine.protocol import Load, Notice, Progress
from localspec.engine.running import servers
from localspec.entry_points import engine_module
from localspec.errors import LocalspecError
from localspec.models.requested import with_full_names
from localspec.options import LaunchOptions

if TYPE_CHECKING:
    from localspec.engine.link import ServerLink
    from localspec.engine.remote_engine import RemoteEngine

_USUAL_PARALLEL = 4
"""What a server answers at a time, if its user did not say."""


@asynccontextmanager
async def open_engine(
    wish: Load,
    needs: Needs | None = None,
    progress: OnProgress = lambda _notice: None,
    signals: Signals | None = None,
    notify: Callable[[str], None] = lambda _text: None,
) -> AsyncIterator[Engine]:
    """Open an engine: a server's that was named or has the models in memory, else one here, or in a child where workers compute.

    What it loads is decided, and its files are here; `Engine.loaded` loads it.

    Args:
        wish: what to load, and how.
        needs: what it is to be ready for.
        progress: gets how far that is.
        signals: how the user ends it; None leaves that alone.
        notify: prints what goes wrong with recording.

    Raises:
        LocalspecError: it cannot be loaded.
    """
    needs, signals, launch = needs or Needs(), signals or NoSignals(), wish.options
    server = resident(wish)
    if server is None and not launch.workers and launch.can.local_files:
        from localspec.launch.local_engine import LocalEngine  # noqa: PLC0415 - all that loads

        engine: Engine = LocalEngine(wish, needs.prompt, progress, signals, notify)
    else:
        engine = _elsewhere(wish, server, progress)
        if needs.plan and launch.can.local_files:
            from localspec.launch.local_engine import planned  # noqa: PLC0415 - few ask for it

            engine.plan = planned(_without_devices(wish), None, progress, signals)
    with signals.running(engine.stop):
        try:
            yield engine
        finally:
            engine.close()


def _elsewhere(wish: Load, server: "ServerLink | None", progress: OnProgress) -> "RemoteEngine":
    """Return the engine of a server that has this in memory, or else in a process of its own, where workers or a server compute."""
    from localspec.engine.remote_engine import RemoteEngine  # noqa: PLC0415 - few need it

    parallel = wish.parallel or _USUAL_PARALLEL
    if server is not None:
        return RemoteEngine.of_server(server, parallel)

    def watch(notice: Notice) -> None:
        if isinstance(notice, Progress):
            progress(notice)

    # llama.cpp ends a process whose worker goes away.
    command = command_of("workers" if wish.options.can.local_files else "server")
    return RemoteEngine(command, settings=wish, watch=watch, parallel=parallel)


def _without_devices(wish: Load) -> Load:
    """Return what can be planned here of what is loaded elsewhere, where its devices are known, and its memory is."""
    anywhere = replace(wish.options.load, devices=(), split="layers", tensor_split=None)
    options = replace(wish.options, load=anywhere, draft_devices=(), workers=(), fit=False)
    return msgspec.structs.replace(wish, options=options)


def command_of(option: str) -> tuple[str, ...]:
    """Return the command of the process of the engine that an option asks for.

    Raises:
        UsageError: no package has it.
    """
    return sys.executable, "-P", "-m", engine_module(option)


def resident(load: Load) -> "ServerLink | None":
    """Return the engine of a server that has this in memory and answers as this program would; None without one, or for what is to be loaded here."""
    if load.own or load.options.server or load.workload or "--debug" in sys.argv:
        return None
    # What is wrong with names or directories is told by whoever loads.
    with suppress(LocalspecError, OSError, RuntimeError, ValueError):
        running = [each for each in servers() if each.engine and each.records == recorded()]
        if running:
            from localspec.engine.shared import first_of  # noqa: PLC0415 - few servers run

            return first_of(running, with_full_names(load.options))
    return None


def server_finder(load: Load) -> "Callable[[LaunchOptions], ServerLink | None]":
    """Return what looks for the engine of a server that has something in memory, see `resident`."""
    return lambda options: resident(msgspec.structs.replace(load, options=options))


def child_engine(load: Load) -> "RemoteEngine":
    """Return an engine in another process, which starts when something is loaded."""
    from localspec.engine.remote_engine import RemoteEngine  # noqa: PLC0415 - as above

    if load.options.can.local_files:
        return RemoteEngine(find=server_finder(load), settings=load)
    return RemoteEngine(command_of("server"), settings=load)
