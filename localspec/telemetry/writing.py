"""Writing: notes of replies go into the database, in one transaction with their sums and what they say of drift."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import suppress

from localspec.telemetry.drift import Drift
from localspec.telemetry.notes import Ended, ReplyNotes, packed
from localspec.telemetry.pair import Pair
from localspec.telemetry.rows import RoundRow
from localspec.telemetry.totals import Place, totals_of
from localspec.telemetry.totals import write as write_totals

_SETTLED_AT_ONCE = 50
"""Rounds of a reply that are added up together: to be on the disk is urgent, to be in the sums is not."""


def write_notes(
    connection: sqlite3.Connection, pair: Pair, notes: Sequence[ReplyNotes]
) -> list[int]:
    """Write what is new of replies; return the id of each."""
    number = pair_id(connection, pair)
    return [_write_reply(connection, number, each) for each in notes]


def pair_id(connection: sqlite3.Connection, pair: Pair) -> int:
    """Return a pair's number, a new one where it was never met."""
    names = (pair.target, pair.draft_model)
    plain_us = None if pair.plain_s is None else round(1e6 * pair.plain_s)
    query = "SELECT id, plain_us FROM pair WHERE target = ? AND draft_model = ?"
    found = connection.execute(query, names).fetchone()
    if found is not None and plain_us in {None, found[1]}:
        return int(found[0])
    connection.execute(
        "INSERT INTO pair(target, draft_model, plain_us) VALUES (?, ?, ?) "
        "ON CONFLICT DO UPDATE SET plain_us = excluded.plain_us",
        (*names, plain_us),
    )
    return int(connection.execute(query, names).fetchone()[0])


def retag(connection: sqlite3.Connection, reply: int, workload: str, *, by_user: bool) -> bool:
    """Take a reply for another kind of text, its sums included; False where its rounds are gone, or the user knows better."""
    settle(connection, reply)
    found = connection.execute(
        "SELECT started_s, pair, workload, greedy, rounds, tagged_by FROM reply WHERE id = ?",
        (reply,),
    ).fetchone()
    if found is None or (found[5] == "user" and not by_user):
        return False
    started_s, pair, before, greedy, n_rounds, _ = found
    rows = _rows(connection, reply, 0)
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


def settle(connection: sqlite3.Connection, reply: int) -> None:
    """Add up what of a reply is not in the sums yet, and let drift see it."""
    found = connection.execute(
        "SELECT started_s, pair, workload, greedy, settled FROM reply WHERE id = ?", (reply,)
    ).fetchone()
    rows = [] if found is None else _rows(connection, reply, found[4])
    if not rows:
        return
    started_s, pair, workload, greedy, _ = found
    place = Place(int(started_s // 3600), pair, workload, greedy)
    write_totals(connection, place, totals_of(rows))
    connection.execute(
        "UPDATE reply SET settled = ?, rounds = rounds + ?, drafted = drafted + ?, accepted = accepted + ?, "
        "tokens = tokens + ? WHERE id = ?",
        (
            rows[-1].n,
            len(rows),
            sum(row.drafted for row in rows),
            sum(row.accepted for row in rows),
            sum(row.confirmed for row in rows),
            reply,
        ),
    )
    _watch_drift(connection, place, rows, started_s)


def settle_all(connection: sqlite3.Connection) -> None:
    """Add up what processes that were killed have left; what lives on, counts on from there."""
    for (reply,) in connection.execute("SELECT id FROM reply WHERE NOT ended").fetchall():
        settle(connection, reply)


def _write_reply(connection: sqlite3.Connection, pair: int, notes: ReplyNotes) -> int:
    assert notes.workload is not None  # noqa: S101 - it has notes, so it was tagged
    # Whatever fails here is tried again: notes change only once all of it is written.
    final = notes.final_workload()
    workload = final if notes.id is None else notes.workload
    reply = _reply_id(connection, pair, notes, workload)
    rows = [row._replace(reply=reply) for row in notes.rows]
    marks = ", ".join("?" * len(RoundRow._fields))
    connection.executemany(f"INSERT OR REPLACE INTO round VALUES ({marks})", rows)  # noqa: S608
    _write_text(connection, pair, reply, notes)
    notes.unsettled_next = notes.unsettled + len(rows)
    if notes.ended is not None or notes.unsettled_next >= _SETTLED_AT_ONCE:
        notes.unsettled_next = 0
        settle(connection, reply)
    if notes.ended is not None:
        _write_end(connection, reply, notes.ended, notes.tokens)
    if final != workload:
        retag(connection, reply, final, by_user=False)
    return reply


def _rows(connection: sqlite3.Connection, reply: int, after: int) -> list[RoundRow]:
    found = connection.execute(
        "SELECT * FROM round WHERE reply = ? AND n > ? ORDER BY n", (reply, after)
    )
    return [RoundRow(*row) for row in found]


def _reply_id(connection: sqlite3.Connection, pair: int, notes: ReplyNotes, workload: str) -> int:
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
            workload,
            "user" if notes.by_user else "guess",
            int(notes.greedy),
            notes.n_prompt,
        ),
    )
    assert cursor.lastrowid is not None  # noqa: S101 - an INSERT has a row
    return cursor.lastrowid


def _write_end(connection: sqlite3.Connection, reply: int, ended: Ended, tokens: int) -> None:
    spent_us = (round(1e6 * each) for each in (ended.prefill_s, ended.decode_s, ended.wall_s))
    connection.execute(
        "UPDATE reply SET tokens = ?, prefill_us = ?, decode_us = ?, wall_us = ?, ended = 1 WHERE id = ?",
        (tokens, *spent_us, reply),
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
    connection: sqlite3.Connection, place: Place, rows: Sequence[RoundRow], started_s: float
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
            change = drift.add(row.reply, started_s, row.judged, row.accepted)
            if change is not None:
                connection.execute(
                    "INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (started_s, change.since_s, *key, change.rounds, change.before, change.after),
                )
        state = json.dumps(drift.to_json(), separators=(",", ":"))
        connection.execute("INSERT OR REPLACE INTO drift VALUES (?, ?, ?, ?)", (*key, state))
