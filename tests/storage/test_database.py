"""SQLite files: private, brought up to date together, changed all or nothing, emptied."""

import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from threading import Timer

import pytest

from localspec.storage import database
from localspec.storage.database import (
    DatabaseTooNewError,
    is_damage,
    open_database,
    transaction,
    wipe,
)
from tests.support.checks import on_disk

STEPS = ("CREATE TABLE a(x)", "CREATE TABLE b(y)\n\nINSERT INTO b SELECT x FROM a")


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
        open_database(path, (*STEPS, "CREATE TABLE c(z)\n\nINSERT INTO nowhere VALUES (1)"))
    with closing(open_database(path, STEPS[:1])) as file:
        names = file.execute("SELECT name FROM sqlite_master").fetchall()
        assert [name for (name,) in names] == ["a"]


def test_changes_are_made_together_or_not_at_all(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "file.db", STEPS)) as file:
        with pytest.raises(sqlite3.OperationalError), transaction(file):
            list(map(file.execute, [f"INSERT INTO {each} VALUES (1)" for each in ("a", "nowhere")]))
        assert not file.in_transaction
        assert not file.execute("SELECT * FROM a").fetchall()


def test_a_file_is_emptied_beside_a_program_that_has_it_open(tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    assert not wipe(path, STEPS)
    with closing(open_database(path, STEPS)) as file:
        assert not wipe(path, STEPS)
        file.execute("INSERT INTO a VALUES ('a secret')")
        assert wipe(path, STEPS)
        file.execute("INSERT INTO a VALUES ('another')")
        assert [tuple(row) for row in file.execute("SELECT * FROM a")] == [("another",)]
    everything = on_disk(tmp_path)
    assert b"another" in everything
    assert b"a secret" not in everything
    assert wipe(path, STEPS[:1]), "of a later version"
    assert not path.exists()
    path.write_bytes(b"no database " * 1000)
    with pytest.raises(sqlite3.DatabaseError) as caught:
        open_database(path, STEPS)
    assert is_damage(caught.value)
    assert not is_damage(OSError())
    assert wipe(path, STEPS)
    assert not path.exists()


FULL = """
import resource, sys
from pathlib import Path
from localspec.storage.database import wipe
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
assert wipe(Path(sys.argv[1]), ("CREATE TABLE a(x)",))
"""


@pytest.mark.parametrize("room", [0, 40_000])
def test_a_file_on_a_full_disk_is_wiped(tmp_path: Path, room: int) -> None:
    path = tmp_path / "file.db"
    with closing(open_database(path, STEPS[:1])) as file:
        file.executemany("INSERT INTO a VALUES (?)", [("a secret" * 300,)] * 100)
    with path.open("rb") as before:
        subprocess.run([sys.executable, "-c", FULL, str(path), str(room)], check=True)
        assert b"a secret" not in before.read(room)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("lock", ["IMMEDIATE", "EXCLUSIVE", "DEFERRED"])
def test_a_new_file_that_another_program_makes_is_waited_for(tmp_path: Path, lock: str) -> None:
    path = tmp_path / "file.db"
    with closing(sqlite3.connect(path, check_same_thread=False)) as other:
        other.execute(f"BEGIN {lock}")
        other.execute("SELECT * FROM sqlite_schema").fetchall()
        timer = Timer(0.3, other.rollback)
        timer.start()
        open_database(path, STEPS).close()
        timer.join()


@pytest.mark.parametrize("made", ["new", "with a log", "with a journal"])
def test_a_file_where_no_memory_can_be_shared_keeps_a_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    path = tmp_path / "file.db"
    if made == "with a log":
        open_database(path, STEPS).close()
    monkeypatch.setattr(database, "shares_memory", lambda _directory: False)
    if made == "with a journal":
        open_database(path, STEPS).close()
    with closing(open_database(path, STEPS)) as file:
        assert file.execute("PRAGMA journal_mode").fetchone()[0] == "truncate"
        assert file.execute("PRAGMA synchronous").fetchone()[0] == 2, "full"
    assert not path.with_name("file.db-wal").exists()


def test_a_file_that_is_opened_twice_keeps_its_locks(tmp_path: Path) -> None:
    """A descriptor of the file that is closed ends all locks that the process has on it."""
    path = tmp_path / "file.db"
    with closing(open_database(path, STEPS)) as file:
        file.execute("PRAGMA journal_mode = TRUNCATE")
        file.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            open_database(path, STEPS, busy_s=0.1)
        other = (
            f"import sqlite3; sqlite3.connect({str(path)!r}, timeout=0).execute('BEGIN IMMEDIATE')"
        )
        done = subprocess.run([sys.executable, "-c", other], check=False, capture_output=True)
        assert b"database is locked" in done.stderr
