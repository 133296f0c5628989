"""Storing: the record of a reply goes into the log, and what it says of drift beside it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from localspec.storage.files import private_directory, read_bounded, write_atomic
from localspec.storage.locks import locked
from localspec.telemetry.drift import Drift
from localspec.telemetry.log import (
    DAMAGED,
    STATE,
    Shift,
    append,
    keep_within_bounds,
    read_records,
)
from localspec.telemetry.reply import ReplyRecord
from localspec.telemetry.switch import Switch
from localspec.telemetry.text import Said

_MOST_BYTES = 16 << 20
_MOST_DRIFTS = 48
"""Drafters on kinds of text that are followed: the latest. A state takes some 2 kB."""


def store(
    directory: Path, reply: ReplyRecord, said: Said | None, switch: Switch, now_s: float
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
            lines.append(("text", {"at": reply.at, "id": reply.id, **asdict(said)}))
        lines += [("shift", shift._asdict()) for shift in _shifts(reply, drifts)]
        latest = dict(list(drifts.items())[-_MOST_DRIFTS:])
        state = {"replies": reply.id, "drifts": latest}
        write_atomic(path, json.dumps(state).encode())  # first: no number is given twice
        append(directory, *lines)
        keep_within_bounds(directory, switch.megabytes, switch.days, now_s)


def _read_state(path: Path) -> tuple[int | None, dict[str, Any]]:
    """Return the last reply's number, and the states of drift; nothing where they cannot be read."""
    try:
        state = json.loads(read_bounded(path, _MOST_BYTES))
        return int(state["replies"]), dict(state["drifts"])
    except (OSError, *DAMAGED):
        return None, {}


def _shifts(reply: ReplyRecord, drifts: dict[str, Any]) -> list[Shift]:
    """Let drift see a reply; return what it found. The states that it used are the last ones then."""
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
