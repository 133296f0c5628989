"""The log: damaged, kept within its bounds, tagged, wiped; and what an earlier version wrote."""

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from localspec.errors import LocalspecError
from localspec.telemetry.log import FILE, LINES, read_records, retag, size_bytes, wipe
from localspec.telemetry.switch import Switch
from localspec.telemetry.text import proposals
from tests.telemetry.talking import recording
from tests.waiting import PATIENCE_S


def ids(directory: Path) -> list[int]:
    return list(read_records(directory).replies)


def rounds_of(directory: Path, *, with_text: bool) -> list[int]:
    records = read_records(directory)
    return [
        each.sums[0]
        for each in records.replies.values()
        if not with_text or each.id in records.texts
    ]


def change(directory: Path, sql: str, *values: object) -> None:
    """Change the log as another program could."""
    with closing(sqlite3.connect(directory / FILE)) as connection:
        connection.execute(sql, values)
        connection.commit()


@pytest.mark.parametrize(
    "damage",
    [
        {"id": -1},
        {"at": -5.0},
        {"at": "x"},
        {"tokens": 1e9},
        {"workload": []},
        {"wall_s": float("nan")},
        {"cells": {"off": {"0": [1, 2, 3]}}},
        {"cells": {"off": {"-256": [1] * 10}}},
        {"cells": {"off": {"0": [-1] * 10}}},
        {"tallies": {"model": {"gap": [[1]]}}},
        {"tallies": {"model": [1]}},
        {"pair": {"target": 1}},
        {"pair": {"target": "a", "at_once": None}},
        {"pair": {"target": "a", "plain_s": "x"}},
        {"type": "later"},
    ],
)
def test_reply_that_says_what_cannot_be_is_left_out(
    tmp_path: Path, damage: dict[str, object]
) -> None:
    with recording(tmp_path) as talk:
        talk.reply()
        talk.reply()
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        (body,) = connection.execute("SELECT body FROM record WHERE id = 1").fetchone()
    change(
        tmp_path,
        "UPDATE record SET body = ? WHERE id = 1",
        json.dumps({**json.loads(body), **damage}).encode(),
    )
    assert ids(tmp_path) == [2]
    with recording(tmp_path) as talk:
        talk.reply()
    assert ids(tmp_path) == [2, 3]


# As localspec wrote it until 24 November 2026.
LINES_BEFORE = """
{"kind": "reply", "at": 1794000000.0, "pair": {"target": "t", "draft_model": "d", "plain_s": 0.02, "at_once": 1}, \
"greedy": false, "prompt": 5, "workload": "code", "by_user": false, "id": 3, "tokens": 9, "prefill_s": 0.1, \
"decode_s": 1.0, "wall_s": 1.2, "cells": [["off", 0, 30, 0, 0, 30, 0, 0, 100000, 9, 8, 7], \
["model", 256, 5, 9, 4, 9, 1, 2000, 100000, 9, 8, 7]], "tallies": {"model": {"position": [[5, 3]], \
"gap": [[5, 3]], "rank": [[2, 0]]}}, "lots": {"model": [[5, 9, 4]]}}
{"kind": "text", "at": 1794000000.0, "id": 3, "prompt": [1, 2], "rounds": [{"confirmed": [3], "draft_ids": [4], \
"accepted": 0, "next_id": 3, "correction_rank": null, "confidences": [0.5], "drafter": "model"}], \
"pieces": {"1": "61", "2": "62", "3": "63", "4": "64"}}
{"kind": "shift", "at": 1794000000.0, "pair": "t + d", "workload": "code", "drafter": "model", "since_s": 3000.0, \
"before": 0.5, "after": 0.25}
{"kind": "gate", "at": 1794000001.0, "rule": "a key", "action": "mask", "times": 2}
{"kind": "retag", "at": 1794000002.0, "id": 3, "workload": "chat"}
nonsense
{"kind": "reply", "at": 17940
""".replace("\\\n", "")


