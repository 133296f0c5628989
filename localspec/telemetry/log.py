"""Log: one SQLite table of records, to which every reply adds one; its bounds, and its end.

A record is a reply, with its text where that is recorded, a shift that drift found, or how often rules of gates found
something, never what. A reply's number is its row's.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from localspec.errors import LocalspecError
from localspec.telemetry.reply import GateCount, Pair, Record, ReplyRecord, Shift
from localspec.telemetry.switch import Switch

if TYPE_CHECKING:
    import sqlite3

FILE = "replies.db"
LINES = "replies.jsonl"
"""What versions until 24 November 2026 wrote: it becomes part of the file, and is removed."""
_STEPS = (
    """
CREATE TABLE record (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    pair TEXT NOT NULL,
    workload TEXT NOT NULL,
    body BLOB NOT NULL,
    text BLOB
) STRICT;
CREATE INDEX record_by_time ON record(at);
CREATE INDEX record_by_pair ON record(pair, workload);
""",
)
_ADD = "INSERT OR IGNORE INTO record(id, at, pair, workload, body, text) VALUES (?, ?, ?, ?, ?, ?)"
_LATEST = "SELECT * FROM record WHERE pair = ? AND workload = ? ORDER BY id DESC LIMIT ?"
_OLDEST = "DELETE FROM record WHERE id IN (SELECT id FROM record ORDER BY id LIMIT 1 + (SELECT count(*) / 8 FROM record))"
_DAY_S = 86400.0
_PRIOR_REPLIES = 170
"""An answer waits for them, and a policy counts 300 tokens a bucket at most."""
_HALF_LIFE_S = 30 * _DAY_S


class Records(NamedTuple):
    """Replies by number, oldest first, changes of acceptance, the numbers of replies with text, and what gates found."""

    replies: dict[int, ReplyRecord]
    shifts: list[Shift]
    texts: set[int]
    found: list[GateCount]


def size_bytes(directory: Path) -> int:
    """Return the bytes that all files take."""
    with suppress(OSError):
        return sum(path.stat().st_size for path in directory.iterdir())
    return 0


def read_records(directory: Path) -> Records:
    """Return what was recorded, as users have tagged it.

    Raises:
        LocalspecError: the file cannot be read.
    """
    replies, shifts, texts, found = records = Records({}, [], set(), [])
    if not (directory / FILE).exists() and not (directory / LINES).exists():
        return records
    with _opened(directory) as connection:
        rows = connection.execute(
            "SELECT id, body, text IS NOT NULL AS said FROM record ORDER BY id"
        )
        for row in rows:
            match _decoded(row["body"]):
                case ReplyRecord() as reply:
                    replies[row["id"]] = reply
                    reply.id = row["id"]
                    if row["said"]:
                        texts.add(row["id"])
                case Shift() as shift:
                    shifts.append(shift)
                case GateCount() as count:
                    found.append(count)
    return records


def read_texts(directory: Path, since_s: float) -> Iterator[tuple[ReplyRecord, bytes]]:
    """Yield the replies with text that began since a moment, and their texts.

    Raises:
        LocalspecError: the file cannot be read.
    """
    if (directory / FILE).exists() or (directory / LINES).exists():
        with _opened(directory) as connection:
            rows = (
                "SELECT id, body, text FROM record WHERE text IS NOT NULL AND at >= ? ORDER BY id"
            )
            for row in connection.execute(rows, (since_s,)):
                if isinstance(reply := _decoded(row["body"]), ReplyRecord):
                    reply.id = row["id"]
                    yield reply, row["text"]


def store(
    directory: Path, reply: ReplyRecord, text: bytes | None, switch: Switch, now_s: float
) -> None:
    """Write a reply that has ended.

    Args:
        directory: of the records; made where it is missing.
        reply: the record.
        text: what was said, as JSON; None where that is not recorded.
        switch: the bounds.
        now_s: seconds since 1970.

    Raises:
        LocalspecError: it cannot be written.
    """
    with _opened(directory, changes=True) as connection:
        _add(connection, reply, text=text)
        for shift in _shifts(connection, reply):
            _add(connection, shift)
        _keep_within_bounds(connection, switch, now_s)


def add_findings(
    directory: Path, counts: Mapping[tuple[str, str], int], switch: Switch, now_s: float
) -> None:
    """Write how often rules of gates found something.

    Args:
        directory: of the records; made where it is missing.
        counts: by the names of the rule and of what was done.
        switch: the bounds.
        now_s: seconds since 1970.

    Raises:
        LocalspecError: it cannot be written.
    """
    with _opened(directory, changes=True) as connection:
        for (rule, action), times in sorted(counts.items()):
            _add(connection, GateCount(now_s, rule, action, times))
        _keep_within_bounds(connection, switch, now_s)


def retag(directory: Path, number: int, workload: str) -> bool:
    """Take a reply for another kind of text; False where there is none of that number.

    Raises:
        LocalspecError: the file cannot be read or written.
    """
    reply = read_records(directory).replies.get(number)
    if reply is None:
        return False
    reply.workload, reply.by_user = workload, True
    change = "UPDATE record SET workload = ?, body = ? WHERE id = ?"
    with _opened(directory, changes=True) as connection:
        connection.execute(change, (workload, msgspec.json.encode(reply), number))
    return True


def wipe(directory: Path, *, only_text: bool = False) -> bool:
    """Remove what was recorded, or only what of it is text; say whether there was anything.

    Raises:
        LocalspecError: it cannot be removed.
    """
    try:
        paths = [path for path in directory.iterdir() if only_text or path.is_file()]
        if not only_text:
            for path in paths:
                path.unlink()
        elif paths:
            earlier = list(directory.glob("telemetry.db*"))  # of a version that kept text there
            for path in earlier:
                path.unlink()
            with _opened(directory, changes=True) as connection:
                gone = connection.execute("UPDATE record SET text = NULL WHERE text IS NOT NULL")
                return gone.rowcount > 0 or bool(earlier)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _trouble(directory, error) from error
    return bool(paths)


def read_prior(
    directory: Path, pair: Pair, workload: str, *, greedy: bool, now_s: float
) -> dict[str, Mapping[int, tuple[float, float]]]:
    """Return by drafter, and by bucket of the gap, see `GAPS`, the share that was accepted, and how many tokens say so.

    What is long ago counts as fewer tokens, what was before a shift not at all. Nothing is returned where nothing is known,
    or it cannot be read.

    Args:
        directory: of the records.
        pair: what answers.
        workload: kind of text.
        greedy: whether the temperature is 0.
        now_s: seconds since 1970.
    """
    sums: dict[str, dict[int, tuple[float, float]]] = {}
    if not (directory / FILE).exists():
        return {}
    try:
        with _opened(directory) as connection:
            replies, since_s = _latest(connection, pair.name, workload, _PRIOR_REPLIES)
    except LocalspecError:
        return {}
    for reply in replies:
        weight = 0.5 ** (max(0.0, now_s - reply.at) / _HALF_LIFE_S)
        for drafter, kinds in reply.tallies.items():
            if reply.greedy != greedy or reply.at < since_s.get(drafter, 0.0):
                continue
            earned = sums.setdefault(drafter, {})
            for bucket, (tried, accepted) in enumerate(kinds.get("gap", ())):
                before = earned.get(bucket, (0.0, 0.0))
                earned[bucket] = (before[0] + weight * tried, before[1] + weight * accepted)
    return {
        drafter: {at: (hits / tried, tried) for at, (tried, hits) in earned.items() if tried}
        for drafter, earned in sums.items()
    }


@contextmanager
def _opened(directory: Path, *, changes: bool = False) -> Iterator["sqlite3.Connection"]:
    """Open the file; what is changed within is changed all or nothing."""
    import sqlite3  # noqa: PLC0415 - `--help` reads no records

    from localspec.storage import database  # noqa: PLC0415

    try:
        with closing(database.open_database(directory / FILE, _STEPS)) as connection:
            if (directory / LINES).exists():
                with database.transaction(connection):
                    _adopt(connection, directory / LINES)
                for name in (LINES, "drift.json"):
                    (directory / name).unlink(missing_ok=True)
            with database.transaction(connection) if changes else nullcontext():
                yield connection
            if changes:
                database.empty_log(connection)  # which may hold text that is gone
    except (OSError, sqlite3.Error, database.DatabaseTooNewError) as error:
        raise _trouble(directory, error) from error


def _trouble(directory: Path, error: Exception) -> LocalspecError:
    if type(error).__name__ == "DatabaseTooNewError":  # whose module comes with sqlite3
        return LocalspecError(f"{directory / FILE} is of a later localspec: update localspec")
    reason = getattr(error, "strerror", None) or str(error)
    return LocalspecError(
        f"{directory / FILE} cannot be used ({reason}): check its permissions; `localspec stats --wipe` starts afresh"
    )


def _add(
    connection: "sqlite3.Connection",
    record: Record,
    number: int | None = None,
    text: bytes | None = None,
) -> None:
    pair, workload = "", ""
    if isinstance(record, ReplyRecord):
        pair, workload = record.pair.name, record.workload
    elif isinstance(record, Shift):
        pair, workload = record.pair, record.workload
    row = (number, record.at, pair, workload, msgspec.json.encode(record), text)
    connection.execute(_ADD, row)


def _decoded(body: bytes) -> Record | None:
    """Return a record; None where something else has written it."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        record: Record = msgspec.json.decode(body, type=Record)
        return record
    return None


