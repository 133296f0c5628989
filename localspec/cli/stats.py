"""`localspec stats`: what drafting did on this machine."""

import os
import shutil
import sys
import textwrap
import time
from contextlib import closing, suppress
from pathlib import Path

import click

from localspec.errors import LocalspecError, UsageError
from localspec.storage.paths import data_dir, shown


@click.command()
@click.option("--since", metavar="WHEN", help="Only since then: 2026-11-20, 12h, 7d, 4w.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
@click.option("--html", metavar="FILE", help="Write one page with plots; it needs no network.")
@click.option("--replies", type=click.IntRange(1), metavar="N", help="List the last N replies.")
@click.option(
    "--retag",
    multiple=True,
    metavar="REPLY=KIND",
    help="Say what kind of text a reply is: code, edit, chat, summarise, structured, creative.",
)
@click.option("--debug", is_flag=True, help="Show a traceback when something fails.")
def stats(
    since: str | None,
    json_: bool,
    html: str | None,
    replies: int | None,
    retag: tuple[str, ...],
    debug: bool,  # noqa: ARG001 - main() looks for --debug
) -> None:
    """Show what drafting did here: acceptance, speed and time, by pair, kind of text, drafter and depth.

    Counts and times are recorded as answers are given, and stay on this machine; see `localspec
    telemetry --help`. What `bench` and `ab` run is not recorded.
    """
    # Imported here: `localspec stats --help` needs no database.
    from localspec.telemetry.document import as_json  # noqa: PLC0415
    from localspec.telemetry.page import html_page  # noqa: PLC0415
    from localspec.telemetry.reading import list_replies, reading  # noqa: PLC0415
    from localspec.telemetry.report import read_report  # noqa: PLC0415
    from localspec.telemetry.since import since as moment  # noqa: PLC0415
    from localspec.telemetry.told import lines, told_replies  # noqa: PLC0415

    directory = data_dir() / "telemetry"
    since_s = None if since is None else moment(since)
    if retag:
        _retag(directory, retag)
        if replies is None and html is None and not json_:
            return
    with reading(directory) as connection:
        if connection is None:
            raise LocalspecError("nothing was recorded yet: ask something first")
        if replies is not None:
            for line in told_replies(list_replies(connection, replies)):
                click.echo(line)
            return
        report = read_report(connection, since_s)
    if html is not None:
        _write(Path(html), html_page(report, time.time()))
    if json_:
        click.echo(as_json(report))
    elif html is None:
        with_bars = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        for line in lines(report, with_bars=with_bars):
            click.echo(_fitted(line))
    else:
        click.echo(f"localspec: {shown(html)} is written", err=True)


def _fitted(line: str) -> str:
    """Return a sentence in lines that a terminal holds; figures that stand below each other stay as they are."""
    if line.startswith("  ") or not sys.stdout.isatty():
        return line
    return textwrap.fill(line, shutil.get_terminal_size((80, 24)).columns)


def _retag(directory: Path, wanted: tuple[str, ...]) -> None:
    import sqlite3  # noqa: PLC0415

    from localspec.telemetry.database import FILE, Database  # noqa: PLC0415
    from localspec.telemetry.kinds import required  # noqa: PLC0415
    from localspec.telemetry.schema import TooNewError  # noqa: PLC0415
    from localspec.telemetry.taking_in import collect  # noqa: PLC0415
    from localspec.telemetry.writing import retag  # noqa: PLC0415

    asked = []
    for each in wanted:
        number, equals, workload = each.partition("=")
        if not (equals and number.isdecimal() and len(number) < 19):
            raise UsageError(f"--retag {each[:40]!r}: give it like 12=code")
        asked.append((int(number), required(workload)))
    collect(directory)
    if not (directory / FILE).is_file():
        raise LocalspecError("nothing was recorded yet: there is nothing to tag")
    try:
        with closing(Database(directory, busy_s=5.0)) as database:
            for reply, kind in asked:
                if not database.write(lambda c: retag(c, reply, kind, by_user=True)):  # noqa: B023
                    raise UsageError(
                        f"there is no reply {reply}, or its rounds are gone: see `localspec stats --replies 20`"
                    )
    except (sqlite3.Error, TooNewError) as error:
        raise LocalspecError(
            f"{directory / FILE} cannot be written ({error}): try again"
        ) from error


def _write(path: Path, page: str) -> None:
    """Write a page whole or not at all, readable by its owner only."""
    beside = path.with_name(f".{path.name}.new")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(page)
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise UsageError(
            f"{shown(path)} cannot be written ({error.strerror}): choose another place"
        ) from error
