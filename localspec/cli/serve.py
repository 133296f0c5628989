"""`localspec serve`: the models behind HTTP, until it is interrupted."""

import asyncio
import os
import re
import signal
import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.completions import complete_models
from localspec.cli.listening import BACKLOG, listening
from localspec.cli.option_flags import launch_options, option_flags, parallel_count, reply_options
from localspec.cli.progress import ProgressLine
from localspec.cli.resident import recorded_here
from localspec.cli.settings import configured, with_own
from localspec.cli.words import require_model
from localspec.errors import UsageError
from localspec.options import ReplyOptions

if TYPE_CHECKING:
    from localspec.serve.answering import Service

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MOST_WAITING = 10_000
_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_NEVER = {"never", "-1"}


def _seconds(context: click.Context, flag: click.Parameter, text: str) -> float | None:
    """Return the seconds that `10m` means; None for `never`."""
    if text in _NEVER:
        return None
    found = re.fullmatch(r"(\d{1,9})([smhd]?)", text)
    if found is None:
        problem = f"{text[:40]!r} is neither a time, such as 10m, 30s or 2h, nor 'never'"
        raise click.BadParameter(problem, context, flag)
    return float(found[1]) * _UNITS_S[found[2]]


@click.command()
@click.argument("name", metavar="[MODEL]", required=False, shell_complete=complete_models)
@option_flags("models", "exact", "sampling")
@option_flags("context")
@click.option("--host", metavar="ADDRESS", help="Address to listen on. Default: 127.0.0.1.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 picks a free one. Default: 8080, or none with --socket.",
)
@click.option(
    "--socket", metavar="PATH", help="Unix socket to listen on; only you can connect to it."
)
@click.option(
    "--background", is_flag=True, help="Return when ready, and keep serving; see ps and stop."
)
@click.option(
    "--api-key-file",
    metavar="FILE",
    help="File of keys, one per line; every request must carry one. Required for other machines.",
)
@click.option(
    "--cors",
    multiple=True,
    metavar="ORIGIN",
    help="Allow web pages from this origin, https://HOST:PORT; can be repeated.",
)
@click.option(
    "--parallel",
    default="4",
    callback=parallel_count,
    metavar="N|auto",
    help="Requests to answer at a time; auto: as many as pay off and fit memory. Default: 4.",
)
@click.option(
    "--max-queue",
    default=64,
    type=click.IntRange(1, _MOST_WAITING),
    metavar="N",
    help="Requests that may run or wait; more get 429. Default: 64.",
)
@click.option(
    "--keep-alive",
    default="10m",
    callback=_seconds,
    metavar="TIME",
    help="Unload the model after so long without a request: 10m, 30s, 2h, 0, or never. Default: 10m.",
)
@click.option("--pin", is_flag=True, help="Serve only MODEL; requests for others get 404.")
@click.option(
    "--max-wait",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Longest wait of a request; one that waited longer gets 503. Default: no limit.",
)
@click.option(
    "--forget",
    is_flag=True,
    help="Write no evaluated prompts to disk; else those that are left are read again, also after a restart.",
)
@option_flags("device")
@click.option("--quiet", is_flag=True, help="Print only errors on stderr.")
def serve(name: str | None, **flags: Any) -> int:
    """Serve MODEL, or your default model, to other programs over HTTP.

    \b
        localspec serve qwen2.5-coder-1.5b
        curl localhost:8080/v1/chat/completions -H 'Content-Type: application/json' \\
             -d '{"messages": [{"role": "user", "content": "Hello"}]}'

    Offers OpenAI's chat completions, completions and responses, and Anthropic's messages, under
    /v1; also /infill for editors, /tokenize, /health and /metrics. Sampling options apply if a request does not set its own. Only this
    machine can connect, unless you give --host and --api-key-file.
    """  # noqa: D301 - click keeps lines behind a \b
    if flags.pop("background"):
        from localspec.cli.background import start_in_background  # noqa: PLC0415

        return start_in_background([each for each in sys.argv[1:] if each != "--background"])
    flags["model"] = flags["model"] or (name and require_model(name))
    keys = _keys(flags["api_key_file"])
    if flags["host"] not in {None, *_LOOPBACK} and not keys:
        raise UsageError(
            f"--host {flags['host']} lets other machines connect: give --api-key-file as well"
        )
    flags = configured(flags)
    # Whoever stops it from outside ends it as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    where = listening(flags["host"], flags["port"], flags["socket"])
    with where as listeners, ExitStack() as seen:  # until the engine is gone, too
        try:
            return asyncio.run(_served(listeners, seen, keys, flags))
        except KeyboardInterrupt:
            return 0


