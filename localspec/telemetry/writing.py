"""Writing: stretches of replies go into the database, with their sums and what they say of drift.

What is written a second time changes nothing: a spool may be taken in twice, where a process was killed in between.
"""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import suppress

from localspec.telemetry.drift import Drift
from localspec.telemetry.kinds import CHAT
from localspec.telemetry.notes import packed
from localspec.telemetry.pair import Pair
from localspec.telemetry.rows import RoundRow
from localspec.telemetry.stretch import Ended, Head, Stretch
from localspec.telemetry.totals import Place, totals_of
from localspec.telemetry.totals import write as write_totals


def write_stretches(connection: sqlite3.Connection, stretches: Sequence[Stretch]) -> None:
    """Write what is new of replies; of one reply in its order."""
    # The last word counts: a kind of text is guessed anew once all of it is there.
    kinds = {each.head.key: each.workload for each in stretches if each.workload is not None}
    pairs: dict[Pair, int] = {}
    replies: dict[int, int] = {}
    rows: dict[int, list[RoundRow]] = {}
    for each in stretches:
        key = each.head.key
        if each.pair not in pairs:
            pairs[each.pair] = pair_id(connection, each.pair)
        if key not in replies:
            replies[key] = _reply_id(connection, pairs[each.pair], each.head, kinds.get(key))
        rows.setdefault(replies[key], []).extend(each.rows(replies[key]))
        _write_text(connection, pairs[each.pair], replies[key], each)
    marks = ", ".join("?" * len(RoundRow._fields))
    for reply, its in rows.items():
        connection.executemany(f"INSERT OR REPLACE INTO round VALUES ({marks})", its)  # noqa: S608
        settle(connection, reply, its)
    for each in stretches:
        if each.ended is not None:
            _write_end(connection, replies[each.head.key], each.ended)


def pair_id(connection: sqlite3.Connection, pair: Pair) -> int:
    """Return a pair's number, a new one where it was never met."""
    names = (pair.target, pair.draft_model, pair.at_once)
    plain_us = None if pair.plain_s is None else round(1e6 * pair.plain_s)
    query = "SELECT id, plain_us FROM pair WHERE (target, draft_model, at_once) = (?, ?, ?)"
    found = connection.execute(query, names).fetchone()
    if found is not None and plain_us in {None, found[1]}:
        return int(found[0])
    connection.execute(
        "INSERT INTO pair(target, draft_model, at_once, plain_us) VALUES (?, ?, ?, ?) "
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


def settle(connection: sqlite3.Connection, reply: int, written: Sequence[RoundRow] = ()) -> None:
    """Add up what of a reply is not in the sums yet, and let drift see it.

    Args:
        connection: to the database.
        reply: its number.
        written: its last rounds, as far as the caller has them; the others are read.
    """
    found = connection.execute(
        "SELECT started_s, pair, workload, greedy, settled FROM reply WHERE id = ?", (reply,)
    ).fetchone()
    if found is None:
        return
    started_s, pair, workload, greedy, settled = found
    rows = written
    if not written or written[0].n != settled + 1:
        rows = _rows(connection, reply, settled)
    if not rows:
        return
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


def _rows(connection: sqlite3.Connection, reply: int, after: int) -> list[RoundRow]:
    found = connection.execute(
        "SELECT * FROM round WHERE reply = ? AND n > ? ORDER BY n", (reply, after)
    )
    return [RoundRow(*row) for row in found]


def _reply_id(connection: sqlite3.Connection, pair: int, head: Head, kind: str | None) -> int:
    """Return the number of a reply, a new one where it was never met; it is of this kind, where that is known."""
    found = connection.execute(
        "SELECT id, workload FROM reply WHERE key = ?", (head.key,)
    ).fetchone()
    if found is not None:
        if kind not in {None, found[1]}:
            retag(connection, found[0], kind, by_user=False)
        return int(found[0])
    cursor = connection.execute(
        "INSERT INTO reply(key, started_s, pair, workload, tagged_by, greedy, prompt_tokens) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            head.key,
            head.started_s,
            pair,
            CHAT if kind is None else kind,
            "user" if head.by_user else "guess",
            int(head.greedy),
            head.n_prompt,
        ),
    )
    assert cursor.lastrowid is not None  # noqa: S101 - an INSERT has a row
    return cursor.lastrowid


def _write_text(connection: sqlite3.Connection, pair: int, reply: int, stretch: Stretch) -> None:
    if stretch.prompt:
        connection.execute(
            "INSERT OR REPLACE INTO prompt VALUES (?, ?)", (reply, packed(stretch.prompt))
        )
    if stretch.said:
        connection.executemany(
            "INSERT OR REPLACE INTO said VALUES (?, ?, ?, ?, ?)",
            [
                (reply, each.n, packed(each.draft), packed(each.confirmed), each.next_token)
                for each in stretch.said
            ],
        )
    if stretch.pieces:
        connection.executemany(
            "INSERT OR IGNORE INTO piece VALUES (?, ?, ?)",
            [(pair, token, bytes.fromhex(piece)) for token, piece in stretch.pieces],
        )


def _write_end(connection: sqlite3.Connection, reply: int, ended: Ended) -> None:
    spent_us = (round(1e6 * each) for each in ended[1:])
    connection.execute(
        "UPDATE reply SET tokens = ?, prefill_us = ?, decode_us = ?, wall_us = ?, ended = 1 WHERE id = ?",
        (ended.tokens, *spent_us, reply),
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
