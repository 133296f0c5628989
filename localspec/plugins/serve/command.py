"""`localspec serve`: the models behind HTTP, until it is interrupted: an engine, a service that asks it, and servers in front of that."""

import asyncio
import math
import os
import re
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
import uvicorn
from click.core import ParameterSource

from localspec import api
from localspec.calls.policy import CallPolicy
from localspec.cli.options import (
    gate_option,
    gate_rules,
    parallel_count,
    settings_of,
    several,
    tool_rules,
)
from localspec.config.recorded import recorded
from localspec.engine.drafts import MOST_FRAME_BYTES
from localspec.engine.protocol import EngineDied, Load, Notice, Ready, ReplyEvents
from localspec.engine.remote_engine import RemoteEngine
from localspec.engine.running import Running, announced, directory, engine_socket
from localspec.models.requested import named_models, without_files
from localspec.plugins.serve.answering import Service
from localspec.plugins.serve.app import application
from localspec.plugins.serve.backend import Backend
from localspec.plugins.serve.catalogue import Catalogue
from localspec.plugins.serve.http import Guard
from localspec.plugins.serve.metrics import Metrics
from localspec.plugins.serve.model_pool import ModelPool, ServedModel
from localspec.plugins.serve.servers import (
    BACKLOG,
    LOOPBACK,
    keys_of,
    listening,
    start_in_background,
)
from localspec.plugins.serve.sharing import FRAME_BYTES, SharedEngineServer
from localspec.plugins.serve.wire import Protocol
from localspec.storage.paths import shown
from localspec.toolbox.folder import Folder

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
    return float(found[1]) * _UNITS_S[str(found[2])]


def _names(_context: click.Context, _flag: click.Parameter, text: str) -> tuple[str, ...]:
    """Return names that stand between commas."""
    return tuple(filter(None, (each.strip() for each in text.split(","))))


def _ends(context: click.Context, flag: click.Parameter, seconds: float | None) -> float | None:
    """Return seconds that end: NaN is neither below a range nor above it."""
    if seconds is not None and not math.isfinite(seconds):
        raise click.BadParameter(f"{seconds} is not a number of seconds", context, flag)
    return seconds


def _folder(context: click.Context, flag: click.Parameter, path: str | None) -> Folder | None:
    """Return a folder that is open."""
    try:
        return None if path is None else Folder(Path(path).expanduser())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no path"
        raise click.BadParameter(f"{shown(path or '')}: {reason}", context, flag) from None


@dataclass(frozen=True, slots=True)
class ServeFlags:
    """Flags of `serve` alone.

    Args:
        host: Address to listen on. Default: 127.0.0.1.
        port: Port to listen on; 0 picks a free one. Default: 8080, or none with --socket.
        socket: Unix socket to listen on; only you can connect to it.
        background: Serve in the background: return when ready. See ps and stop.
        api_key_file: File of API keys, one per line: [NAME] KEY [gate=usual|off|FILE]; # begins a comment. Every request must carry one. Required for other machines.
        models: Load these, too, at the start; without MODEL, the first is the default.
        cors: Allow web pages from this origin, https://HOST:PORT; can be repeated.
        parallel: Requests to answer at a time; auto: as many as are faster and fit in memory. Default: 4.
        max_queue: Most requests that run or wait; others get 429. Default: 64.
        keep_alive: Unload a model after this time without a request: 10m, 30s, 2h, 0, or never; 10m by default.
        pin: Serve only the models named here; requests for others get 404.
        max_wait: Longest time that a request may wait; then it gets 503. Default: no limit.
        forget: The old name of --no-prompt-cache.
        media_path: Folder of pictures and sounds that requests may name, as file:// URLs; by default they may name none.
        until_stdin_ends: Stop when stdin ends, as a pipe does with the program that started this.
        quiet: Print only errors on stderr.
    """

    host: str | None = api.flag("ADDRESS")
    port: int | None = api.flag(type=click.IntRange(0, 65535))
    socket: str | None = api.flag("PATH")
    background: bool = api.switch()
    api_key_file: str | None = api.flag("FILE")
    models: tuple[str, ...] = api.flag("NAME,…", default="", callback=_names)
    cors: tuple[str, ...] = several("ORIGIN")
    parallel: int | None = api.flag("N|auto", default="4", callback=parallel_count)
    max_queue: int = api.flag("N", default=64, type=click.IntRange(1, _MOST_WAITING))
    keep_alive: float | None = api.flag("TIME", default="10m", callback=_seconds)
    pin: bool = api.switch()
    max_wait: float | None = api.flag(
        "SECONDS", type=click.FloatRange(0, min_open=True), callback=_ends
    )
    forget: bool = api.flag(default=False, is_flag=True, hidden=True)
    media_path: Folder | None = api.flag("DIR", callback=_folder)
    until_stdin_ends: bool = api.switch()
    tool_rules: CallPolicy = tool_rules()
    quiet: bool = api.switch("-q", "--quiet")


