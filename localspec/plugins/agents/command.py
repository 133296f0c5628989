"""`localspec launch`: a coding agent on a local model: a server for it, if none runs, and the agent with its settings for this run."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import click
import msgspec

from localspec import api
from localspec.chat.call_finder import offers_tools
from localspec.cli.interrupt import code_of, unwind_on_terminate
from localspec.cli.options import flag_words
from localspec.cli.prompt import with_model
from localspec.display import printable
from localspec.engine.running import Running, servers
from localspec.errors import did_you_mean
from localspec.models.gguf import read_model
from localspec.models.requested import name_of, named_models
from localspec.plan.fit import PlaceUse
from localspec.plan.load_plan import LoadPlan
from localspec.plugins.agents.agents import AGENTS, Agent
from localspec.plugins.serve.servers import await_server, last_line, start_server

_WORDS = "localspec.words"
_USUAL_SERVER = "http://127.0.0.1:8080"
_OF_THE_CONTEXT = 4
"""An answer takes a quarter of it at most."""
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


class _WithWords(api.SectionedCommand):
    """A command whose words behind `--` are another program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put them aside."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_WORDS] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in AGENTS if name.startswith(incomplete)]


@dataclass(frozen=True, slots=True)
class LaunchFlags:
    """Flags of `launch` alone.

    Args:
        own: Start a server even if one is running.
        print_: Print what would be done, as lines for a shell, and do nothing.
    """

    own: bool = api.switch()
    print_: bool = api.switch()


@click.command(cls=_WithWords, options_metavar="[OPTIONS]", epilog="-- ARGS: for the agent.")
@click.argument("agent_name", metavar="AGENT", shell_complete=_complete)
@click.argument("model_name", metavar="[MODEL]", required=False, shell_complete=api.complete_models)
@api.option_flags("models", "exact", "sampling", "context", "device")
@api.flags(launching=LaunchFlags)
@api.with_settings
def launch(
    agent_name: str, model_name: str | None, settings: api.Settings, launching: LaunchFlags
) -> int:
    """Start AGENT on MODEL, your default model, or that of the running server.

    \b
        localspec launch claude qwen3-4b
        localspec launch codex qwen3-4b -- exec "What does this repository do?"

    AGENT is claude, codex, opencode, qwen, aider or gptme. Its provider is set for this run only: your
    own configuration of it stays as it is. A server of yours that is running answers it; else one is
    started, with the context that the agent needs, and ends with it. What follows -- goes to the agent.
    """  # noqa: D301 - click keeps lines behind a \b
    words: Sequence[str] = click.get_current_context().meta[_WORDS]
    agent = AGENTS.get(agent_name)
    if agent is None:
        hint = did_you_mean(agent_name, list(AGENTS)) or f"choose one of {', '.join(AGENTS)}"
        raise api.UsageError(f"there is no agent {agent_name[:40]!r}: {hint}")
    settings = settings.with_model(model_name and api.require_model(model_name))
    running = None if launching.own else _running(settings)
    if launching.print_:
        _print(agent, settings, running, words)
        return 0
    program = shutil.which(agent.program)
    if program is None:
        raise api.LocalspecError(f"{agent.program} is not installed: run `{agent.install}`")
    with unwind_on_terminate(), _server(agent, settings, running) as server:
        return server if isinstance(server, int) else _run(program, agent, server, words)


def _wanted(agent: Agent, settings: api.Settings) -> int:
    """Return the tokens of context that a flag gives, or else those that the agent needs."""
    return settings.given.get("ctx") or agent.n_ctx


def _running(settings: api.Settings) -> Running | None:
    """Return the server of the user that answers the agent; None without one.

    It is one of the model that was named, if one was, loaded, at a port, without keys. Flags that a server is started with want one of
    their own.
    """
    if settings.own or settings.given.keys() - {"model", "pair", "target", "ctx"}:
        return None
    wanted = name_of(settings.launch) if settings.named_model else None
    fit = [
        each
        for each in servers()
        if _address(each)
        and not (each.keyed or each.loading)
        and wanted in {None, each.model, *each.models}
    ]
    if not fit or wanted in {None, fit[-1].model}:
        return fit[-1] if fit else None
    return msgspec.structs.replace(fit[-1], model=wanted, n_ctx=fit[-1].models[str(wanted)])


