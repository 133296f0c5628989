"""`localspec doctor` and `setup`: a check of this machine, and a build of llama.cpp for its GPU."""

import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import click

from localspec.cli.interrupt import unwind_on_terminate
from localspec.cli.options import flag, flags, json_option, option_flags, switch
from localspec.cli.progress import ProgressLine, print_json
from localspec.diagnosis.doctor import Fact, State, examine
from localspec.display import columns_of, counted, notice, printable
from localspec.errors import LocalspecError, UsageError
from localspec.llama.backend import build
from localspec.llama.selection import builds_dir, chosen
from localspec.resources import default_threads
from localspec.setup.plan import BACKENDS, SetupPlan, decide, find_gpus
from localspec.setup.steps import carry_out, steps
from localspec.storage.network import is_network_closed

_NAME_COLUMNS = 18
_MARKS = {"ok": " ", "note": "-", "warning": "?", "broken": "!"}


@click.command()
@json_option
@option_flags("offline")
@click.option("--verify", is_flag=True, help="Also verify the SHA-256 of every stored model.")
def doctor(json_: bool, offline: bool, verify: bool) -> int:
    """Check this machine: llama.cpp, devices, memory, files, settings, network.

    The output holds no secrets and is safe to share. The exit code is 1 if something is broken;
    having no network is only a warning.
    """
    sections = examine(offline=offline or is_network_closed(), verify=verify, progress=_show_file)
    states = [fact.state for facts in sections.values() for fact in facts]
    if json_:
        every = [(name, fact) for name, facts in sections.items() for fact in facts]
        rows = [{"section": name, **fact._asdict()} for name, fact in every]
        print_json({"ok": "broken" not in states, "facts": rows}, indent=None)
    else:
        for name, facts in sections.items():
            click.echo("\n".join((name, *map(_line, facts), "")))
        click.echo(_summary(states))
    return 1 if "broken" in states else 0


def _line(fact: Fact) -> str:
    """Return a fact as a line; for a terminal, broken between words."""
    line = f"{_MARKS[fact.state]} {fact.name:{_NAME_COLUMNS}} {printable(fact.value)}"
    if not sys.stdout.isatty():
        return line
    columns = columns_of(sys.stdout)
    indent = " " * (_NAME_COLUMNS + 3 if columns > 3 * _NAME_COLUMNS else 4)
    return textwrap.fill(
        line, columns, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


def _summary(states: Sequence[State]) -> str:
    """Return the counts of problems, warnings and notes, each with its mark."""
    parts = ["no problems"] if "broken" not in states else []
    for state, word in (("broken", "problem"), ("warning", "warning"), ("note", "note")):
        if count := sum(each == state for each in states):
            parts.append(f"{counted(count, word)} ({_MARKS[state]})")
    return ", ".join(parts)


def _show_file(name: str) -> None:
    if sys.stderr.isatty():
        notice(f"reading {name[:12]}…")


@dataclass(frozen=True, slots=True)
class SetupFlags:
    """Flags of `setup`.

    Args:
        backend: What to build for. Default: this machine's GPU.
        rpc: Also use devices of other machines (llama.cpp's RPC).
        wheels: Index of prebuilt wheels to install from, instead of compiling.
        rebuild: Build it again, even if it is there already.
        dry_run: Print the commands, and do not run them.
        yes: Do not ask for confirmation.
    """

    backend: str | None = flag("--for", type=click.Choice(list(BACKENDS)))
    rpc: bool = switch()
    wheels: str | None = flag("URL")
    rebuild: bool = switch()
    dry_run: bool = switch()
    yes: bool = switch()


@click.command()
@flags(wanted=SetupFlags)
def setup(wanted: SetupFlags) -> int:
    """Build llama.cpp for this machine's GPU, and use it if it answers a question.

    Until then, and if anything goes wrong, localspec keeps using the present build.
    `localspec setup --for cpu` returns to the one that localspec was installed with.
    """
    used = build()
    plan = decide(
        find_gpus(),
        used.backends,
        is_made=chosen() is not None,
        backend=wanted.backend,
        rpc=wanted.rpc,
        rebuild=wanted.rebuild,
        wheels=wanted.wheels,
    )
    click.echo(plan.reason)
    missing = ", ".join(plan.lacks)
    if plan.backend is None:
        return 0
    if wanted.dry_run:
        commands = map(str, steps(plan, used.version, builds_dir() / "NEW"))
        click.echo("\n".join([*([f"first install {missing}"] if missing else []), *commands]))
        return 0
    if not plan.to_own and is_network_closed():
        raise LocalspecError(
            "setup downloads the source of llama.cpp, and localspec is offline: go online, or see the commands with --dry-run"
        )
    if missing:
        raise LocalspecError(f"{plan.reason}: install {missing}, then run localspec setup again")
    if not plan.to_own:
        options = " ".join(plan.options) or "no options"
        compiled = f"compiled with {options}: {plan.minutes(default_threads())}"
        how = "installed from a wheel" if wanted.wheels else compiled
        click.echo(f"llama-cpp-python {used.version} is {how}; the present build stays until then")
        if not wanted.yes and not sys.stdin.isatty():
            raise UsageError("stdin is not a terminal: to continue, give --yes")
        if not wanted.yes:
            click.confirm("continue?", abort=True, err=True)
    _carry_out(plan, used.version)
    return 0


def _carry_out(plan: SetupPlan, version: str) -> None:
    line = ProgressLine(enabled=True)

    def show(title: str, share: float) -> None:
        if line.drawn:
            line.draw(f"{title}…  {share:.0%}" if share else f"{title}…")
        elif not share:
            notice(title)

    with unwind_on_terminate(), line:
        trial = carry_out(plan, version, show)
    on = ", ".join(trial.devices) or "the CPU"
    if trial.answer is None:
        click.echo(f"it runs on {on}; to see it answer, run `localspec pull demo` and this again")
    else:
        answer = " ".join(trial.answer.split())
        click.echo(f"it answered in {trial.seconds:.1f} s on {on}: {answer}")
    click.echo("localspec now uses it")
    needed = " ".join(f"{k}={v}" for k, v in plan.variables.items() if k.startswith("GGML_"))
    if needed:
        click.echo(f"set {needed} in the environment: without it, it crashes or uses the CPU")
