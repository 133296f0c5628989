"""`localspec stats`: figures of drafting on this machine."""

import json
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import click

from localspec.cli.options import flag, flags, several, switch
from localspec.config.recorded import recorded
from localspec.decoding.drafters.register import drafters, keeping
from localspec.decoding.round import OFF
from localspec.display import notice, wrapped
from localspec.errors import LocalspecError, UsageError
from localspec.options.recording import checked_workload
from localspec.storage.files import holds_other, write_atomic
from localspec.storage.paths import data_dir, shown
from localspec.telemetry import log
from localspec.telemetry.log import Records, read_records
from localspec.telemetry.report import Report, add_trained, make_report
from localspec.telemetry.text import proposals
from localspec.telemetry.view import as_json, html_page, replies_view, terminal_view
from localspec.telemetry.view import since as moment

_OFF = "recording is off: turn it on with `localspec config set telemetry on`"


@dataclass(frozen=True, slots=True)
class StatsFlags:
    """Flags of `stats`.

    Args:
        since: Only replies since then: 2026-11-20, 12h, 7d, 4w.
        all_: Print every table, not only the first.
        json_: Print one JSON object.
        html: Write an HTML page with plots; it works offline.
        replies: List the last N replies.
        retag: Correct the kind of text of a reply: code, edit, chat, summarise, structured, creative.
        export: Write recorded drafts as JSON lines, to train a better draft model; - is stdout.
        drafters: With --export: only rounds of this drafter; can be repeated. Default: every drafter.
        most_context: With --export: only the last N tokens of each context. Default: all.
        wipe: Delete all records, and the store of earlier answers.
        wipe_text: Delete only the recorded text.
        yes: With --wipe or --wipe-text: do not ask.
    """

    since: str | None = flag("WHEN")
    all_: bool = switch()
    json_: bool = switch()
    html: str | None = flag("FILE")
    replies: int | None = flag("N", type=click.IntRange(1))
    retag: tuple[str, ...] = several("REPLY=KIND")
    export: str | None = flag("FILE")
    drafters: tuple[str, ...] = several("--drafter", "NAME")
    most_context: int | None = flag("--context", "N", type=click.IntRange(1))
    wipe: bool = switch()
    wipe_text: bool = switch()
    yes: bool = switch()


@click.command()
@flags(wanted=StatsFlags)
def stats(wanted: StatsFlags) -> None:
    """Show how well drafting works on this machine: acceptance, speed and time saved, by pair.

    With --all, also by kind of text, drafter, draft length and more.

    localspec records counts and times of its answers, by default no text, and nothing leaves this
    machine. Turn that off with `localspec config set telemetry off`. `bench` records nothing.

    Each line of --export is a round: the context, the draft, how many of its tokens were accepted,
    and the target's next token, all as token ids and as text, and the mark that /good or /bad gave
    the reply. Only replies recorded with text are included; turn that on with
    `localspec config set telemetry text`.
    """
    directory = data_dir() / "telemetry"
    since_s = None if wanted.since is None else moment(wanted.since)
    if wanted.wipe or wanted.wipe_text:
        _wipe(directory, only_text=not wanted.wipe, confirm=not wanted.yes)
        return
    if wanted.export is not None:
        _export(directory, wanted, since_s or 0.0)
        return
    _retag(directory, wanted.retag)
    if wanted.retag and not (wanted.replies or wanted.html or wanted.json_):
        return
    if log.is_empty(directory):
        why = "ask something first" if recorded() else _OFF
        raise LocalspecError(f"no records yet: {why}")
    if wanted.replies is not None:
        for line in replies_view(log.last_replies(directory, wanted.replies)):
            click.echo(line)
        return
    records = read_records(directory, since_s)
    report = make_report(records, since_s)
    _add_trained_heads(report, records)
    if wanted.html is not None:
        page = html_page(report, time.time())
        _write(wanted.html, page, page.partition("</title>")[0])
    if wanted.json_:
        click.echo(as_json(report))
    elif wanted.html is None:
        click.echo(terminal_view(report, every=wanted.all_), nl=False)


def _add_trained_heads(report: Report, records: Records) -> None:
    from localspec.models.ledger import TAILORED  # noqa: PLC0415 - help needs none of it

    for entry in TAILORED.load(data_dir()).values():
        if entry.heads is not None:
            day = entry.heads.date
            how = f"{entry.origin}, {day}"
            add_trained(report, records, entry.name, how, moment(f"{day}T00:00+00:00"))


def _retag(directory: Path, pairs: tuple[str, ...]) -> None:
    tags = []
    for each in pairs:
        number, equals, workload = each.partition("=")
        if not (equals and number.isdecimal() and len(number) < 19):
            raise UsageError(f"--retag {each[:40]!r}: write it like 12=code")
        tags.append((int(number), checked_workload(workload)))
    for reply, kind in tags:
        if not log.retag(directory, reply, kind):
            raise UsageError(f"there is no reply {reply}: see `localspec stats --replies 20`")


def _wipe(directory: Path, *, only_text: bool, confirm: bool) -> None:
    what = "the recorded text" if only_text else "all records"
    if confirm and not sys.stdin.isatty():
        raise UsageError(f"stdin is not a terminal: to delete {what}, give --yes")
    if confirm:
        click.confirm(wrapped(f"delete {what}?", sys.stderr), abort=True, err=True)
    removed, troubles = False, list[str]()
    try:
        removed = log.wipe(directory, only_text=only_text)
    except LocalspecError as error:
        troubles.append(str(error))
    if not only_text:
        for entry in keeping():
            try:
                removed |= entry.kept.wipe(data_dir())
            except OSError as error:
                advice = "check its permissions, and close the programs that use it"
                troubles.append(f"{error.filename} cannot be wiped ({error.strerror}): {advice}")
    if troubles:
        raise LocalspecError("; ".join(troubles))
    notice(f"deleted {what}" if removed else "there are no records")


def _export(directory: Path, wanted: StatsFlags, since_s: float) -> None:
    for each in set(wanted.drafters) - {*drafters(), OFF}:
        raise UsageError(f"--drafter {each[:40]!r}: choose one of {', '.join([*drafters(), OFF])}")
    from localspec.history.archive import History  # noqa: PLC0415 - help needs none of it

    with closing(History(data_dir() / "history")) as history:
        marks = {(each.seed, each.prompt): each.mark for each in history.marked()}
    rounds = proposals(directory, since_s, wanted.drafters, wanted.most_context or 0, marks)
    first = next(rounds, None)
    if first is None:
        raise LocalspecError(
            "no matching round was recorded with text: record it with `localspec config set telemetry text`"
        )
    lines = (json.dumps(each) + "\n" for each in chain([first], rounds))
    if wanted.export == "-":
        sys.stdout.writelines(lines)
    else:
        text = "".join(lines)
        _write(str(wanted.export), text, text.partition(":")[0])


def _write(file: str, text: str, mark: str) -> None:
    """Write a file whole or not at all, readable by its owner only; over one that begins with `mark`, and no other."""
    try:
        if holds_other(Path(file), mark):
            raise UsageError(f"{shown(file)} is not of this command: name another file")
        write_atomic(Path(file), text.encode())
    except OSError as error:
        raise UsageError(
            f"{shown(file)} cannot be written ({error.strerror}): choose another place"
        ) from error
    notice(f"wrote {shown(file)}")
