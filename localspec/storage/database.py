"""SQLite files that only their owner can read: opened, brought up to date, checked, and changed all or nothing."""

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from localspec.storage.files import private_directory

_BUSY_S = 5.0
_SETTINGS = (
    "journal_mode = WAL",
    "synchronous = NORMAL",
    "secure_delete = ON",
    "foreign_keys = ON",
)


class DatabaseTooNewError(Exception):
    """A later localspec wrote the file; holds its version."""


def open_database(path: Path, steps: Sequence[str], check_s: float = 0.0) -> sqlite3.Connection:
    """Open a file for any thread, made with its directory if it is missing, and bring it up to date.

    Args:
        path: the file.
        steps: scripts; step n takes a file from `user_version` n to n + 1.
        check_s: seconds to look for damage at most: all of a usual file, the beginning of a huge one.

    Raises:
        OSError: it cannot be made or written.
        sqlite3.Error: it cannot be used.
        DatabaseTooNewError: its version is beyond the last step.
    """
    private_directory(path.parent)
    # SQLite gives its log the same mode as the file.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = _connected(str(path))
    try:
        for setting in _SETTINGS:
            connection.execute(f"PRAGMA {setting}").fetchall()
        _migrate(connection, steps)
        if check_s:
            check(connection, check_s)
    except BaseException:
        connection.close()
        raise
    return connection


def open_read_only(path: Path, steps: Sequence[str]) -> sqlite3.Connection:
    """Open a file that cannot be written, as it was when it was last closed.

    Raises:
        sqlite3.Error: it cannot be read, or is of another version.
    """
    connection = _connected(f"{path.absolute().as_uri()}?immutable=1", uri=True)
    if _version(connection) != len(steps):
        connection.close()
        raise sqlite3.DatabaseError("it is of another version")
    return connection


def _connected(place: str, *, uri: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(
        place, timeout=_BUSY_S, isolation_level=None, check_same_thread=False, uri=uri
    )
    connection.row_factory = sqlite3.Row
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Make the changes within, or none of them; other programs wait with theirs."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        # Rows may name each other before both are there.
        connection.execute("PRAGMA defer_foreign_keys = ON")
        yield


def empty_log(connection: sqlite3.Connection) -> None:
    """Empty the write-ahead log, which still holds what was deleted; later if another program reads."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def is_damage(error: Exception) -> bool:
    """Return whether an error means that the file is damaged or no database."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def check(connection: sqlite3.Connection, most_s: float) -> None:
    """Look for damage for so many seconds at most.

    Raises:
        sqlite3.Error: there is some, or the file cannot be read.
    """
    deadline_s = time.monotonic() + most_s
    connection.set_progress_handler(lambda: int(time.monotonic() > deadline_s), 10_000)
    try:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        verdict = "ok"
    finally:
        connection.set_progress_handler(None, 0)
    if verdict != "ok":
        damage = sqlite3.DatabaseError("database disk image is malformed")
        damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damage


def _migrate(connection: sqlite3.Connection, steps: Sequence[str]) -> None:
    version = _version(connection)
    if version > len(steps):
        raise DatabaseTooNewError(version)
    if version < len(steps):
        with transaction(connection):
            # Another process may have been at it, too.
            for step in steps[_version(connection) :]:
                for statement in _statements(step):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {len(steps)}")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _statements(script: str) -> Iterator[str]:
    """Cut a script where SQLite says that a statement is complete; `executescript` would commit."""
    begun = ""
    for line in script.splitlines(keepends=True):
        begun += line
        if sqlite3.complete_statement(begun):
            yield begun
            begun = ""