def _address(running: Running) -> str:
    return next((each for each in running.addresses if each.startswith("http://")), "")


def _require_context(agent: Agent, settings: api.Settings, running: Running) -> None:
    wanted = _wanted(agent, settings)
    if running.n_ctx < wanted:
        raise api.LocalspecError(
            f"server {running.pid} of {running.model} has {running.n_ctx} tokens of context, and {agent.program} needs {wanted}: "
            f"use it all the same with --ctx {running.n_ctx}, end it with `localspec stop {running.pid}`, or start another with --own"
        )


@contextmanager
def _server(
    agent: Agent, settings: api.Settings, running: Running | None
) -> Iterator[Running | int]:
    """Yield the server that runs, or one that ends with this program, however that ends; or the exit code of one that cannot start."""
    if running is not None:
        _require_context(agent, settings, running)
        api.notice(f"{agent.program} asks {running.model} of server {running.pid}")
        yield running
        return
    settings, default = with_model(settings, quiet=False)
    if default:
        api.notice(default)
    plan = _plan(agent, settings)
    # Agents ask for a title and the like beside their work, which should not lose its place.
    parallel = 1 + all(
        use.needed_bytes + _of_context(use) <= use.place.usable_bytes for use in plan.uses
    )
    n_ctx = plan.options.n_ctx or _wanted(agent, settings)
    _notify(agent, settings, plan, n_ctx, parallel)
    words = _serve_words(settings, n_ctx, parallel, "--port", "0", "--until-stdin-ends")
    process, log = start_server(words, subprocess.PIPE)
    try:
        running = await_server(process, log)
        yield process.returncode if running is None else running
    finally:
        died = process.poll()
        assert process.stdin is not None  # noqa: S101 - a pipe
        process.stdin.close()
        process.wait()
        if died is not None and log.exists():
            api.notice(f"the server ended early: {last_line(log).removeprefix('localspec: ')}")
        log.unlink(missing_ok=True)


def _plan(agent: Agent, settings: api.Settings) -> LoadPlan:
    """Return how the model fits, once it is here; raises LocalspecError where it cannot be loaded, or is of no use to the agent."""
    wanted = _wanted(agent, settings)
    options: api.LaunchOptions = api.changed(settings.launch, {"ctx": settings.given.get("ctx")})
    with api.ProgressLine(enabled=True) as line:
        plan = api.make_plan(options, line.download, least_ctx=wanted)
    if agent.calls_tools and not offers_tools(read_model(plan.target).tool_template):
        raise _no_tools(agent, plan.names[plan.target])
    return plan


def _no_tools(agent: Agent, model: str) -> api.LocalspecError:
    return api.LocalspecError(
        f"{model} cannot call tools, and {agent.program} is of no use without: choose another model, "
        "`localspec recommend` suggests some"
    )


def _of_context(use: PlaceUse) -> int:
    """Return the bytes of one request's context in a place."""
    return use.target.kv_bytes + use.draft_model.kv_bytes


def _notify(
    agent: Agent, settings: api.Settings, plan: LoadPlan, n_ctx: int, parallel: int
) -> None:
    """Say what it takes."""
    needs = [
        f"{use.place.name}: {api.size_text(use.needed_bytes + (parallel - 1) * _of_context(use))} of {api.size_text(use.place.free_bytes)} free"
        for use in plan.uses
        if use.needed_bytes
    ]
    takes = f", needs {', '.join(needs)}" if needs else ""
    name = plan.names[plan.target]
    api.notice(printable(f"starting {name} with {parallel} x {n_ctx} tokens of context{takes}"))
    _notify_context(agent, n_ctx, _wanted(agent, settings))


def _notify_context(agent: Agent, n_ctx: int, wanted: int) -> None:
    """Say where it is less than the agent wants."""
    if n_ctx < wanted:
        api.notice(f"context {n_ctx} is below the {wanted} that {agent.program} recommends")


