"""`localspec telemetry`: what is recorded on this machine, and how to have less of it, or none."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import click

from localspec.display import notice
from localspec.storage.paths import data_dir, shown
from localspec.telemetry.moments import day
from localspec.telemetry.switch import Switch, read_switch, write_switch


@click.group(invoke_without_command=True)
@click.pass_context
def telemetry(context: click.Context) -> None:
    """Show and change what is recorded about answers. Nothing leaves this machine.

    By default, each reply records counts and times: tokens drafted and accepted, how sure the
    drafter was, how long it took, the pair, and the kind of text. Text and token ids are recorded
    only after `telemetry text on`.
    """
    if context.invoked_subcommand is None:
        context.invoke(status)


@telemetry.command()
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
def status(json_: bool) -> None:
    """Show what is recorded, and how much there is."""
    from localspec.launch.recording import is_allowed  # noqa: PLC0415 - settings come with it
    from localspec.telemetry.log import read_records, said_of_before, size_bytes  # noqa: PLC0415

    directory = _directory()
    readable = read_switch(directory)
    switch = readable or Switch(on=False)
    recording = switch.on and is_allowed()
    records, size = read_records(directory), size_bytes(directory)
    rounds = {reply.id: reply.sums[0] for reply in records.replies.values()}
    with_text = sum(rounds[each] for each in records.texts & rounds.keys())
    if json_:
        document = {
            "recording": recording,
            "on": switch.on,
            "allowed_by_setting": is_allowed(),
            "text": switch.text and recording,
            "megabytes": switch.megabytes,
            "days": switch.days,
            "bytes": size,
            "rounds": sum(rounds.values()),
            "replies": len(rounds),
            "rounds_with_text": with_text,
        }
        click.echo(json.dumps(document))
        return
    if recording:
        click.echo("on: recording counts and times" + (", and text" if switch.text else ""))
    else:
        click.echo(f"off: {_why_off(readable)}")
    if rounds:
        text = f", {with_text} of them with text" if with_text else ", none with text"
        replies = "1 reply" if len(rounds) == 1 else f"{len(rounds)} replies"
        first_s = min(reply.at for reply in records.replies.values())
        click.echo(f"{sum(rounds.values())} rounds of {replies} since {day(first_s)}{text}")
    click.echo(f"{size / 2**20:.1f} of {switch.megabytes} MB, kept for {switch.days} days")
    if (before := said_of_before(directory)) is not None:
        click.echo(before)


@telemetry.command()
def path() -> None:
    """Print the path of the records."""
    from localspec.telemetry.log import FILE  # noqa: PLC0415

    click.echo(shown(_directory() / FILE))


@telemetry.command()
def on() -> None:
    """Record counts and times."""
    _set(on=True)
    notice("recording counts and times from now on")


@telemetry.command()
def off() -> None:
    """Stop recording; `localspec stats --wipe` removes what is there."""
    _set(on=False)
    notice("recording nothing from now on")


@telemetry.command()
@click.argument("wanted", type=click.Choice(["on", "off"]))
def text(wanted: str) -> None:
    """Turn recording of prompts and answers on or off.

    `localspec stats --export` needs it. Turning it off keeps the text recorded so far; `stats
    --wipe-text` removes it.
    """
    _set(text=wanted == "on")
    told = (
        "recording prompts and answers from now on"
        if wanted == "on"
        else "recording no text from now on"
    )
    notice(told)


@telemetry.command()
@click.option(
    "--megabytes", type=int, metavar="N", help="Largest size of the records. Default: 128."
)
@click.option("--days", type=int, metavar="N", help="How long to keep records. Default: 365.")
def keep(megabytes: int | None, days: int | None) -> None:
    """Set how much to keep; the oldest replies are removed first."""
    from localspec.telemetry.log import set_bounds  # noqa: PLC0415

    changes = {"megabytes": megabytes, "days": days}
    switch = _set(**{name: value for name, value in changes.items() if value is not None})
    set_bounds(_directory(), switch.megabytes, switch.days, time.time())
    notice(f"keeping up to {switch.megabytes} MB for {switch.days} days")


def _directory() -> Path:
    return data_dir() / "telemetry"


def _set(**changes: int) -> Switch:
    # What cannot be read is written anew, and records no more than it is now told to.
    before = read_switch(_directory()) or Switch(on=False)
    switch = replace(before, **changes)  # type: ignore[arg-type]
    write_switch(_directory(), switch)
    return switch


def _why_off(switch: Switch | None) -> str:
    if switch is None:
        return f"{shown(_directory() / 'switch.json')} cannot be read; `localspec telemetry on` writes a new one"
    if not switch.on:
        return "turn it on with `localspec telemetry on`"
    return f"the setting `telemetry` turns it off ({os.environ.get('LOCALSPEC_TELEMETRY', '')})"
