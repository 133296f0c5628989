"""How the history's database is opened: its file, checked, or a copy or an empty one in memory."""

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from localspec.history.schema import HistoryTooNewError, migrate

_BUSY_S = 5.0
_CHECK_S = 0.1


def opened(path: Path) -> sqlite3.Connection:
    """Open a file, made if it is missing; migrated and checked.

    Raises:
        OSError: it cannot be made or written.
        sqlite3.Error: it cannot be used.
        HistoryTooNewError: a later localspec wrote it.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # SQLite gives its log the same mode as the file.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = _connected(path)
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON").fetchone()
        migrate(connection)
        _check(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection) -> None:
    """Look for damage as long as nobody has to wait for it: all of a usual file, the beginning of a huge one."""
    deadline_s = time.monotonic() + _CHECK_S
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
        raise sqlite3.DatabaseError("database disk image is malformed")


def _connected(place: Path | str, *, uri: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(
        place, timeout=_BUSY_S, isolation_level=None, check_same_thread=False, uri=uri
    )
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def in_memory() -> sqlite3.Connection:
    """Open an empty database in memory."""
    connection = _connected(":memory:")
    migrate(connection)
    return connection


def copied(path: Path) -> sqlite3.Connection | None:
    """Return a copy in memory of a file that can only be read; None where that is impossible, too."""
    memory = _connected(":memory:")
    try:
        with closing(_connected(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as source:
            source.backup(memory)
        migrate(memory)
        _check(memory)
    except (sqlite3.Error, HistoryTooNewError):
        memory.close()
        return None
    return memory