def test_what_an_earlier_version_wrote_becomes_part_of_the_file(tmp_path: Path) -> None:
    (tmp_path / LINES).write_text(LINES_BEFORE)
    (tmp_path / "drift.json").write_text("{}")
    records = read_records(tmp_path)
    reply = records.replies[3]
    assert (reply.workload, reply.by_user, reply.tokens) == ("chat", True, 9)
    assert reply.cells["model"][256][:4] == (5, 9, 4, 9)
    assert records.texts == {3}
    assert [each.before for each in records.shifts] == [0.5]
    assert [each.times for each in records.found] == [2]
    assert [each["context"] for each in proposals(tmp_path)] == ["ab"]
    assert [each.name for each in tmp_path.iterdir()] == [FILE]
    with recording(tmp_path) as talk:
        talk.reply()
    assert len(ids(tmp_path)) == 2


@pytest.mark.slow
def test_oldest_go_where_it_gets_too_big(tmp_path: Path) -> None:
    most = 0
    with recording(tmp_path, Switch(megabytes=1, text=True)) as talk:
        for _ in range(60):
            talk.reply(rounds=200)
            most = max(most, size_bytes(tmp_path))
    assert most < 2.5 * 2**20  # the old file stands beside the new one until that is whole
    assert size_bytes(tmp_path) <= 1.1 * 2**20
    kept = ids(tmp_path)
    assert min(kept) > 1
    assert kept == list(range(min(kept), 61))


def test_too_old_ones_go(tmp_path: Path) -> None:
    now_s, day_s = time.time(), 86400.0
    with recording(tmp_path, Switch(days=30)) as talk:
        for ago_s in (40 * day_s, 31.5 * day_s, 3 * day_s, 0.0):
            talk.recorder.now = lambda ago_s=ago_s: now_s - ago_s  # type: ignore[misc]
            talk.reply()
    assert ids(tmp_path) == [3, 4]
    with recording(tmp_path, Switch(days=3)) as talk:
        talk.recorder.now = lambda: now_s + day_s / 2
        talk.reply()
    assert ids(tmp_path) == [4, 5]


def test_retagged_reply_is_of_another_kind_for_all_who_read(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply()
    assert retag(tmp_path, 1, "code")
    assert not retag(tmp_path, 2, "code")
    reply = read_records(tmp_path).replies[1]
    assert (reply.workload, reply.by_user) == ("code", True)


def test_wiped_log_is_written_on(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply(rounds=5)
        talk.recorder.close(PATIENCE_S)
        assert wipe(tmp_path)
        assert not wipe(tmp_path)
    with recording(tmp_path) as talk:
        talk.reply(rounds=2)
    assert ids(tmp_path) == [1]


def test_wiping_takes_what_a_killed_process_has_left_beside(tmp_path: Path) -> None:
    beside = tmp_path / f"{LINES}.abc"
    beside.write_text("text")
    assert wipe(tmp_path)
    assert not beside.exists()


def test_wiping_text_keeps_counts(tmp_path: Path) -> None:
    with recording(tmp_path, Switch(text=True)) as talk:
        talk.reply(rounds=6)
    assert rounds_of(tmp_path, with_text=False) == rounds_of(tmp_path, with_text=True) == [6]
    assert wipe(tmp_path, only_text=True)
    assert rounds_of(tmp_path, with_text=False) == [6]
    assert rounds_of(tmp_path, with_text=True) == []
    assert not wipe(tmp_path, only_text=True)


def test_file_that_cannot_be_read_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database, and longer than a page of one" * 200)
    with pytest.raises(
        LocalspecError, match=r"cannot be used \(file is not a database\)"
    ) as caught:
        read_records(tmp_path)
    assert len(str(caught.value).splitlines()) == 1
    assert wipe(tmp_path)
    assert ids(tmp_path) == []
