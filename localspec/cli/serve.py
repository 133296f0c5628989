"""`localspec serve`: the models behind HTTP, until it is interrupted."""

import asyncio
import math
import re
import signal
import sys
from contextlib import ExitStack
from typing import Any

import click

from localspec.cli.completions import complete_models
from localspec.cli.gating import gate_of, gate_option, named_gate
from localspec.cli.listening import LOOPBACK, listening
from localspec.cli.option_flags import option_flags, parallel_count, tool_rules_option
from localspec.cli.sections import SectionedCommand
from localspec.cli.serve_keys import keys_of
from localspec.cli.settings import configured
from localspec.cli.words import require_model
from localspec.errors import UsageError

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


def _ends(context: click.Context, flag: click.Parameter, seconds: float | None) -> float | None:
    """Return seconds that end: NaN is neither below a range nor above it."""
    if seconds is not None and not math.isfinite(seconds):
        raise click.BadParameter(f"{seconds} is not a number of seconds", context, flag)
    return seconds


@click.command(cls=SectionedCommand)
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
    help="File of API keys, one per line: [NAME] KEY [gate=usual|off|FILE]; # begins a comment. Every request must carry one. Required for other machines.",
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
    callback=_ends,
    metavar="SECONDS",
    help="Longest wait of a request; one that waited longer gets 503. Default: no limit.",
)
@click.option(
    "--forget",
    is_flag=True,
    help="Write no evaluated prompts to disk; else those that are left are read again, also after a restart.",
)
@tool_rules_option
@gate_option
@option_flags("device")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")
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
    keys = keys_of(flags["api_key_file"]) if flags["api_key_file"] else {}
    if flags["host"] not in {None, *LOOPBACK} and not keys:
        raise UsageError(
            f"--host {flags['host']} lets other machines connect: give --api-key-file as well"
        )
    if "*" in flags["cors"]:
        raise UsageError(
            "--cors * would let every web page ask: name each origin, https://HOST:PORT"
        )
    flags = configured(flags)
    gate = gate_of(flags)
    own = {name: named_gate(name, "gate=") for name in {*keys.values()} if name}
    gates = {key: own[name] if name else gate for key, name in keys.items()}
    # Whoever stops it from outside ends it as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    where = listening(flags["host"], flags["port"], flags["socket"])
    with where as listeners, ExitStack() as seen:  # until the engine is gone, too
        try:
            from localspec.cli.serve_here import served_here  # noqa: PLC0415 - HTTP comes with it

            return asyncio.run(served_here(listeners, seen, gates, gate, flags))
        except KeyboardInterrupt:
            return 0