async def _served(
    listeners: list[socket.socket],
    seen: ExitStack,
    keys: tuple[str, ...],
    flags: dict[str, Any],
) -> int:
    # Imported here: no other verb needs them.
    import uvicorn  # noqa: PLC0415

    from localspec.engine.client import COMMAND, EngineClient  # noqa: PLC0415
    from localspec.engine.protocol import Notice  # noqa: PLC0415
    from localspec.engine.remote import error_named  # noqa: PLC0415
    from localspec.serve.answering import Service  # noqa: PLC0415
    from localspec.serve.app import application  # noqa: PLC0415
    from localspec.serve.backend import Backend, Refused  # noqa: PLC0415
    from localspec.serve.catalogue import Catalogue  # noqa: PLC0415
    from localspec.serve.conditions import Watch  # noqa: PLC0415
    from localspec.serve.connection import Bounded  # noqa: PLC0415
    from localspec.serve.http import Guard  # noqa: PLC0415
    from localspec.serve.metrics import Metrics  # noqa: PLC0415
    from localspec.serve.residence import Residence, ServedModel  # noqa: PLC0415
    from localspec.serve.running import Running, announced  # noqa: PLC0415

    launch, metrics = launch_options(flags), Metrics()

    def options_of(name: str | None) -> ReplyOptions:
        return reply_options(with_own(flags, name))

    line = ProgressLine(enabled=not flags["quiet"])

    def see(notice: Notice) -> None:
        metrics.see(notice)
        _show(notice, line)

    parallel = "auto" if flags["parallel"] is None else str(flags["parallel"])
    kept = () if flags["forget"] else ("keep",)
    engine = EngineClient((*COMMAND, parallel, *kept))
    watch = Watch(lambda: [each for each in (os.getpid(), engine.pid) if each is not None])
    backend = Backend(
        engine,
        launch,
        flags["max_queue"],
        see,
        metrics.ask,
        flags["max_wait"],
    )
    try:
        with line:
            try:
                ready = await backend.start()
            except Refused as error:  # with the exit code that the same error has elsewhere
                raise error_named(error.kind, str(error)) from None
        names = dict.fromkeys(
            each for each in (launch.pair, launch.target, ready.target) if each is not None
        )
        first = ServedModel(next(iter(names)), launch, options_of(None))
        catalogue = Catalogue(first, tuple(names), options_of, flags["pin"])
        residence = Residence(
            backend, first, flags["keep_alive"], flags["max_queue"], flags["max_wait"]
        )
        service = Service(backend, residence, catalogue, int(time.time()), first)
        hosts = None if keys else {*_LOOPBACK, "[::1]", flags["host"] or "localhost"}
        addresses = tuple(map(_address, listeners))
        guard = Guard(keys, hosts, flags["cors"])
        if not flags["quiet"]:
            for note in ready.notes:
                click.echo(f"localspec: {note}", err=True)
            where = " and ".join(addresses)
            click.echo(f"localspec: serving {service.name} at {where}; Ctrl-C stops it", err=True)
        config = uvicorn.Config(
            application(service, metrics, guard, watch.look),
            http=Bounded,
            backlog=BACKLOG,
            ws="none",
            log_level="critical",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
            server_header=False,
        )
        running = Running(
            os.getpid(),
            service.name,
            addresses,
            service.since,
            await _shared(service, seen),
            recorded_here(),
        )
        seen.enter_context(announced(running))
        await uvicorn.Server(config).serve(sockets=listeners)
    finally:
        await backend.close()
    return 0


async def _shared(service: "Service", seen: ExitStack) -> str:
    """Let `run` and the like ask, too; return at which socket, empty where there can be none."""
    from localspec.serve.running import engine_socket  # noqa: PLC0415
    from localspec.serve.sharing import FRAME_BYTES, Sharing  # noqa: PLC0415

    path = str(engine_socket(os.getpid()))
    try:
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


def _show(notice: object, line: ProgressLine) -> None:
    """Show how far loading is, and that the engine died."""
    from localspec.engine.protocol import Downloading, EngineDied, Loading, Measuring  # noqa: PLC0415
    from localspec.models.transfer import Progress  # noqa: PLC0415

    match notice:
        case Downloading(name, done, total, source):
            line.download(Progress(name, done, total, source))
        case Loading(name, share):
            line.load(name, share)
        case Measuring(name, share):
            line.measure(name, share)
        case EngineDied(reason):
            click.echo(f"localspec: {reason}", err=True)


def _keys(file: str | None) -> tuple[str, ...]:
    if file is None:
        return ()
    try:
        lines = Path(file).read_text().split()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise UsageError(f"--api-key-file {file} cannot be read: {reason}") from None
    if not lines:
        raise UsageError(f"--api-key-file {file} has no keys: write one per line")
    return tuple(lines)
