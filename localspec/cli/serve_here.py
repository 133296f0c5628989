"""What `localspec serve` does once its options are read: an engine, a service that asks it, and servers in front of that.

All that only this verb needs is imported here.
"""

import asyncio
import os
import resource
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvicorn

from localspec.cli.listening import BACKLOG, LOOPBACK, listening
from localspec.cli.option_flags import launch_options, reply_options
from localspec.cli.own_engine import show_loading
from localspec.cli.progress import ProgressLine
from localspec.cli.resident import recorded_here
from localspec.cli.settings import with_own
from localspec.display import notice
from localspec.engine.client import COMMAND, EngineClient
from localspec.engine.protocol import EngineDied, Notice, Ready
from localspec.engine.remote import error_named
from localspec.errors import UsageError
from localspec.gates.gate import Gate
from localspec.options import LaunchOptions, ReplyOptions
from localspec.serve.answering import Service
from localspec.serve.app import application
from localspec.serve.backend import Backend, Refused
from localspec.serve.catalogue import Catalogue
from localspec.serve.http import Guard
from localspec.serve.metrics import Metrics
from localspec.serve.residence import Residence, ServedModel
from localspec.serve.running import Running, announced, directory, engine_socket
from localspec.serve.sharing import FRAME_BYTES, Sharing

_MOST_CONNECTIONS = min(512, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
"""Beyond it requests get 503; answers need descriptors of their own."""


async def served_here(
    listeners: Sequence[socket.socket],
    seen: ExitStack,
    keys: Mapping[str, Gate | None],
    gate: Gate | None,
    flags: dict[str, Any],
) -> int:
    """Load, and serve until it is interrupted; return the exit code.

    Args:
        listeners: where HTTP comes in.
        seen: gets what others see of the server, which ends when nothing runs any more.
        keys: for its API, each with what whoever bears it must not see; without any, whoever can connect may ask.
        gate: what must not be seen where there are no keys.
        flags: of the verb.

    Raises:
        LocalspecError: the models cannot be loaded; as the class of errors that says why.
    """
    launch, metrics = launch_options(flags), Metrics()
    line = ProgressLine(enabled=not flags["quiet"])
    engine = EngineClient(_command(flags))
    backend = _backend(engine, launch, metrics, line, flags)
    try:
        with line:
            ready = await _started(backend)
        service = _service(backend, ready, launch, flags)
        addresses = tuple(map(_address, listeners))
        if not flags["quiet"]:
            _tell(service, ready, addresses, len(keys))
        server = _server(service, metrics, _guard(keys, gate, flags))
        shared = await _shared(service, seen)
        about = (service.name, addresses, service.since, shared, recorded_here())
        seen.enter_context(announced(Running(os.getpid(), *about)))
        await server.serve(sockets=list(listeners))
    finally:
        await backend.close()
    return 0


def _command(flags: dict[str, Any]) -> tuple[str, ...]:
    """Return what starts the engine."""
    parallel = "auto" if flags["parallel"] is None else str(flags["parallel"])
    return (*COMMAND, parallel, *(() if flags["forget"] else ("keep",)))


def _backend(
    engine: EngineClient,
    launch: LaunchOptions,
    metrics: Metrics,
    line: ProgressLine,
    flags: dict[str, Any],
) -> Backend:
    """Return what asks the engine; everything that it says is counted, and shown as far as it concerns loading."""

    def see(seen: Notice) -> None:
        metrics.see(seen)
        _show(seen, line)

    return Backend(engine, launch, flags["max_queue"], see, metrics.ask, flags["max_wait"])


async def _started(backend: Backend) -> Ready:
    """Have the models loaded; what is wrong with them ends the program as it would end another verb."""
    try:
        return await backend.start()
    except Refused as error:
        raise error_named(error.kind, str(error)) from None


def _service(
    backend: Backend, ready: Ready, launch: LaunchOptions, flags: dict[str, Any]
) -> Service:
    """Return what answers: with what is loaded, and with whatever else a request may name."""

    def options_of(name: str | None) -> ReplyOptions:
        return reply_options(with_own(flags, name))

    called = (launch.pair, launch.target, ready.target)
    names = tuple(dict.fromkeys(each for each in called if each is not None))
    first = ServedModel(names[0], launch, options_of(None))
    residence = Residence(
        backend, first, flags["keep_alive"], flags["max_queue"], flags["max_wait"]
    )
    catalogue = Catalogue(first, names, options_of, flags["pin"])
    return Service(backend, residence, catalogue, int(time.time()), first, flags["tool_rules"])


def _guard(keys: Mapping[str, Gate | None], gate: Gate | None, flags: dict[str, Any]) -> Guard:
    """Return who is let in; behind keys any name of this machine will do."""
    hosts = None if keys else {*LOOPBACK, "[::1]", flags["host"] or "localhost"}
    return Guard((*keys,), hosts, flags["cors"], gate, keys)


def _server(service: Service, metrics: Metrics, guard: Guard) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            application(service, metrics, guard),
            http="h11",
            backlog=BACKLOG,
            limit_concurrency=_MOST_CONNECTIONS,
            ws="none",
            log_level="critical",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
            server_header=False,
        )
    )


async def _shared(service: Service, seen: ExitStack) -> str:
    """Let `run` and the like ask, too; return at which socket, empty where there can be none."""
    path = str(engine_socket(os.getpid()))
    try:
        directory()  # the first server of a machine makes it
        listener = seen.enter_context(listening(None, None, path))[0]
    except UsageError:
        return ""
    sharing = Sharing(service.backend, service.residence)
    await asyncio.start_unix_server(sharing.serve, sock=listener, limit=FRAME_BYTES)
    return path


def _address(listener: socket.socket) -> str:
    if listener.family == socket.AF_UNIX:
        return str(Path(listener.getsockname()).absolute())
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def _tell(service: Service, ready: Ready, addresses: Sequence[str], keys: int) -> None:
    """Say how it is set up, and where it is."""
    for note in ready.notes:
        notice(note)
    if keys:
        notice(f"{keys} API key{'s' * (keys > 1)}: every request must carry one")
    where = " and ".join(addresses)
    notice(f"serving {service.name} at {where}; Ctrl-C stops it")


def _show(seen: Notice, line: ProgressLine) -> None:
    """Show how far loading is, and that the engine died."""
    if isinstance(seen, EngineDied):
        notice(seen.reason)
    else:
        show_loading(seen, line)
