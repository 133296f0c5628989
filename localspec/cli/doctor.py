"""`localspec doctor`: what this machine is, what works on it, and what needs mending."""

import json
import sys
from collections.abc import Callable

import click

from localspec.cli.option_flags import option_flags
from localspec.diagnosis.fact import Fact, gathered
from localspec.diagnosis.files import places, settings, store
from localspec.diagnosis.gpu_builds import find_tools, gpu_build
from localspec.diagnosis.hub import network
from localspec.diagnosis.machine import hardware, software
from localspec.diagnosis.passes import passes
from localspec.display import printable
from localspec.llama.build import build
from localspec.llama.devices import devices
from localspec.storage.paths import data_dir

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
    facts = examine(offline=offline, verify=verify, progress=_tell_file)
    broken = [fact for fact in facts if fact.state == "broken"]
    if json_:
        click.echo(_as_json(facts))
    else:
        _print(facts)
        click.echo(f"\n{_found(facts)}")
    return 1 if broken else 0


def _as_json(facts: list[Fact]) -> str:
    listed = [
        {"section": f.section, "name": f.name, "value": f.value, "state": f.state} for f in facts
    ]
    return json.dumps({"ok": all(f.state != "broken" for f in facts), "facts": listed})


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
        click.echo(f"localspec: reading {name[:12]}…", err=True)


def examine(
    *, offline: bool, verify: bool, progress: Callable[[str], None] = lambda _: None
) -> list[Fact]:
    """Check this machine.

    Args:
        offline: use no network.
        verify: re-hash every stored model.
        progress: called with the name of a file that is about to be read.
    """
    return [
        *gathered("software", lambda: software(build())),
        *gathered("hardware", lambda: hardware(devices())),
        *gathered("GPU build", lambda: gpu_build(build(), find_tools())),
        *gathered("places", places),
        *gathered("settings", settings),
        *gathered("network", lambda: network(offline=offline)),
        *gathered("store", lambda: store(data_dir(), verify=verify, progress=progress)),
        *gathered("passes", lambda: passes(data_dir())),
    ]
