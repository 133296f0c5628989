"""SQLite files: private, brought up to date together, looked at for damage, changed all or nothing."""

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from localspec.storage.database import (
    DatabaseTooNewError,
    check,
    is_damage,
    open_database,
    transaction,
)

STEPS = ("CREATE TABLE a(x);", "CREATE TABLE b(y);\nINSERT INTO b SELECT x FROM a;")


def test_a_file_is_made_private_and_brought_up_to_date_step_by_step(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.db"
    with closing(open_database(path, STEPS[:1])) as file:
        file.execute("INSERT INTO a VALUES (7)")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with closing(open_database(path, STEPS)) as file:
        assert [tuple(row) for row in file.execute("SELECT y FROM b")] == [(7,)]
    with pytest.raises(DatabaseTooNewError, match="2"):
        open_database(path, STEPS[:1])


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    open_database(path, STEPS[:1]).close()
    with pytest.raises(sqlite3.OperationalError):
        open_database(path, (*STEPS, "CREATE TABLE c(z);\nINSERT INTO nowhere VALUES (1);"))
    with closing(open_database(path, STEPS[:1])) as file:
        assert not file.execute("SELECT 1 FROM sqlite_master WHERE name IN ('b', 'c')").fetchall()


def add_and_fail(file: sqlite3.Connection) -> None:
    with transaction(file):
        file.execute("INSERT INTO a VALUES (1)")
        file.execute("INSERT INTO nowhere VALUES (1)")


def test_changes_are_made_together_or_not_at_all(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "file.db", STEPS)) as file:
        with pytest.raises(sqlite3.OperationalError):
            add_and_fail(file)
        assert not file.in_transaction
        assert not file.execute("SELECT * FROM a").fetchall()


def test_the_look_for_damage_in_a_huge_file_ends_and_finds_none(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "file.db", STEPS)) as connection:
        connection.executemany("INSERT INTO a VALUES (?)", ((n,) for n in range(5000)))
        connection.set_progress_handler(lambda: 1, 10_000)
        with pytest.raises(sqlite3.OperationalError, match="interrupted"):
            connection.execute("PRAGMA quick_check(1)").fetchone()
        check(connection, -1.0)


def test_a_file_that_cannot_be_read_to_its_end_is_not_taken_for_sound() -> None:
    class Broken:
        def set_progress_handler(self, *_: object) -> None:
            pass

        def execute(self, _: str) -> None:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error

    with pytest.raises(sqlite3.OperationalError, match="I/O"):
        check(Broken(), 1.0)  # type: ignore[arg-type]


def test_what_is_no_database_is_damage(tmp_path: Path) -> None:
    (tmp_path / "file.db").write_text("my shopping list\n" * 100)
    with pytest.raises(sqlite3.DatabaseError) as caught:
        open_database(tmp_path / "file.db", STEPS)
    assert is_damage(caught.value)
    assert not is_damage(OSError())
