"""Log: one file of JSON lines, to which every reply adds one; its bounds, and its end.

A line is a `reply`, the `text` of one that was recorded with text, a `retag` of one, a `shift` that drift found, or how
often rules of `gates` found something, never what. Whoever
writes holds the directory's lock. What is torn or damaged is left out. Beside it stands what drift remembers.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from localspec.errors import LocalspecError
from localspec.storage.files import (
    private_directory,
    private_opener,
    read_bounded,
    write_atomic,
)
from localspec.storage.locks import locked
from localspec.telemetry.reply import WORKLOADS, ReplyRecord, checked
from localspec.telemetry.switch import Switch

FILE, STATE = "replies.jsonl", "drift.json"
BEFORE = "telemetry.db"
"""What versions until November 2026 wrote; it is not read."""
_HEAD = re.compile(rb'\{"kind": "(\w+)", "at": (\d+(?:\.\d+)?),(?: "id": (\d{1,15}),)?')
_MOST_LINE = 64 << 20
_ENOUGH = 0.85
"""Share of the bound that is left once it was reached."""
_DAY_S = 86400.0
_MOST_STATE_BYTES = 16 << 20
_MOST_DRIFTS = 48
"""Drafters on kinds of text that are followed: the latest. A state takes some 2 kB."""

DAMAGED = (TypeError, ValueError, LookupError, AttributeError, RecursionError)
"""What comes of reading what nobody wrote like this."""


class LogLine(NamedTuple):
    """One line, not parsed yet: its kind, when that was in seconds since 1970, and the reply that a `text` is of."""

    kind: str
    at: float
    id: int
    raw: bytes


class Shift(NamedTuple):
    """A drafter came to be accepted at another rate.

    Args:
        at: when that was found, seconds since 1970.
        pair: the name of what answers.
        workload: kind of text.
        drafter: its name.
        since_s: when it began.
        before: acceptance rate until then.
        after: and since.
    """

    at: float
    pair: str
    workload: str
    drafter: str
    since_s: float
    before: float
    after: float


class GateCount(NamedTuple):
    """How often a rule of a gate found something in the answers of a while, and what was done about it.

    Args:
        at: when that was, seconds since 1970.
        rule: its name.
        action: `mask`, `ask`, `stop` or `note`.
        times: how often.
    """

    at: float
    rule: str
    action: str
    times: int


class Records(NamedTuple):
    """Replies by number, oldest first, changes of acceptance, the numbers of replies with text, and what gates found."""

    replies: dict[int, ReplyRecord]
    shifts: list[Shift]
    texts: set[int]
    found: list[GateCount]


def size_bytes(directory: Path) -> int:
    """Return what all files take."""
    size = 0
    for path in _files(directory):
        with suppress(FileNotFoundError):  # what stood beside another, as that was written anew
            size += path.stat().st_size
    return size


def said_of_before(directory: Path) -> str | None:
    """Return a sentence on what an earlier version has left; None where there is nothing."""
    if not (directory / BEFORE).exists():
        return None
    return (
        f"{directory / BEFORE} was recorded by an earlier localspec and is no longer read: "
        "`localspec stats --wipe` removes it, with all that was recorded since"
    )


def append(directory: Path, *lines: tuple[str, dict[str, Any]]) -> None:
    """Add lines, each a kind and what it says, the moment `at` first; the caller holds the lock.

    Raises:
        OSError: there is no room for them.
    """
    content = [json.dumps({"kind": kind, **values}).encode() + b"\n" for kind, values in lines]
    whole = b"\n" + b"".join(content)  # what is torn before it ends here
    with open(directory / FILE, "ab", buffering=0, opener=private_opener) as stream:
        if stream.write(whole) < len(whole):
            raise OSError(0, "the disk is full")


def read_lines(directory: Path, tail_bytes: int | None = None) -> Iterator[LogLine]:
    """Yield all lines, or those at the file's end.

    Raises:
        LocalspecError: the file cannot be read.
    """
    path = directory / FILE
    try:
        with path.open("rb") as stream:
            if tail_bytes is not None:
                stream.seek(max(0, path.stat().st_size - tail_bytes))
            while raw := stream.readline(_MOST_LINE):
                if head := _HEAD.match(raw):
                    yield LogLine(head[1].decode(), float(head[2]), int(head[3] or 0), raw)
    except FileNotFoundError:
        return
    except OSError as error:
        raise LocalspecError(
            f"{path} cannot be read ({error.strerror}): `localspec stats --wipe` starts afresh"
        ) from error


def parsed(line: LogLine) -> dict[str, Any]:
    """Return what a line says; raises one of `DAMAGED` where it is."""
    values: dict[str, Any] = json.loads(line.raw)
    del values["kind"]
    return values


def read_records(directory: Path, tail_bytes: int | None = None) -> Records:
    """Return what was recorded, as users have tagged it.

    Raises:
        LocalspecError: the file cannot be read.
    """
    replies, shifts, texts, found = records = Records({}, [], set(), [])
    for line in read_lines(directory, tail_bytes):
        with suppress(*DAMAGED):
            if line.kind == "reply":
                reply = ReplyRecord.from_json(parsed(line))
                replies[reply.id] = reply
            elif line.kind == "text":
                texts.add(line.id)
            elif line.kind == "retag":
                values = parsed(line)
                reply = replies[values["id"]]
                reply.workload, reply.by_user = WORKLOADS[WORKLOADS.index(values["workload"])], True
            elif line.kind == "shift":
                shift = Shift(**parsed(line))
                checked(shift[1:4], (), (shift.at, *shift[4:]))
                shifts.append(shift)
            elif line.kind == "gate":
                each = GateCount(**parsed(line))
                checked((each.rule, each.action), (each.times,), (each.at,))
                found.append(each)
    return records


def store(
    directory: Path, reply: ReplyRecord, said: dict[str, Any] | None, switch: Switch, now_s: float
) -> None:
    """Write a reply that has ended.

    Args:
        directory: of the records; made where it is missing.
        reply: gets its number.
        said: what was said; None where that is not recorded.
        switch: the bounds.
        now_s: seconds since 1970.

    Raises:
        OSError: it cannot be written.
    """
    private_directory(directory)
    with locked(directory):
        path = directory / STATE
        last, drifts = _read_state(path)
        if last is None:
            last = max(read_records(directory).replies, default=0)
        reply.id = last + 1
        lines = [("reply", reply.to_json())]
        if said is not None:
            lines.append(("text", {"at": reply.at, "id": reply.id, **said}))
        lines += [("shift", shift._asdict()) for shift in _shifts(reply, drifts)]
        latest = dict(list(drifts.items())[-_MOST_DRIFTS:])
        state = {"replies": reply.id, "drifts": latest}
        write_atomic(path, json.dumps(state).encode())  # first: no number is given twice
        append(directory, *lines)
        keep_within_bounds(directory, switch.megabytes, switch.days, now_s)


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
        OSError: it cannot be written.
    """
    private_directory(directory)
    with locked(directory):
        lines = [
            ("gate", GateCount(now_s, *key, count)._asdict())
            for key, count in sorted(counts.items())
        ]
        append(directory, *lines)
        keep_within_bounds(directory, switch.megabytes, switch.days, now_s)


