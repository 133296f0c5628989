"""`localspec telemetry`: what is recorded on this machine, and how to have less of it, or none."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import click

from localspec.storage.paths import data_dir, shown
from localspec.telemetry.moments import day
from localspec.telemetry.switch import Switch, read_switch, write_switch

_DEBUG = click.option("--debug", is_flag=True, help="Show a traceback if something fails.")


@click.group()
def telemetry() -> None:
    """Show and change what is recorded about answers. Nothing leaves this machine.

    By default, each reply records counts and times: tokens drafted and accepted, how sure the
    drafter was, how long it took, the pair, and the kind of text. Text and token ids are recorded
    only after `telemetry text on`.
    """


@telemetry.command()
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
@_DEBUG
def status(json_: bool, debug: bool) -> None:  # noqa: ARG001 - main() looks for --debug
    """Show what is recorded, and how much there is."""
    from localspec.launch.observe import is_allowed  # noqa: PLC0415 - it brings all that answers
    from localspec.telemetry.log import read_sizes, said_of_before  # noqa: PLC0415

    directory = _directory()
    switch = read_switch(directory)
    recording = switch.on and is_allowed()
    known = read_sizes(directory)
    if json_:
        document = {
            "recording": recording,
            "on": switch.on,
            "allowed_by_setting": is_allowed(),
            "text": switch.text and recording,
            "megabytes": switch.megabytes,
            "days": switch.days,
            "bytes": known.size_bytes,
            "rounds": known.rounds,
            "replies": known.replies,
            "rounds_with_text": known.rounds_with_text,
        }
        click.echo(json.dumps(document))
        return
    if recording:
        click.echo("on: recording counts and times" + (", and text" if switch.text else ""))
    else:
        click.echo(f"off: {_why_off(switch)}")
    if known.first_s is not None:
        with_text = known.rounds_with_text
        text = f", {with_text} of them with text" if with_text else ", none with text"
        replies = "1 reply" if known.replies == 1 else f"{known.replies} replies"
        click.echo(f"{known.rounds} rounds of {replies} since {day(known.first_s)}{text}")
    click.echo(
        f"{known.size_bytes / 2**20:.1f} of {switch.megabytes} MB, kept for {switch.days} days"
    )
    if (before := said_of_before(directory)) is not None:
        click.echo(before)


@telemetry.command()
@_DEBUG
def path(debug: bool) -> None:  # noqa: ARG001
    """Print the path of the records."""
    from localspec.telemetry.log import FILE  # noqa: PLC0415

    click.echo(shown(_directory() / FILE))


@telemetry.command()
@_DEBUG
def on(debug: bool) -> None:  # noqa: ARG001
    """Record counts and times."""
    _set(on=True)
    click.echo("localspec: recording counts and times from now on", err=True)


@telemetry.command()
@_DEBUG
def off(debug: bool) -> None:  # noqa: ARG001
    """Stop recording; `telemetry wipe` removes what is there."""
    _set(on=False)
    click.echo("localspec: recording nothing from now on", err=True)


@telemetry.command()
@click.argument("wanted", type=click.Choice(["on", "off"]))
@_DEBUG
def text(wanted: str, debug: bool) -> None:  # noqa: ARG001
    """Turn recording of prompts and answers on or off.

    `export-proposals` needs it. Turning it off keeps the text recorded so far; `telemetry wipe
    --text` removes it.
    """
    _set(text=wanted == "on")
    told = (
        "recording prompts and answers from now on"
        if wanted == "on"
        else "recording no text from now on"
    )
    click.echo(f"localspec: {told}", err=True)


@telemetry.command()
@click.option("--text", "only_text", is_flag=True, help="Remove only the text.")
@_DEBUG
def wipe(only_text: bool, debug: bool) -> None:  # noqa: ARG001
    """Remove what was recorded, down to its last byte."""
    from localspec.telemetry.log import wipe as wiped  # noqa: PLC0415

    found = wiped(_directory(), only_text=only_text)
    what = "the recorded text" if only_text else "everything that was recorded"
    said = f"removed {what}" if found else "nothing was recorded"
    click.echo(f"localspec: {said}", err=True)


@telemetry.command()
@click.option(
    "--megabytes", type=int, metavar="N", help="Largest size of the records. Default: 128."
)
@click.option("--days", type=int, metavar="N", help="How long to keep records. Default: 365.")
@_DEBUG
def keep(megabytes: int | None, days: int | None, debug: bool) -> None:  # noqa: ARG001
    """Set how much to keep; the oldest replies are removed first."""
    from localspec.telemetry.log import set_bounds  # noqa: PLC0415

    changes = {"megabytes": megabytes, "days": days}
    switch = _set(**{name: value for name, value in changes.items() if value is not None})
    set_bounds(_directory(), switch.megabytes, switch.days, time.time())
    click.echo(f"localspec: keeping up to {switch.megabytes} MB for {switch.days} days", err=True)


def _directory() -> Path:
    return data_dir() / "telemetry"


def _set(**changes: int) -> Switch:
    before = read_switch(_directory())
    # What cannot be read is written anew, and records no more than it is now told to.
    before = before if before.readable else Switch(on=False)
    switch = replace(before, **changes)  # type: ignore[arg-type]
    write_switch(_directory(), switch)
    return switch


def _why_off(switch: Switch) -> str:
    if not switch.readable:
        return f"{shown(_directory() / 'switch.json')} cannot be read; `localspec telemetry on` writes a new one"
    if not switch.on:
        return "turn it on with `localspec telemetry on`"
    return f"the setting `telemetry` turns it off ({os.environ.get('LOCALSPEC_TELEMETRY', '')})"
