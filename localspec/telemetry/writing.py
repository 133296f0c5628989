"""Writing: notes of replies go into the database, in one transaction with their sums and what they say of drift."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import suppress

from localspec.telemetry.drift import Drift
from localspec.telemetry.notes import ReplyNotes, packed
from localspec.telemetry.pair import Pair
from localspec.telemetry.rows import RoundRow
from localspec.telemetry.totals import Place, totals_of
from localspec.telemetry.totals import write as write_totals


def write_notes(
    connection: sqlite3.Connection, pair: Pair, notes: Sequence[ReplyNotes], now_s: float
) -> list[int]:
    """Write what is new of replies; return the id of each."""
    number = pair_id(connection, pair)
    return [_write_reply(connection, number, each, now_s) for each in notes]


def pair_id(connection: sqlite3.Connection, pair: Pair) -> int:
    """Return a pair's number, a new one where it was never met."""
    names = (pair.target, pair.draft_model)
    connection.execute("INSERT OR IGNORE INTO pair(target, draft_model) VALUES (?, ?)", names)
    if pair.plain_s is not None:
        connection.execute(
            "UPDATE pair SET plain_us = ? WHERE target = ? AND draft_model = ? AND plain_us IS NOT ?",
            (plain_us := round(1e6 * pair.plain_s), *names, plain_us),
        )
    (number,) = connection.execute(
        "SELECT id FROM pair WHERE target = ? AND draft_model = ?", names
    ).fetchone()
    return int(number)


def retag(connection: sqlite3.Connection, reply: int, workload: str, *, by_user: bool) -> bool:
    """Take a reply for another kind of text, its sums included; False where its rounds are not there any more."""
    found = connection.execute(
        "SELECT started_s, pair, workload, greedy, rounds FROM reply WHERE id = ?", (reply,)
    ).fetchone()
    if found is None:
        return False
    started_s, pair, before, greedy, n_rounds = found
    rows = [
        RoundRow(*row)
        for row in connection.execute("SELECT * FROM round WHERE reply = ? ORDER BY n", (reply,))
    ]
    if len(rows) != n_rounds:
        return False
    connection.execute(
        "UPDATE reply SET workload = ?, tagged_by = ? WHERE id = ?",
        (workload, "user" if by_user else "guess", reply),
    )
    if workload != before:
        totals = totals_of(rows)
        place = Place(int(started_s // 3600), pair, before, greedy)
        write_totals(connection, place, totals, sign=-1)
        write_totals(connection, place._replace(workload=workload), totals)
    return True


def _write_reply(connection: sqlite3.Connection, pair: int, notes: ReplyNotes, now_s: float) -> int:
    assert notes.workload is not None  # noqa: S101 - it has notes, so it was tagged
    final = notes.final_workload()
    if notes.id is None:
        notes.workload = final
    reply = _reply_id(connection, pair, notes)
    rows = [row._replace(reply=reply) for row in notes.rows]
    _write_rows(connection, rows)
    place = Place(int(notes.started_s // 3600), pair, notes.workload, int(notes.greedy))
    write_totals(connection, place, totals_of(rows))
    _write_sums(connection, reply, notes, rows)
    _write_text(connection, pair, reply, notes)
    _watch_drift(connection, place, rows, now_s)
    if final != notes.workload and retag(connection, reply, final, by_user=False):
        notes.workload = final
    return reply


def _reply_id(connection: sqlite3.Connection, pair: int, notes: ReplyNotes) -> int:
    # Written again where somebody wiped the database in the meantime.
    known = (
        notes.id is not None
        and connection.execute("SELECT 1 FROM reply WHERE id = ?", (notes.id,)).fetchone()
    )
    if notes.id is not None and known:
        return notes.id
    cursor = connection.execute(
        "INSERT INTO reply(started_s, pair, workload, tagged_by, greedy, prompt_tokens) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (
            notes.started_s,
            pair,
            notes.workload,
            "user" if notes.by_user else "guess",
            int(notes.greedy),
            notes.n_prompt,
        ),
    )
    assert cursor.lastrowid is not None  # noqa: S101 - an INSERT has a row
    return cursor.lastrowid


def _write_rows(connection: sqlite3.Connection, rows: Sequence[RoundRow]) -> None:
    marks = ", ".join("?" * len(RoundRow._fields))
    connection.executemany(f"INSERT OR REPLACE INTO round VALUES ({marks})", rows)  # noqa: S608


def _write_sums(
    connection: sqlite3.Connection, reply: int, notes: ReplyNotes, rows: Sequence[RoundRow]
) -> None:
    ended = notes.ended
    connection.execute(
        "UPDATE reply SET tokens = ?, rounds = rounds + ?, drafted = drafted + ?, accepted = accepted + ?, "
        "prefill_us = ?, decode_us = ?, wall_us = ?, ended = ? WHERE id = ?",
        (
            notes.tokens,
            len(rows),
            sum(row.drafted for row in rows),
            sum(row.accepted for row in rows),
            0 if ended is None else round(1e6 * ended.prefill_s),
            0 if ended is None else round(1e6 * ended.decode_s),
            0 if ended is None else round(1e6 * ended.wall_s),
            int(ended is not None),
            reply,
        ),
    )


def _write_text(connection: sqlite3.Connection, pair: int, reply: int, notes: ReplyNotes) -> None:
    if notes.prompt:
        connection.execute(
            "INSERT OR REPLACE INTO prompt VALUES (?, ?)", (reply, packed(notes.prompt))
        )
    connection.executemany(
        "INSERT OR REPLACE INTO said VALUES (?, ?, ?, ?, ?)",
        [
            (reply, each.n, packed(each.draft), packed(each.confirmed), each.next_token)
            for each in notes.said
        ],
    )
    connection.executemany(
        "INSERT OR IGNORE INTO piece VALUES (?, ?, ?)",
        [(pair, token, piece) for token, piece in notes.pieces.items()],
    )


def _watch_drift(
    connection: sqlite3.Connection, place: Place, rows: Sequence[RoundRow], now_s: float
) -> None:
    for drafter in dict.fromkeys(row.drafter for row in rows if row.drafted):
        key = (place.pair, place.workload, drafter)
        found = connection.execute(
            "SELECT state FROM drift WHERE (pair, workload, drafter) = (?, ?, ?)", key
        ).fetchone()
        drift = Drift()
        if found is not None:
            with suppress(ValueError, TypeError, KeyError, IndexError):
                drift = Drift.from_json(json.loads(found[0]))
        for row in rows:
            if row.drafter != drafter:
                continue
            change = drift.add(row.reply, now_s, row.judged, row.accepted)
            if change is not None:
                connection.execute(
                    "INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (now_s, change.since_s, *key, change.rounds, change.before, change.after),
                )
        state = json.dumps(drift.to_json(), separators=(",", ":"))
        connection.execute("INSERT OR REPLACE INTO drift VALUES (?, ?, ?, ?)", (*key, state))
