"""`localspec doctor`: what this machine is, what works on it, and what needs mending."""

import json
import sys
import textwrap
from collections.abc import Sequence

import click

from localspec.cli.option_flags import option_flags
from localspec.diagnosis import Fact, State
from localspec.diagnosis.machine import examine
from localspec.display import columns_of, notice, printable

_NAME_COLUMNS = 18
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

    sections = examine(offline=offline, verify=verify, progress=_show_file)
    states = [fact.state for facts in sections.values() for fact in facts]
    if json_:
        rows = [
            {"section": name, **fact._asdict()}
            for name, facts in sections.items()
            for fact in facts
        ]
        click.echo(json.dumps({"ok": "broken" not in states, "facts": rows}))
    else:
        for name, facts in sections.items():
            click.echo("\n".join((name, *map(_line, facts), "")))
        click.echo(_summary(states))
    return 1 if "broken" in states else 0


def _line(fact: Fact) -> str:
    """Return a fact as a line, broken between words where it goes to a terminal."""
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
            parts.append(f"{count} {word}{'' if count == 1 else 's'} ({_MARKS[state]})")
    return ", ".join(parts)


def _show_file(name: str) -> None:
    if sys.stderr.isatty():
        notice(f"reading {name[:12]}…")