@click.command(cls=api.SectionedCommand)
@click.argument("name", metavar="[MODEL]", required=False, shell_complete=api.complete_models)
@api.option_flags("models", "exact", "sampling", "context", "device")
@api.flags(serving=ServeFlags)
@gate_option
@api.with_settings
def serve(name: str | None, settings: api.Settings, serving: ServeFlags) -> int:
    """Serve MODEL, or your default model, to other programs over HTTP.

    \b
        localspec serve qwen2.5-coder-1.5b
        curl localhost:8080/v1/chat/completions -H 'Content-Type: application/json' \\
             -d '{"messages": [{"role": "user", "content": "Hello"}]}'

    Offers OpenAI's chat completions, completions and responses, and Anthropic's messages, under
    /v1, and Ollama's /api; also /infill for editors, /tokenize, /health and /metrics. Sampling options apply if a request does not set its own. Only this
    machine can connect, unless you give --host and --api-key-file.
    """  # noqa: D301 - click keeps lines behind a \b
    if serving.background:
        if serving.until_stdin_ends:
            raise api.UsageError(
                "--until-stdin-ends and --background are given, and in the background there is no stdin: leave one out"
            )
        arguments = [each for each in sys.argv[1:] if each != "--background"]
        return start_in_background(arguments, quiet=serving.quiet)
    settings = settings.with_model(name and api.require_model(name))
    if serving.forget:
        settings = settings_of({**settings.given, "prompt_cache": False})
    keys = keys_of(serving.api_key_file) if serving.api_key_file else {}
    if serving.host not in {None, *LOOPBACK} and not keys:
        raise api.UsageError(
            f"--host {serving.host} lets other machines connect: give --api-key-file as well"
        )
    if "*" in serving.cors:
        raise api.UsageError(
            "--cors * would let every web page ask: name each origin, https://HOST:PORT"
        )
    gate = settings.gate
    own = {name: gate_rules(name, "gate=") for name in {*keys.values()} if name}
    gates = {key: own[name] if name else gate for key, name in keys.items()}
    # Whoever stops it from outside ends it as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    where = listening(serving.host, serving.port, serving.socket)
    with where as listeners, ExitStack() as seen:  # until the engine is gone, too
        try:
            return asyncio.run(served_here(listeners, seen, gates, gate, settings, serving))
        except KeyboardInterrupt:
            return 0


