"""The log: torn, damaged, kept within its bounds, tagged, wiped; and what an earlier version left."""

import json
import time
from pathlib import Path

import pytest

from localspec.errors import LocalspecError
from localspec.telemetry.log import (
    BEFORE,
    FILE,
    STATE,
    read_lines,
    read_records,
    retag,
    said_of_before,
    set_bounds,
    size_bytes,
    wipe,
)
from localspec.telemetry.switch import Switch
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


def test_torn_line_is_left_out_and_the_next_begins_afresh(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        for _ in range(3):
            talk.reply()
    path = tmp_path / FILE
    for cut in (1, 2, 5, 400):
        path.write_bytes(path.read_bytes()[:-cut])
    assert ids(tmp_path) == [1, 2]
    with recording(tmp_path) as talk:
        talk.reply()
    assert ids(tmp_path) == [1, 2, 4]


GOOD = '{"kind": "reply", "at": 5.0, '


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense",
        b"\x00" * 99,
        b"[" * 9999,
        GOOD.encode(),
        GOOD.encode() + b'"id": 7}',
        GOOD.encode() + b'"pair": 7, "cells": {}}',
        b'{"kind": "reply", "at": 1.2.3, "id": 7}',
        b'{"kind": "reply", "at": 5.0' + b"[" * 9999,
        b'{"kind": "retag", "at": 5.0, "id": 1, "workload": "poetry"}',
        b'{"kind": "retag", "at": 5.0, "id": [], "workload": "code"}',
        b'{"kind": "shift", "at": 5.0, "pair": 1}',
        b'{"kind": "later", "at": 5.0, "id": 1}',
    ],
)
def test_damaged_line_is_left_out(tmp_path: Path, line: bytes) -> None:
    with recording(tmp_path) as talk:
        talk.reply()
    path = tmp_path / FILE
    path.write_bytes(line + b"\n" + path.read_bytes() + line + b"\n")
    assert ids(tmp_path) == [1]
    assert read_records(tmp_path).replies[1].workload == "chat"
    assert read_records(tmp_path).shifts == []


@pytest.mark.parametrize(
    "damage",
    [
        {"id": -1},
        {"id": "7"},
        {"at": -5.0},
        {"tokens": 1e9},
        {"workload": []},
        {"wall_s": float("nan")},
        {"cells": [["off", 0, 1]]},
        {"cells": [["off", -256, *([1] * 10)]]},
        {"cells": [[["off"], 0, *([1] * 10)]]},
        {"cells": [["off", 0, *([10**400] * 10)]]},
        {"tallies": {"model": {"gap": [[1, 2]]}}},
        {"tallies": {"model": {"gap": [[1]]}}},
        {"tallies": {"model": [1]}},
        {"pair": {"target": 1}},
        {"pair": {"target": "a", "at_once": None}},
        {"pair": {"target": "a", "plain_s": "x"}},
        {"more": 1},
    ],
)
def test_reply_that_says_what_cannot_be_is_left_out(
    tmp_path: Path, damage: dict[str, object]
) -> None:
    with recording(tmp_path) as talk:
        talk.reply()
    path = tmp_path / FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}) + "\n")
    assert ids(tmp_path) == []


def test_state_that_is_damaged_costs_no_number(tmp_path: Path) -> None:
    for content in (None, "", "[]", '{"replies": 7}', '{"replies": "x", "drifts": {}}', "[" * 9999):
        with recording(tmp_path) as talk:
            talk.reply()
        if content is not None:
            (tmp_path / STATE).write_text(content)
    assert ids(tmp_path) == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_oldest_go_where_it_gets_too_big(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.telemetry.switch.LEAST_MEGABYTES", 1)
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


def test_too_old_ones_go_once_a_day(tmp_path: Path) -> None:
    now_s, day_s = time.time(), 86400.0
    with recording(tmp_path, Switch(days=30)) as talk:
        for ago_s in (40 * day_s, 31.5 * day_s, 3 * day_s, 0.0):
            talk.recorder.now = lambda ago_s=ago_s: now_s - ago_s  # type: ignore[misc]
            talk.reply()
    assert ids(tmp_path) == [3, 4]
    with recording(tmp_path, Switch(days=3)) as talk:
        talk.recorder.now = lambda: now_s + day_s / 2
        talk.reply()
    assert ids(tmp_path) == [3, 4, 5]
    set_bounds(tmp_path, 128, 3, now_s + day_s / 2)
    assert ids(tmp_path) == [4, 5]


def test_retagged_reply_is_of_another_kind_for_all_who_read(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply()
    assert retag(tmp_path, 1, "code", 5.0)
    assert not retag(tmp_path, 2, "code", 5.0)
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
    beside = tmp_path / f".{FILE}.abc"
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
    (tmp_path / FILE).mkdir()
    with pytest.raises(LocalspecError, match=r"cannot be read"):
        list(read_lines(tmp_path))
    with pytest.raises(LocalspecError, match=r"cannot be changed"):
        wipe(tmp_path)


def test_what_an_earlier_version_left_is_named_and_goes_with_age_and_text(tmp_path: Path) -> None:
    assert said_of_before(tmp_path) is None
    for only_text in (False, True):
        for name in (BEFORE, f"{BEFORE}-wal", f"{BEFORE}-123.spool"):
            (tmp_path / name).write_text("a database, perhaps with text")
        assert "earlier localspec" in str(said_of_before(tmp_path))
        assert size_bytes(tmp_path) > 0
        assert wipe(tmp_path, only_text=only_text)
        assert list(tmp_path.iterdir()) == []
    (tmp_path / BEFORE).write_text("a database")
    set_bounds(tmp_path, 128, 30, time.time() + 29 * 86400)
    assert (tmp_path / BEFORE).exists()
    set_bounds(tmp_path, 128, 30, time.time() + 31 * 86400)
    assert not (tmp_path / BEFORE).exists()
