"""Spools: what is left of a process that was killed comes into the database once, whole lines of it, and nothing else."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from localspec.telemetry.database import FILE, Database
from localspec.telemetry.reading import list_replies, reading
from localspec.telemetry.report import read_report
from localspec.telemetry.schema import MIGRATIONS, VERSION
from localspec.telemetry.spool import Spool
from localspec.telemetry.switch import Switch
from localspec.telemetry.taking_in import collect, take_in
from localspec.telemetry.wiping import set_bounds, wipe
from tests.telemetry.talking import PAIR, recording, stored_at_once, wait_until_spooled


def spool_of(directory: Path) -> Path:
    (path,) = directory.glob(Spool.NAMES)
    return path


def counts(directory: Path) -> tuple[int, int, int]:
    """Return how many replies, rounds, and rounds in the sums there are."""
    collect(directory)
    with closing(sqlite3.connect(directory / FILE)) as connection:
        tables = (
            ("reply", "count(*)"),
            ("round", "count(*)"),
            ("cell", "coalesce(sum(rounds), 0)"),
        )
        found = [connection.execute(f"SELECT {what} FROM {table}").fetchone()[0] for table, what in tables]  # fmt: skip
    return found[0], found[1], found[2]


def test_nothing_but_a_spool_is_written_while_replies_are_made(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply(rounds=30)
        wait_until_spooled(talk)
        assert [each.suffix for each in tmp_path.iterdir()] == [".spool"]
    assert [each.suffix for each in tmp_path.iterdir()] == [".spool"]
    assert spool_of(tmp_path).stat().st_mode & 0o777 == 0o600
    assert counts(tmp_path) == (1, 30, 30)
    assert not list(tmp_path.glob(Spool.NAMES))


def test_many_small_spools_are_written_into_the_database_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.telemetry.writer._DUE_BYTES", 10_000)
    for _ in range(5):
        with recording(tmp_path) as talk:
            talk.reply(rounds=20)
    assert sum(each.stat().st_size for each in tmp_path.glob(Spool.NAMES)) < 10_000
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        assert connection.execute("SELECT count(*) FROM reply").fetchone()[0] >= 3
    assert counts(tmp_path) == (5, 100, 100)


def test_spool_of_a_living_process_is_left_alone_by_readers(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply(rounds=5)
        wait_until_spooled(talk)
        with reading(tmp_path) as connection:
            assert connection is None or read_report(connection).total.rounds == 0
        assert spool_of(tmp_path).stat().st_size > 0
    assert counts(tmp_path) == (1, 5, 5)


@pytest.mark.parametrize("cut", [2, 5, 12, 400])
def test_torn_line_is_left_out_and_what_is_before_it_is_kept(tmp_path: Path, cut: int) -> None:
    with recording(tmp_path) as talk:
        talk.reply(rounds=3)
        wait_until_spooled(talk)
        talk.reply(rounds=4)
    path = spool_of(tmp_path)
    assert path.read_bytes().count(b"\n") >= 2
    path.write_bytes(path.read_bytes()[:-cut])
    assert counts(tmp_path) == (1, 3, 3)


@pytest.mark.parametrize(
    "line", [b"", b"nonsense", b"00000000 []", b"\x00" * 99, b"5cb2a4c4 1", b"zz\xff {}"]
)
def test_damaged_line_is_left_out_and_what_is_after_it_is_kept(tmp_path: Path, line: bytes) -> None:
    with recording(tmp_path) as talk:
        talk.reply(rounds=3)
    path = spool_of(tmp_path)
    path.write_bytes(line + b"\n" + path.read_bytes())
    assert counts(tmp_path) == (1, 3, 3)


@pytest.mark.parametrize("document", [1, None, [1], [[]], [[[1], 2]], {"a": 1}, [[[1] * 7] * 10]])
def test_what_is_no_stretch_is_left_out(tmp_path: Path, document: object) -> None:
    spool = Spool.made(tmp_path)
    spool.append(document)
    spool.close(keep=True)
    collect(tmp_path)
    assert not list(tmp_path.glob(Spool.NAMES))


def test_taking_in_twice_changes_nothing(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply(rounds=8)
    content = spool_of(tmp_path).read_bytes()
    assert counts(tmp_path) == (1, 8, 8)
    # As if the process had been killed after the commit, and before the spool was emptied.
    again = Spool.made(tmp_path)
    again.close(keep=True)
    spool_of(tmp_path).write_bytes(content)
    assert counts(tmp_path) == (1, 8, 8)


def test_wiping_takes_what_a_living_process_has_noted(tmp_path: Path) -> None:
    with recording(tmp_path, Switch(text=True)) as talk:
        talk.reply(rounds=5)
        wait_until_spooled(talk)
        assert wipe(tmp_path)
    assert not list(tmp_path.iterdir())


def test_spool_that_is_removed_while_it_is_taken_in_is_not_written(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.reply(rounds=5)
    (spool,) = Spool.left_behind(tmp_path)
    spool_of(tmp_path).unlink()
    with closing(Database(tmp_path)) as database:
        take_in(spool, database)
    spool.close()
    assert counts(tmp_path) == (0, 0, 0)


def test_wiping_text_keeps_counts_that_were_only_spooled(tmp_path: Path) -> None:
    with recording(tmp_path, Switch(text=True)) as talk:
        talk.reply(rounds=6)
    assert wipe(tmp_path, only_text=True)
    assert counts(tmp_path) == (1, 6, 6)


def test_long_reply_is_one_reply_however_often_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored_at_once(monkeypatch)
    with recording(tmp_path) as talk:
        talk.reply(rounds=50, asked="Write a poem.", pause_s=0.05)
    assert counts(tmp_path) == (1, 50, 50)
    with reading(tmp_path) as connection:
        assert connection is not None
        (reply,) = list_replies(connection, 5)
    assert reply.workload == "creative"


def test_database_of_the_first_version_is_brought_up_to_date_by_whoever_comes(
    tmp_path: Path,
) -> None:
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        for statement in MIGRATIONS[0]:
            connection.execute(statement)
        connection.execute("PRAGMA user_version = 1")
        connection.execute(
            "INSERT INTO pair VALUES (7, ?, ?, 20000)", (PAIR.target, PAIR.draft_model)
        )
        connection.execute(
            "INSERT INTO reply(started_s, pair, workload, tagged_by, greedy, prompt_tokens) "
            "VALUES (1e9, 7, 'chat', 'guess', 0, 5)"
        )
        connection.commit()
    with reading(tmp_path) as connection:
        assert connection is not None
        assert [each.pair for each in list_replies(connection, 5)] == [PAIR.name]
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    with recording(tmp_path) as talk:
        talk.reply(rounds=2)
    collect(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        assert connection.execute("SELECT DISTINCT pair FROM reply").fetchall() == [(7,)]


def test_new_bounds_hold_for_what_was_only_spooled(tmp_path: Path) -> None:
    with recording(tmp_path) as talk:
        talk.recorder._now = lambda: 1e9
        talk.reply(rounds=2)
    set_bounds(tmp_path, 128, 30)
    assert counts(tmp_path)[1] == 0
