"""Log: one SQLite table of records, to which every reply adds one; its bounds, and its end.

A record is a reply, with its text where that is recorded, a shift that drift found, or how often rules of gates had a match,
never what. A reply's number is its row's.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from localspec.errors import LocalspecError
from localspec.options.recording import Switch
from localspec.storage import database
from localspec.telemetry.drift import MOST_REPLIES, Rate, find_drift
from localspec.telemetry.reply import GateCount, Pair, Record, ReplyRecord, Shift

FILE = "replies.db"
_EARLIER = ("*telemetry.db*", "*replies.jsonl*")
"""What earlier versions wrote, some of it with text; only removed."""
_STEPS = (
    """
CREATE TABLE record (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL, pair TEXT NOT NULL, workload TEXT NOT NULL, body BLOB NOT NULL, text BLOB
) STRICT;

CREATE INDEX record_by_time ON record(at);

CREATE INDEX record_by_pair ON record(pair, workload);
""",
)
_DAY_S = 86400.0
_BEHIND_ALL = 1 << 62
_PRIOR_REPLIES = 170
"""An answer waits for them, and a policy counts 300 tokens a bucket at most."""
_HALF_LIFE_S = 30 * _DAY_S


class Records(NamedTuple):
    """Replies by number, oldest first, changes of acceptance, the numbers of replies with text, and what gates matched."""

    replies: dict[int, ReplyRecord]
    shifts: list[Shift]
    texts: set[int]
    findings: list[GateCount]


def size_bytes(directory: Path) -> int:
    """Return the bytes that all files take."""
    with suppress(OSError):
        return sum(path.stat().st_size for path in directory.iterdir())
    return 0


def read_records(directory: Path, since_s: float | None = None) -> Records:
    """Return what was recorded since a moment, or all of it, as users have tagged it.

    Raises:
        LocalspecError: the file cannot be read.
    """
    replies, shifts, texts, findings = records = Records({}, [], set(), [])
    select, values = "SELECT id, body, text IS NOT NULL FROM record", list[float]()
    if since_s is not None:
        select, values = f"{select} WHERE at >= ?", [since_s]
    if (directory / FILE).exists():
        with _opened(directory) as connection:
            for record, text in _read(connection, select, *values):
                match record:
                    case ReplyRecord():
                        replies[record.id] = record
                        if text:
                            texts.add(record.id)
                    case Shift():
                        shifts.append(record)
                    case GateCount():
                        findings.append(record)
    return records


def last_replies(directory: Path, most: int) -> list[ReplyRecord]:
    """Return the last replies, the latest first.

    Raises:
        LocalspecError: the file cannot be read.
    """
    replies, below = list[ReplyRecord](), _BEHIND_ALL
    latest = (
        "SELECT id, body, NULL FROM record WHERE id IN"
        " (SELECT id FROM record WHERE id < ? ORDER BY id DESC LIMIT ?)"
    )
    if not (directory / FILE).exists():
        return replies
    with _opened(directory) as connection:
        while len(replies) < most:
            # What gates matched, and shifts, stand among them.
            ids = (
                "SELECT min(id) FROM (SELECT id FROM record WHERE id < ? ORDER BY id DESC LIMIT ?)"
            )
            found = [each for each, _ in _read(connection, latest, below, most)]
            replies += [each for each in reversed(found) if isinstance(each, ReplyRecord)]
            (lowest,) = connection.execute(ids, (below, most)).fetchone()
            if lowest is None:
                break
            below = lowest
    return replies[:most]


def is_empty(directory: Path) -> bool:
    """Return whether nothing is recorded.

    Raises:
        LocalspecError: the file cannot be read.
    """
    if not (directory / FILE).exists():
        return True
    with _opened(directory) as connection:
        return connection.execute("SELECT 1 FROM record WHERE pair > '' LIMIT 1").fetchone() is None


def read_texts(directory: Path, since_s: float) -> Iterator[tuple[ReplyRecord, bytes]]:
    """Yield the replies with text that began since a moment, and their texts.

    Raises:
        LocalspecError: the file cannot be read.
    """
    if (directory / FILE).exists():
        with _opened(directory) as connection:
            select = "SELECT id, body, text FROM record WHERE text IS NOT NULL AND at >= ?"
            for record, text in _read(connection, select, since_s):
                if isinstance(record, ReplyRecord):
                    yield record, text


def store(
    directory: Path,
    reply: ReplyRecord | None,
    text: bytes | None,
    findings: Mapping[tuple[str, str], int],
    switch: Switch,
    now_s: float,
) -> None:
    """Write a reply that has ended.

    Args:
        directory: of the records; made where it is missing.
        reply: the record; None writes findings alone.
        text: what was said, as JSON; None where that is not recorded.
        findings: how often gates had a match, by the names of the rule and of what was done.
        switch: the bounds.
        now_s: seconds since 1970.

    Raises:
        LocalspecError: it cannot be written.
    """
    with _opened(directory, changes=True) as connection:
        if reply is not None:
            _add(connection, reply, text)
            for shift in _shifts(connection, reply):
                _add(connection, shift)
        for (rule, action), times in sorted(findings.items()):
            _add(connection, GateCount(now_s, rule, action, times))
        _keep_within_bounds(connection, switch, now_s)


def retag(directory: Path, number: int, workload: str) -> bool:
    """Take a reply for another kind of text; False where there is none of that number.

    Raises:
        LocalspecError: the file cannot be read or written.
    """
    with _opened(directory, changes=True) as connection:
        select = "SELECT id, body, NULL FROM record WHERE id = ?"
        for record, _ in _read(connection, select, number):
            if isinstance(record, ReplyRecord):
                record.workload, record.by_user = workload, True
                change = "UPDATE record SET workload = ?, body = ? WHERE id = ?"
                connection.execute(change, (workload, msgspec.json.encode(record), number))
                return True
    return False


def wipe(directory: Path, *, only_text: bool = False) -> bool:
    """Overwrite what was recorded, or only what of it is text; return whether there was anything.

    Raises:
        LocalspecError: it cannot be removed.
    """
    path, gone = directory / FILE, False
    advice = "check its permissions, and close the programs that use it"
    with database.errors_as(
        lambda error: LocalspecError(
            f"{path} cannot be wiped ({database.reason_of(error, path)}): {advice}"
        )
    ):
        for each in [each for names in _EARLIER for each in directory.glob(names)]:
            gone |= database.remove(each)
        if not only_text:
            return database.wipe(path, _STEPS) or gone
        if path.exists():
            change = "UPDATE record SET text = NULL WHERE text IS NOT NULL"
            gone |= database.shrink(path, _STEPS, change) > 0
    return gone


def read_prior(
    directory: Path, pair: Pair, workload: str, *, greedy: bool, now_s: float
) -> dict[str, Mapping[int, tuple[float, float]]]:
    """Return by drafter, and by bucket of the gap, see `GAPS`, the share that was accepted, and of how many tokens.

    What is long ago counts as fewer tokens, what was before a shift not at all. Nothing is returned where nothing is known,
    or it cannot be read.

    Args:
        directory: of the records.
        pair: what answers.
        workload: kind of text.
        greedy: whether the temperature is 0.
        now_s: seconds since 1970.
    """
    if not (directory / FILE).exists():
        return {}
    try:
        with _opened(directory) as connection:
            replies, since_s = _latest(connection, pair.name, workload, _PRIOR_REPLIES)
    except LocalspecError:
        return {}
    sums: dict[str, dict[int, tuple[float, float]]] = {}
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
def _opened(directory: Path, *, changes: bool = False) -> Iterator[sqlite3.Connection]:
    """Open the file; what is changed within is changed all or nothing. What only reads it needs no right to write, nor room."""
    path = directory / FILE

    def unusable(error: Exception) -> LocalspecError:
        advice = database.remedy(error, path, "`localspec stats --wipe` starts afresh")
        return LocalspecError(
            f"{path} cannot be used ({database.reason_of(error, path)}): {advice}"
        )

    with database.errors_as(unusable), _connected(path, changes=changes) as connection:
        with database.transaction(connection, "IMMEDIATE" if changes else "DEFERRED"):
            yield connection
        if changes:
            database.empty_log(connection)  # which may hold text that is gone


def _connected(path: Path, *, changes: bool) -> closing[sqlite3.Connection]:
    if changes:
        return closing(database.open_database(path, _STEPS))
    connection, _ = database.open_to_read(path, _STEPS)
    return closing(connection)


def _add(connection: sqlite3.Connection, record: Record, text: bytes | None = None) -> None:
    pair, workload = "", ""
    if not isinstance(record, GateCount):
        pair = record.pair if isinstance(record, Shift) else record.pair.name
        workload = record.workload
    row = (record.at, pair, workload, msgspec.json.encode(record), text)
    insert = "INSERT INTO record(at, pair, workload, body, text) VALUES (?, ?, ?, ?, ?)"
    connection.execute(insert, row)


def _decoder() -> Callable[[bytes], Record]:
    """Return what decodes records; `msgspec.json.decode` would look at all the types again for each."""
    return msgspec.json.Decoder[Record](Record).decode


def _read(
    connection: sqlite3.Connection, select: str, *values: object
) -> Iterator[tuple[Record, bytes]]:
    """Yield records with their texts, in the order of their numbers; what another program has written is left out."""
    decode = _decoder()
    for number, body, text in connection.execute(f"{select} ORDER BY id", values):
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            record = decode(body)
            if isinstance(record, ReplyRecord):
                record.id = number
            yield record, text


def _latest(
    connection: sqlite3.Connection, pair: str, workload: str, most: int
) -> tuple[list[ReplyRecord], dict[str, float]]:
    """Return the last replies of a pair on a kind of text, oldest first, and since when a drafter is accepted as it is."""
    latest = (
        "SELECT id, body, NULL FROM record WHERE id IN"
        " (SELECT id FROM record WHERE pair = ? AND workload = ? ORDER BY id DESC LIMIT ?)"
    )
    records = [record for record, _ in _read(connection, latest, pair, workload, most)]
    since_s = {each.drafter: each.since_s for each in records if isinstance(each, Shift)}
    return [each for each in records if isinstance(each, ReplyRecord)], since_s


def _shifts(connection: sqlite3.Connection, reply: ReplyRecord) -> Sequence[Shift]:
    """Return what the last reply shows of its drafters."""
    replies, since_s = _latest(connection, reply.pair.name, reply.workload, MOST_REPLIES)
    shifts = []
    for drafter in reply.tallies:
        since = since_s.get(drafter, 0.0)
        rates = [Rate(each.at, *each.judged(drafter)) for each in replies if each.at >= since]
        if (drift := find_drift(rates)) is not None:
            shifts.append(Shift(reply.at, reply.pair.name, reply.workload, drafter, *drift))
    return shifts


def _keep_within_bounds(connection: sqlite3.Connection, switch: Switch, now_s: float) -> None:
    """Remove what is too old, and the oldest eighth where it is too much."""
    connection.execute("DELETE FROM record WHERE at < ?", (now_s - switch.days * _DAY_S,))
    oldest = "DELETE FROM record WHERE id IN (SELECT id FROM record ORDER BY id LIMIT 1 + (SELECT count(*) / 8 FROM record))"
    while database.used_bytes(connection) > switch.megabytes << 20:
        if not connection.execute(oldest).rowcount:
            break
