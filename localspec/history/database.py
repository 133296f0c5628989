"""One SQLite database that never stops a chat: what cannot be on disk goes on in memory.

Whatever is wrong with the file (no right to write, a full disk, damage, a later version) becomes one line in
`trouble`. What may pass, such as a full disk, is tried again: until then each change is done in memory and put on a
list, and the list is done in the file when that takes it. Knows no conversations.
"""

import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from localspec.errors import HistoryError
from localspec.history.schema import VERSION, HistoryTooNewError, migrate

RETRY_S = 10.0
_BUSY_S, _CHECK_S = 5.0, 0.1
_DAMAGE = {"database disk image is malformed", "file is not a database"}
_ADVICE = {"database or disk is full": "free some space"}
# A chat adds far fewer rows while another one is in trouble, and two in trouble rarely draw the same number.
_GAP = 10_000
T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
Statement = tuple[str, dict[str, Any]]
"""SQL, and its values by name. An `id` that is None stands for a new one."""


class HistoryDatabase:
    """A connection to a file, or to memory where the file is of no use.

    Safe to be used by several threads; one works at a time.

    Args:
        path: the file, made if it is missing, with a directory that only its owner can read.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._path = path
        self._pending: list[Statement] | None = None  # where the file is tried again
        self._ids: Iterator[int] = count()
        self._tried_s = 0.0
        self.trouble: str | None = None
        try:
            self._connection = opened(path)
        except HistoryTooNewError as error:
            self.trouble = (
                f"{path} was written by a later localspec (version {error}, this one knows {VERSION}): "
                "update localspec; nothing is saved until then"
            )
            self._connection = in_memory()
        except (OSError, sqlite3.Error) as error:
            self._connection = copied(path) or in_memory()
            self._flee(error)

    def read(self, work: Work[T]) -> T:
        """Return what `work` reads.

        Raises:
            HistoryError: not even memory helps.
        """
        return self._do(work)

    def write(self, *statements: Statement) -> int:
        """Do all of these, or nothing; return the id of the first row that they insert, 0 without any.

        Raises:
            HistoryError: not even memory helps.
        """
        return self._do(lambda connection: self._written(connection, statements))

    def shrink_log(self) -> None:
        """Empty the write-ahead log, which still holds what was deleted; later if another process reads."""
        with self._lock, suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def mend(self, wait_s: float = RETRY_S) -> None:
        """Go back to the file if it can be written again; costs nothing until so much time went by since the last try."""
        with self._lock:
            pending, now = self._pending, time.monotonic()
            if pending is None or now - self._tried_s < wait_s:
                return
            self._tried_s = now
            try:
                file = opened(self._path)
            except (OSError, sqlite3.Error, HistoryTooNewError):
                return
            try:
                _transaction(file, pending)
            except sqlite3.Error:  # still full, or changed so that this does not fit any more
                file.close()
                return
            self._connection.close()
            self._connection, self._pending, self.trouble = file, None, None

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        with self._lock:
            self.mend(wait_s=0)
            self._connection.close()
            self._pending = None

    def _do(self, work: Work[T]) -> T:
        with self._lock:
            try:
                return work(self._connection)
            except sqlite3.Error as error:
                if self.trouble is not None or _of_the_statement(error):
                    raise HistoryError(f"the history cannot do that: {error}") from error
                return self._do_in_memory(work, error)

    def _written(self, connection: sqlite3.Connection, statements: Sequence[Statement]) -> int:
        if self._pending is None:
            return _transaction(connection, statements)
        statements = [(sql, self._with_id(values)) for sql, values in statements]
        added = _transaction(connection, statements)
        for sql, values in statements:
            # A reply that grows is noted once.
            last = self._pending[-1:]
            if last and (last[0][0], last[0][1].get("id")) == (sql, values.get("id")):
                del self._pending[-1]
            self._pending.append((sql, values))
        return added

    def _with_id(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return values of which a new id is one that no other process gives meanwhile."""
        return {**values, "id": next(self._ids)} if values.get("id", 0) is None else values

    def _do_in_memory(self, work: Work[T], reason: sqlite3.Error) -> T:
        """Leave the file, taking along what can be read of it, and try again."""
        with closing(self._connection) as before:
            try:
                self._connection = in_memory()
                before.backup(self._connection)
                self._flee(reason)
                return work(self._connection)
            except sqlite3.Error:
                # A copy of a damaged file is as damaged. Without it, ids point to nothing, which must not matter now.
                self._connection.close()
        self._connection = in_memory()
        self._connection.execute("PRAGMA foreign_keys = OFF")
        self._flee(reason)
        try:
            return work(self._connection)
        except sqlite3.Error as error:
            raise HistoryError(f"the history cannot be used: {error}") from error

    def _flee(self, error: Exception) -> None:
        """Take note that from now on all is in memory, and why."""
        reason = getattr(error, "strerror", None) or str(error)
        told = f"the history cannot be saved ({reason})"
        self._tried_s = time.monotonic()
        if reason in _DAMAGE:
            self.trouble = (
                f"{told}: move {self._path} away and start again; nothing is saved until then"
            )
            return
        advice = _ADVICE.get(reason, f"check {self._path.parent}")
        self.trouble = f"{told}: {advice}; localspec keeps trying; until then the conversation is kept in memory"
        (last,) = self._connection.execute("SELECT max(seq) FROM sqlite_sequence").fetchone()
        self._ids = count((last or 0) + _GAP * (1 + secrets.randbelow(_GAP)))
        self._pending = []


def _transaction(connection: sqlite3.Connection, statements: Sequence[Statement]) -> int:
    """Do all statements, or none; return the id of the first row that they insert, 0 without any."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        # A conversation and its last message name each other.
        connection.execute("PRAGMA defer_foreign_keys = ON")
        rows = [connection.execute(sql, values).lastrowid for sql, values in statements]
    return next(filter(None, rows), 0)


def _of_the_statement(error: sqlite3.Error) -> bool:
    """Whether the file is sound, and only what was asked is impossible: a message that another chat deleted."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return code in {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT}


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
