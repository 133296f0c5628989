"""The database stays within its bounds, whatever is written."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from localspec.telemetry.database import FILE, LOG_BYTES, Database
from localspec.telemetry.reading import reading
from localspec.telemetry.report import read_report
from localspec.telemetry.schema import VERSION
from localspec.telemetry.switch import Switch
from localspec.telemetry.taking_in import collect
from localspec.telemetry.wiping import set_bounds
from tests.telemetry.talking import recording


def size_of(directory: Path) -> int:
    return sum(each.stat().st_size for each in directory.glob(f"{FILE}*"))


def written(directory: Path, switch: Switch, replies: int, now_s: float | None = None) -> int:
    """Record replies of 1000 rounds; return the most that the files took meanwhile."""
    most = 0
    with recording(directory, switch) as talk:
        if now_s is not None:
            talk.recorder._now = lambda: now_s
        for _ in range(replies):
            talk.reply(rounds=1000, n_prompt=20)
            while talk.recorder.writer.waiting > 3000:
                time.sleep(0.01)
            most = max(most, size_of(directory))
    assert talk.recorder.trouble is None
    return max(most, size_of(directory))


def rounds_in(directory: Path) -> int:
    collect(directory)
    with closing(sqlite3.connect(directory / FILE)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM round").fetchone()
    return int(count)


@pytest.mark.parametrize("text", [False, True])
def test_oldest_rounds_go_where_the_file_gets_too_big_and_sums_stay(
    tmp_path: Path, text: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "localspec.telemetry.database.LOG_BYTES", 13 << 20
    )  # 3 MB are left for the file
    most = written(tmp_path, Switch(megabytes=16, text=text), 60)
    assert most <= 16 << 20
    assert 1000 < rounds_in(tmp_path) < 60_000
    with reading(tmp_path) as connection:
        assert connection is not None
        assert read_report(connection).total.rounds == 60_000
        (oldest, latest) = connection.execute("SELECT min(reply), max(reply) FROM round").fetchone()
        assert oldest > 1
        assert latest == 60


def test_rounds_that_are_too_old_go_with_their_sums(tmp_path: Path) -> None:
    now_s = time.time()
    written(tmp_path, Switch(), 2, now_s - 40 * 86400)
    written(tmp_path, Switch(), 1, now_s)
    assert rounds_in(tmp_path) == 3000
    set_bounds(tmp_path, 128, 30)
    assert rounds_in(tmp_path) == 1000
    with reading(tmp_path) as connection:
        assert connection is not None
        assert read_report(connection).total.rounds == 1000


def test_log_stays_within_its_part_while_somebody_reads(tmp_path: Path) -> None:
    written(tmp_path, Switch(), 1)
    with closing(sqlite3.connect(tmp_path / FILE)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM round").fetchone()
        written(tmp_path, Switch(), 60)
        log = (tmp_path / f"{FILE}-wal").stat().st_size
        assert log <= LOG_BYTES
    written(tmp_path, Switch(), 1)
    assert rounds_in(tmp_path) > 1000


def test_database_of_an_empty_folder_is_brought_to_its_version(tmp_path: Path) -> None:
    with closing(Database(tmp_path)) as database:
        assert database.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