def _latest(
    connection: "sqlite3.Connection", pair: str, workload: str, most: int
) -> tuple[list[ReplyRecord], dict[str, float]]:
    """Return the last replies of a pair on a kind of text, oldest first, and since when a drafter is accepted as it is."""
    rows = connection.execute(_LATEST, (pair, workload, most)).fetchall()
    records = [_decoded(row["body"]) for row in reversed(rows)]
    since_s = {each.drafter: each.since_s for each in records if isinstance(each, Shift)}
    return [each for each in records if isinstance(each, ReplyRecord)], since_s


def _shifts(connection: "sqlite3.Connection", reply: ReplyRecord) -> Iterator[Shift]:
    """Yield what the last reply shows of its drafters."""
    from localspec.telemetry.drift import MOST_REPLIES, Rate, find_drift  # noqa: PLC0415

    replies, since_s = _latest(connection, reply.pair.name, reply.workload, MOST_REPLIES)
    for drafter in reply.tallies:
        rates = [
            Rate(each.at, *each.judged(drafter))
            for each in replies
            if each.at >= since_s.get(drafter, 0.0)
        ]
        if (found := find_drift(rates)) is not None:
            yield Shift(reply.at, reply.pair.name, reply.workload, drafter, *found)


def _keep_within_bounds(connection: "sqlite3.Connection", switch: Switch, now_s: float) -> None:
    """Remove what is too old, and the oldest eighth where it is too much."""
    connection.execute("DELETE FROM record WHERE at < ?", (now_s - switch.days * _DAY_S,))
    pages = "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
    while connection.execute(pages).fetchone()[0] > switch.megabytes << 20:
        if not connection.execute(_OLDEST).rowcount:
            break


