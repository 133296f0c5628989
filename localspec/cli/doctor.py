"""`localspec doctor`: what this machine is, what works on it, and what needs mending."""

import json
import sys
from dataclasses import asdict

import click

from localspec.cli.option_flags import option_flags
from localspec.diagnosis.fact import Fact
from localspec.display import notice, printable

_MARKS = {"ok": " ", "note": "-", "warning": "?", "broken": "!"}


@click.command()
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
@option_flags("offline")
@click.option("--verify", is_flag=True, help="Read every stored model and compare its sha256.")
def doctor(json_: bool, offline: bool, verify: bool) -> int:
    """Check this machine: llama.cpp, devices, memory, files, settings, network.

    The output holds no secrets and is safe to share. The exit code is 1 if something is broken;
    having no network is only a warning.
    """
    # It loads llama.cpp, which --help does without.
    from localspec.diagnosis.examination import examine  # noqa: PLC0415

    facts = examine(offline=offline, verify=verify, progress=_tell_file)
    broken = [fact for fact in facts if fact.state == "broken"]
    if json_:
        click.echo(_as_json(facts))
    else:
        _print(facts)
        click.echo(f"\n{_found(facts)}")
    return 1 if broken else 0


def _as_json(facts: list[Fact]) -> str:
    ok = all(fact.state != "broken" for fact in facts)
    return json.dumps({"ok": ok, "facts": [asdict(fact) for fact in facts]})


def _print(facts: list[Fact]) -> None:
    section = ""
    for fact in facts:
        if fact.section != section:
            section = fact.section
            click.echo(f"\n{section}")
        click.echo(f"{_MARKS[fact.state]} {fact.name:18} {printable(fact.value)}")


def _found(facts: list[Fact]) -> str:
    counts = [sum(fact.state == state for fact in facts) for state in ("broken", "warning")]
    parts = [
        f"{count or 'no'} {what}{'' if count == 1 else 's'}"
        for count, what in zip(counts, ("problem", "warning"), strict=True)
        if count or what == "problem"
    ]
    return f"{' and '.join(parts)} found"


def _tell_file(name: str) -> None:
    if sys.stderr.isatty():
        notice(f"reading {name[:12]}…")
