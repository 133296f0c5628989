"""The log: damaged, kept within its bounds, tagged, wiped, also beside a process that writes."""

import json
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from localspec.errors import LocalspecError
from localspec.options.recording import Switch
from localspec.telemetry.log import FILE, read_records, retag, size_bytes, wipe
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
    assert len(ids(tmp_path)) == 1


WRITES = """
import sys
from pathlib import Path
from tests.telemetry.talking import recording
for number in range(30):
    with recording(Path(sys.argv[1])) as talk:
        talk.reply(rounds=1)
    assert talk.recorder.trouble is None, talk.recorder.trouble
    print(number, flush=True)
"""


def test_wiping_beside_a_window_that_writes_loses_no_later_reply(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITES, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        wiped = [wipe(tmp_path) for line in process.stdout if int(line) % 5 == 2]
    assert process.returncode == 0
    assert any(wiped)
    with recording(tmp_path) as talk:
        talk.reply()
    assert 1 <= len(ids(tmp_path)) <= 30
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


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