def _read_state(path: Path) -> tuple[int | None, dict[str, Any]]:
    """Return the last reply's number, and the states of drift; nothing where they cannot be read."""
    try:
        state = json.loads(read_bounded(path, _MOST_STATE_BYTES))
        return int(state["replies"]), dict(state["drifts"])
    except (OSError, *DAMAGED):
        return None, {}


def _shifts(reply: ReplyRecord, drifts: dict[str, Any]) -> list[Shift]:
    """Let drift see a reply; return what it found. The states that it used are the last ones then."""
    from localspec.telemetry.drift import Drift  # noqa: PLC0415 - it brings numpy, which only this needs

    found = []
    for drafter, lots in reply.lots.items():
        key = "\n".join((reply.pair.name, reply.workload, drafter))
        try:
            drift = Drift.from_json(drifts.pop(key))
        except DAMAGED:
            drift = Drift()
        for lot in lots:
            change = drift.add(reply.id, reply.at, *lot)
            if change is not None:
                found.append(Shift(reply.at, reply.pair.name, reply.workload, drafter, *change))
        drifts[key] = drift.to_json()
    return found


def retag(directory: Path, reply: int, workload: str, now_s: float) -> bool:
    """Take a reply for another kind of text; False where there is none of that number.

    Raises:
        LocalspecError: the records cannot be read or written.
    """
    with _changing(directory):
        if reply not in read_records(directory).replies:
            return False
        append(directory, ("retag", {"at": now_s, "id": reply, "workload": workload}))
    return True


def set_bounds(directory: Path, megabytes: int, days: int, now_s: float) -> None:
    """Keep what is there within new bounds, at once; see `keep_within_bounds`.

    Raises:
        LocalspecError: it cannot be written.
    """
    with _changing(directory):
        keep_within_bounds(directory, megabytes, days, now_s, slack_s=0.0)


def keep_within_bounds(
    directory: Path, megabytes: int, days: int, now_s: float, slack_s: float = _DAY_S
) -> None:
    """Remove what is too old, and the oldest where it is too much; the caller holds the lock.

    Args:
        directory: of the log.
        megabytes: most that it takes.
        days: how long lines are kept.
        now_s: seconds since 1970.
        slack_s: how much older they may get, so that not every reply has the file written anew.

    Raises:
        OSError: it cannot be written.
    """
    oldest_s, most = now_s - days * _DAY_S, megabytes << 20
    for path in directory.glob(f"{BEFORE}*"):
        if path.stat().st_mtime < oldest_s:
            path.unlink()
    first = next(read_lines(directory), None)
    if first is None:
        return
    size, passed = (directory / FILE).stat().st_size, 0
    start = size - _ENOUGH * most if size > most else 0

    def keeps(line: LogLine) -> bool:
        nonlocal passed
        passed += len(line.raw)
        return passed > start and line.at >= oldest_s

    if start or first.at < oldest_s - slack_s:
        _keep(directory, keeps)


def wipe(directory: Path, *, only_text: bool = False) -> bool:
    """Remove what was recorded, or only what of it is text; say whether there was anything.

    What earlier versions have left goes in either case, for it may hold text.

    Raises:
        LocalspecError: it cannot be removed.
    """
    with _changing(directory):
        gone = list(directory.glob(f"{BEFORE}*") if only_text else _files(directory))
        for path in gone:
            path.unlink()
        text = any(line.kind == "text" for line in read_lines(directory))
        if text:
            _keep(directory, lambda line: line.kind != "text")
    return text or bool(gone)


def _files(directory: Path) -> Iterator[Path]:
    for name in (BEFORE, FILE, STATE):
        yield from directory.glob(f"*{name}*")  # with what a process that was killed has left


@contextmanager
def _changing(directory: Path) -> Iterator[None]:
    try:
        private_directory(directory)
        with locked(directory):
            yield
    except OSError as error:
        place = error.filename or directory
        raise LocalspecError(
            f"{place} cannot be changed ({error.strerror}): check its permissions"
        ) from error


def _keep(directory: Path, keeps: Callable[[LogLine], bool]) -> None:
    lines = (line.raw for line in read_lines(directory) if keeps(line))
    write_atomic(directory / FILE, lines)
