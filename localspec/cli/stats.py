"""`localspec stats`: what drafting did on this machine."""

import time
from pathlib import Path

import click

from localspec.display import notice
from localspec.errors import LocalspecError, UsageError
from localspec.storage.files import write_atomic
from localspec.storage.paths import data_dir, shown


@click.command()
@click.option("--since", metavar="WHEN", help="Only since this time: 2026-11-20, 12h, 7d, 4w.")
@click.option("--all", "all_", is_flag=True, help="Print every table, not only the first.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
@click.option("--html", metavar="FILE", help="Write a page with plots, which needs no network.")
@click.option("--replies", type=click.IntRange(1), metavar="N", help="List the last N replies.")
@click.option(
    "--retag",
    multiple=True,
    metavar="REPLY=KIND",
    help="Correct the kind of text of a reply: code, edit, chat, summarise, structured, creative.",
)
def stats(
    since: str | None,
    all_: bool,
    json_: bool,
    html: str | None,
    replies: int | None,
    retag: tuple[str, ...],
) -> None:
    """Show what drafting did on this machine: acceptance, speed and time saved, by pair.

    With --all also by kind of text, drafter, draft length and more.

    Answers record counts and times, which stay on this machine; see `localspec telemetry --help`.
    `bench` records nothing.
    """
    # Imported here: `localspec stats --help` needs none of it.
    from localspec.telemetry.document import as_json  # noqa: PLC0415
    from localspec.telemetry.log import read_records, said_of_before  # noqa: PLC0415
    from localspec.telemetry.moments import since as moment  # noqa: PLC0415
    from localspec.telemetry.report import make_report  # noqa: PLC0415
    from localspec.telemetry.view import html_page, replies_view, terminal_view  # noqa: PLC0415

    directory = data_dir() / "telemetry"
    since_s = None if since is None else moment(since)
    if retag:
        _retag(directory, retag)
        if replies is None and html is None and not json_:
            return
    records, before = read_records(directory), said_of_before(directory)
    if not records.replies:
        raise LocalspecError(before or "nothing was recorded yet: ask something first")
    if before is not None:
        notice(before)
    if replies is not None:
        for line in replies_view(list(records.replies.values())[: -replies - 1 : -1]):
            click.echo(line)
        return
    report = make_report(records, since_s)
    if html is not None:
        _write(Path(html), html_page(report, time.time()))
    if json_:
        click.echo(as_json(report))
    elif html is None:
        click.echo(terminal_view(report, every=all_), nl=False)
    else:
        notice(f"wrote {shown(html)}")


def _retag(directory: Path, wanted: tuple[str, ...]) -> None:
    from localspec.telemetry.log import retag  # noqa: PLC0415
    from localspec.telemetry.reply import required  # noqa: PLC0415

    asked = []
    for each in wanted:
        number, equals, workload = each.partition("=")
        if not (equals and number.isdecimal() and len(number) < 19):
            raise UsageError(f"--retag {each[:40]!r}: write it like 12=code")
        asked.append((int(number), required(workload)))
    for reply, kind in asked:
        if not retag(directory, reply, kind, time.time()):
            raise UsageError(f"there is no reply {reply}: see `localspec stats --replies 20`")


def _write(path: Path, page: str) -> None:
    """Write a page whole or not at all, readable by its owner only."""
    try:
        write_atomic(path, page.encode())
    except OSError as error:
        raise UsageError(
            f"{shown(path)} cannot be written ({error.strerror}): choose another place"
        ) from error
