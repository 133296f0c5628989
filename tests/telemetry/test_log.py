"""The log: damaged, kept within its bounds, tagged, wiped, also beside a process that writes and on a full disk."""

import json
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from localspec.errors import LocalspecError
from localspec.options.recording import Switch
from localspec.telemetry import log
from localspec.telemetry.log import (
    FILE,
    is_empty,
    last_replies,
    read_records,
    retag,
    size_bytes,
    wipe,
)
from localspec.telemetry.reply import GateCount
from tests.support.checks import on_disk
from tests.telemetry.talking import recording
from tests.waiting import PATIENCE_S


def ids(directory: Path) -> list[int]:
    return list(read_records(directory).replies)


def record(directory: Path, count: int = 1, switch: Switch | None = None, rounds: int = 10) -> None:
    with recording(directory, switch) as talk:
        for _ in range(count):
            talk.reply(rounds=rounds)


DAMAGES: list[dict[str, object]] = [
    {"id": -1}, {"at": -5.0}, {"at": "x"}, {"tokens": 1e9}, {"workload": []}, {"wall_s": float("nan")}, {"type": "later"},
    {"cells": {"off": {"0": [1, 2, 3]}}}, {"cells": {"off": {"-256": [1] * 10}}}, {"cells": {"off": {"0": [-1] * 10}}},
    {"tallies": {"model": {"gap": [[1]]}}}, {"tallies": {"model": [1]}}, {"pair": {"target": 1}},
    {"pair": {"target": "a", "at_once": None}}, {"plain_s": "x"},
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_record_of_another_form_is_left_out(tmp_path: Path, damage: dict[str, object]) -> None:
    record(tmp_path, 2)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        (body,) = connection.execute("SELECT body FROM record WHERE id = 1").fetchone()
        damaged = json.dumps({**json.loads(body), **damage}).encode()
        connection.execute("UPDATE record SET body = ? WHERE id = 1", (damaged,))
        connection.commit()
    assert ids(tmp_path) == [2]
    record(tmp_path)
    assert ids(tmp_path) == [2, 3]


@pytest.mark.slow
def test_oldest_go_where_it_gets_too_big(tmp_path: Path) -> None:
    most = 0
    with recording(tmp_path, Switch(megabytes=1, text=True)) as talk:
        for _ in range(60):
            talk.reply(rounds=200)
            most = max(most, size_bytes(tmp_path))
    assert most < 2.5 * 2**20  # the log that is written ahead stands beside the file
    assert size_bytes(tmp_path) <= 1.1 * 2**20
    left = ids(tmp_path)
    assert min(left) > 1
    assert left == list(range(min(left), 61))


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


def test_reply_is_tagged_again_and_a_wiped_log_is_written_on(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply(rounds=5)
        talk.recorder.close(PATIENCE_S)
        assert retag(tmp_path, 1, "code")
        assert not retag(tmp_path, 2, "code")
        reply = read_records(tmp_path).replies[1]
        assert (reply.workload, reply.by_user) == ("code", True)
        assert wipe(tmp_path)
        assert not wipe(tmp_path)
    record(tmp_path)
    assert len(ids(tmp_path)) == 1


def test_only_what_is_asked_for_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_empty(tmp_path)
    assert last_replies(tmp_path, 3) == []
    record(tmp_path, 30)
    with closing(sqlite3.connect(tmp_path / FILE)) as file, file:
        file.execute("UPDATE record SET at = id")
        file.execute("UPDATE record SET pair = '', body = ? WHERE id BETWEEN 20 AND 28", [_FINDING])
    decoded, decode = list[bytes](), log._decoder()

    def counted(body: bytes) -> Any:
        decoded.append(body)
        return decode(body)

    monkeypatch.setattr(log, "_decoder", lambda: counted)
    assert not is_empty(tmp_path)
    assert list(read_records(tmp_path, 29.5).replies) == [30]
    assert len(decoded) == 1
    assert [each.id for each in last_replies(tmp_path, 4)] == [30, 29, 19, 18]
    assert len(decoded) <= 1 + 4 * 4
    assert len(last_replies(tmp_path, 100)) == 21
    assert len(read_records(tmp_path, 0.0).replies) == 21


_FINDING = msgspec.json.encode(GateCount(1.0, "key", "masked", 1))
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


def assert_sound(directory: Path) -> None:
    with closing(sqlite3.connect(directory / FILE)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_wiping_beside_a_window_that_writes_loses_no_later_reply(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITES, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        wiped = [wipe(tmp_path) for line in process.stdout if int(line) % 5 == 2]
    assert process.returncode == 0
    assert any(wiped)
    record(tmp_path)
    assert 1 <= len(ids(tmp_path)) <= 30
    assert_sound(tmp_path)


FULL = """
import resource, sys
from pathlib import Path
from localspec.telemetry.log import FILE, wipe
size = (Path(sys.argv[1]) / FILE).stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
assert wipe(Path(sys.argv[1]), only_text=True)
"""


def test_wiping_text_leaves_counts_also_on_a_full_disk(tmp_path: Path) -> None:
    record(tmp_path, 3, Switch(text=True), rounds=400)
    records = read_records(tmp_path)
    assert records.texts == {1, 2, 3}
    subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], check=True)
    assert b"<1000>".hex().encode() not in on_disk(tmp_path)
    after = read_records(tmp_path)
    assert after.replies == records.replies
    assert after.texts == set()
    assert not wipe(tmp_path, only_text=True)
    assert_sound(tmp_path)


def test_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database, and longer than a page of one" * 200)
    for act in (read_records, lambda directory: wipe(directory, only_text=True)):
        with pytest.raises(LocalspecError, match=r"\(file is not a database\)") as caught:
            act(tmp_path)
        assert len(str(caught.value).splitlines()) == 1