def _adopt(connection: "sqlite3.Connection", path: Path) -> None:
    """Take over what an earlier version wrote, a JSON object a line, and remove it; what is torn is left out."""
    lines = (
        path.read_bytes().splitlines() if path.exists() else []
    )  # another process may have done it
    replies = dict[int, ReplyRecord]()
    texts = dict[int, bytes]()
    others = list[Shift | GateCount]()
    for line in lines:
        with suppress(ValueError, TypeError, LookupError, AttributeError, RecursionError):
            values: dict[str, Any] = json.loads(line)
            kind, at = values.pop("kind"), values["at"]
            if kind == "reply":
                number, cells = values.pop("id"), dict[str, dict[int, list[int]]]()
                for drafter, depth, *counts in values["cells"]:
                    cells.setdefault(drafter, {})[depth] = counts
                replies[number] = msgspec.convert(
                    {**values, "cells": cells, "type": "reply"}, ReplyRecord
                )
            elif kind == "text":
                number = values.pop("id")
                texts[number] = json.dumps({**values, "at": at}).encode()
            elif kind == "retag":
                reply = replies[values["id"]]
                reply.workload, reply.by_user = values["workload"], True
            else:
                others.append(msgspec.convert({**values, "type": kind}, Shift | GateCount))
    for number, reply in replies.items():
        _add(connection, reply, number, texts.get(number))
    for each in others:
        _add(connection, each)