_MOST_CONNECTIONS = min(512, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
"""Beyond it requests get 503; answers need descriptors of their own."""
_IDLE_S = 20
"""After which an idle connection is ended: clients let one go after 5 or 15 s, and may ask until then."""


async def served_here(
    listeners: Sequence[socket.socket],
    seen: ExitStack,
    keys: Mapping[str, str],
    gate: str,
    settings: api.Settings,
    serving: ServeFlags,
) -> int:
    """Load, and serve from the start until it is interrupted; return the exit code.

    Args:
        listeners: where HTTP comes in.
        seen: gets what others see of the server, which ends when nothing runs any more.
        keys: for its API, each with what is masked for it, see `Request`; without any, whoever can connect may ask.
        gate: what is masked where there are no keys.
        settings: what to load, and how to answer.
        serving: the flags of the verb.

    Raises:
        LocalspecError: the models cannot be loaded; as the class of errors that says why.
    """
    if serving.until_stdin_ends:
        # A thread: a file or /dev/null cannot be polled.
        interrupt = partial(_interrupt_at_end, asyncio.get_running_loop())
        threading.Thread(target=interrupt, daemon=True).start()
    models = _models(settings, serving)
    metrics = Metrics(by_model=len(models) > 1)
    line = api.ProgressLine(enabled=not serving.quiet)
    pool = _model_pool(models, metrics, line, serving)
    catalogue = Catalogue(models, settings.reply_of, serving.pin)
    closing = Closing(pool)
    service = Service(
        pool, catalogue, int(time.time()), models[0], serving.tool_rules, folder=serving.media_path
    )
    server = _server(service, metrics, _guard(keys, gate, serving), closing)
    addresses = tuple(map(_address, listeners))
    try:
        shared = await _shared(service, seen)
        about = (service.name, addresses, service.since, shared, recorded())
        running = Running(os.getpid(), *about, 0, bool(keys), _room(models, pool), loading=True)
        seen.enter_context(announced(running))

        async def load() -> None:
            with line:
                await pool.start(models)
            if not serving.quiet:
                _tell(service, addresses, len(keys))
            room = _room(models, pool)
            loaded = msgspec.structs.replace(
                running, n_ctx=room[service.name], models=room, loading=False
            )
            seen.enter_context(announced(loaded))

        # Beside it, so that whoever looks after the server hears that it loads, and requests wait.
        loading = asyncio.create_task(load())
        loading.add_done_callback(partial(_end_if_failed, server, closing))
        await server.serve(sockets=list(listeners))
        if closing.failure is not None:
            raise closing.failure
    finally:
        await to_the_end(closing.begin())
    return 0


def _end_if_failed(server: uvicorn.Server, closing: "Closing", loading: asyncio.Task[None]) -> None:
    """End a server whose models cannot be loaded; what comes of an end that has begun is no failure."""
    failure = None if loading.cancelled() else loading.exception()
    if failure is not None and not server.should_exit:
        closing.failure, server.should_exit = failure, True
        closing.begin()


def _room(models: Sequence[ServedModel], pool: ModelPool) -> dict[str, int]:
    """Return the tokens of context of models, by each of their names; 0 where that is not known."""
    return {
        name: 0 if ready is None else ready.n_ctx
        for each in models
        for ready in (pool.ready(each),)
        for name in (each.name, *each.names)
    }


_GRACE_S, _MOST_S = 1.5, 3
"""Seconds that answers go on when a server stops, and those after which what is left of them is cancelled."""
_SILENT_S = 1.0
"""Seconds of saving after which it is mentioned."""


class Closing:
    """The end of all engines, which begins once: what still answers is told that the server stops.

    Args:
        pool: of the engines.

    Attributes:
        failure: why the models could not be loaded; None where they could.
    """

    def __init__(self, pool: ModelPool) -> None:
        self.failure: BaseException | None = None
        self._pool = pool
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> asyncio.Task[None]:
        """Return what ends them."""
        if self._task is None:
            self._task = asyncio.create_task(self._pool.close())
        return self._task

    async def begin_late(self) -> None:
        """Let short answers end by themselves, and tell of those that do not."""
        await asyncio.sleep(_GRACE_S)
        if cut := self._pool.under_way:
            api.notice(f"stopped with {cut} answer{'s' * (cut > 1)} under way")
        self.begin()


class _Server(uvicorn.Server):
    """Uvicorn's, of which requests get their interface's error when it stops, and not the end of their connection."""

    def __init__(self, config: uvicorn.Config, closing: Closing) -> None:
        super().__init__(config)
        self._closing = closing

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See `uvicorn.Server`."""
        late = asyncio.create_task(self._closing.begin_late())
        try:
            await super().shutdown(sockets)
        finally:
            late.cancel()


async def to_the_end(work: Coroutine[Any, Any, None] | asyncio.Task[None]) -> None:
    """Await work that a cancel does not stop: what interrupted a server is raised at its next wait, and engines still have to save."""
    task = asyncio.ensure_future(work)
    with suppress(asyncio.CancelledError):
        await asyncio.wait({task}, timeout=_SILENT_S)
    await asyncio.wait({task}, timeout=_SILENT_S)
    if not task.done():
        click.echo("localspec: saving what was read; Ctrl-C again ends it at once", err=True)
    await task


def _interrupt_at_end(loop: asyncio.AbstractEventLoop) -> None:
    """Interrupt a loop of this program when stdin has ended."""
    with suppress(OSError):
        while os.read(sys.stdin.fileno(), 4096):
            pass
    with suppress(RuntimeError):  # the loop has ended, too
        loop.call_soon_threadsafe(signal.raise_signal, signal.SIGINT)


def _models(settings: api.Settings, serving: ServeFlags) -> tuple[ServedModel, ...]:
    """Return the models to begin with, the usual one first; draft models that are named are for that one."""
    named = [api.require_model(each) for each in serving.models]
    several = [settings] if settings.named_model or not named else []
    several += [settings_of({**settings.given, "model": each}) for each in named]
    models: dict[str, ServedModel] = {}
    for each in several:
        launch = each.launch
        if models:
            launch = without_files(launch)
        target, _ = named_models(launch, api.load_registry())
        name, *names = dict.fromkeys(filter(None, (launch.pair, launch.target, target)))
        models.setdefault(name, ServedModel(name, launch, each.reply, tuple(names)))
    return (*models.values(),)


def _model_pool(
    models: tuple[ServedModel, ...], metrics: Metrics, line: api.ProgressLine, serving: ServeFlags
) -> ModelPool:
    """Return what has engines; all their notices are counted, and shown as far as they concern loading."""
    noted: dict[str, tuple[str, ...]] = {}  # by model: memory that is short changes them
    asked = click.get_current_context().get_parameter_source("parallel")
    usual = Load(parallel=serving.parallel, at_most=asked is ParameterSource.DEFAULT)

    def backend_of(model: ServedModel) -> Backend:
        name = model.name

        def watch(seen: Notice) -> None:
            metrics.see(seen, name, engine)
            # A death before anything was loaded ends the start, or a request, whose error says why.
            if engine.last_ready is not None or not isinstance(seen, EngineDied):
                _show(seen, line)
            if isinstance(seen, Ready) and noted.get(name) != seen.notes:
                noted[name] = seen.notes
                line.draw("")
                for note in () if serving.quiet else seen.notes:
                    api.notice(note if models == (model,) else f"{name}: {note}")

        settings = Load(embeds=True) if model.embeds else usual
        engine = RemoteEngine(settings=settings, watch=watch, revives=True)
        ask, leave = partial(metrics.ask, model=name, engine=engine), partial(metrics.leave, engine)
        return Backend(engine, model.launch, ask, serving.max_wait, leave)

    return ModelPool(backend_of, serving.keep_alive, serving.max_queue, serving.max_wait)


def _guard(keys: Mapping[str, str], gate: str, serving: ServeFlags) -> Guard:
    """Return who is let in; behind keys any name of this machine will do."""
    hosts = None if keys else {*LOOPBACK, "[::1]", serving.host or "localhost"}
    return Guard((*keys,), hosts, serving.cors, gate, keys)


def _server(service: Service, metrics: Metrics, guard: Guard, closing: Closing) -> uvicorn.Server:
    return _Server(
        uvicorn.Config(
            application(service, metrics, guard),
            http=Protocol,
            backlog=BACKLOG,
            timeout_keep_alive=_IDLE_S,
            limit_concurrency=_MOST_CONNECTIONS,
            ws="websockets-sansio",
            ws_max_size=MOST_FRAME_BYTES,
            ws_per_message_deflate=False,
            log_level="critical",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=_MOST_S,
            server_header=False,
        ),
        closing,
    )


async def _shared(service: Service, seen: ExitStack) -> str:
    """Let `run` and the like ask, too; return at which socket, empty where there can be none."""
    path = str(engine_socket(os.getpid()))
    try:
        directory()  # the first server of a machine makes it
        listener = seen.enter_context(listening(None, None, path))[0]
    except api.UsageError:
        return ""
    sharing = SharedEngineServer(service.pool)
    await asyncio.start_unix_server(sharing.serve, sock=listener, limit=FRAME_BYTES)
    return path


def _address(listener: socket.socket) -> str:
    if listener.family == socket.AF_UNIX:
        return str(Path(listener.getsockname()).absolute())
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def _tell(service: Service, addresses: Sequence[str], keys: int) -> None:
    """Say where it is, and whom it lets in."""
    if keys:
        api.notice(f"{keys} API key{'s' * (keys > 1)}: every request must carry one")
    where = " and ".join(addresses)
    names = " and ".join(each.name for each in service.catalogue.models)
    api.notice(f"serving {names} at {where}; Ctrl-C stops it")


def _show(seen: Notice, line: api.ProgressLine) -> None:
    """Show how far loading is, and that the engine died."""
    if isinstance(seen, EngineDied):
        api.notice(seen.reason)
    elif not isinstance(seen, ReplyEvents):  # they come with every token
        line.show(seen)