def _serve_words(settings: api.Settings, n_ctx: int, parallel: int, *more: str) -> list[str]:
    """Return the command line of a server."""
    given = {**settings.given, "ctx": n_ctx}
    return ["serve", *flag_words(given), "--parallel", str(parallel), *more]


def _filled(agent: Agent, server: str, model: str, n_ctx: int, folder: str) -> Agent:
    """Return the agent as it asks a server; past the user's proxy, if there is one."""
    values = {
        "server": server,
        "api": f"{server}/v1",
        "model": model,
        "name": json.dumps(model)[1:-1],
        "ctx": str(n_ctx),
        "most": str(n_ctx // _OF_THE_CONTEXT),
        "folder": folder,
    }
    filled = agent.filled(values)
    if not any(name.lower() in _PROXIES for name in os.environ):
        return filled
    here = {
        name: ",".join(filter(None, (os.environ.get(name), "127.0.0.1")))
        for name in ("NO_PROXY", "no_proxy")
    }
    return replace(filled, environment={**filled.environment, **here})


def _run(program: str, agent: Agent, running: Running, words: Sequence[str]) -> int:
    """Run the agent to its end; return its exit code. Ctrl-C is its own, and what would end this program ends it."""
    started: list[subprocess.Popen[bytes]] = []
    received: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        for each in started:
            each.send_signal(number)

    def leave_alone(_number: int, _frame: FrameType | None) -> None:
        """The terminal sends it to both."""

    handlers: dict[int, Any] = {
        **dict.fromkeys((signal.SIGINT, signal.SIGQUIT), leave_alone),
        **dict.fromkeys((signal.SIGTERM, signal.SIGHUP), pass_on),
    }
    with tempfile.TemporaryDirectory(prefix="localspec-") as folder:
        server = _address(running).removesuffix("/v1")
        filled = _filled(agent, server, running.model, running.n_ctx, folder)
        for name, text in filled.files.items():
            (Path(folder) / name).write_text(text)
        before = {number: signal.signal(number, each) for number, each in handlers.items()}
        try:
            command = [program, *filled.flags, *words]
            started.append(subprocess.Popen(command, env={**os.environ, **filled.environment}))  # noqa: S603 - what the user named
            for number in received:
                started[0].send_signal(number)
            code = started[0].wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return code if code >= 0 else code_of(-code)


def _known_ctx(agent: Agent, settings: api.Settings) -> int:
    """Return the tokens of context of a server, as far as that is known of a model which may not be here: its training bounds it.

    Raises:
        LocalspecError: the model is of no use to the agent.
    """
    wanted, registry = _wanted(agent, settings), api.load_registry()
    target = registry.find(named_models(settings.launch, registry)[0])
    if agent.calls_tools and target is not None and target.tools is False:
        raise _no_tools(agent, target.name)
    if target is None or target.context is None or settings.given.get("ctx"):
        return wanted
    n_ctx = min(wanted, target.context)
    _notify_context(agent, n_ctx, wanted)
    return n_ctx


def _print(
    agent: Agent, settings: api.Settings, running: Running | None, words: Sequence[str]
) -> None:
    """Print lines for a shell that do the same."""
    if running is not None:
        _require_context(agent, settings, running)
        server, model, n_ctx = _address(running).removesuffix("/v1"), running.model, running.n_ctx
    else:
        server, model = _USUAL_SERVER, name_of(settings.launch) or api.load_registry().default_pair
        n_ctx = _known_ctx(agent, settings)
        click.echo(shlex.join(["localspec", *_serve_words(settings, n_ctx, 2, "--background")]))
    folder = str(Path(tempfile.gettempdir()) / f"localspec-{agent.program}")
    filled = _filled(agent, server, model, n_ctx, folder)
    for name, text in filled.files.items():
        click.echo(f"mkdir -p {shlex.quote(folder)}")
        click.echo(f"printf %s {shlex.quote(text)} > {shlex.quote(f'{folder}/{name}')}")
    for name, value in filled.environment.items():
        click.echo(f"export {name}={shlex.quote(value)}")
    click.echo(shlex.join([agent.program, *filled.flags, *words]))
