"""One SQLite database that never stops a chat: what cannot be on disk goes on in memory.

Whatever is wrong with the file (no right to write, a full disk, damage, a later version) becomes one line in
`trouble`. What may pass, such as a full disk, is tried again; all that was said meanwhile then goes into the file.
Knows no conversations.
"""

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

from localspec.errors import HistoryError
from localspec.history.opening import copied, in_memory, opened
from localspec.history.refuge import Refuge
from localspec.history.schema import VERSION, HistoryTooNewError

RETRY_S = 10.0
_DAMAGE = {"database disk image is malformed", "file is not a database"}
_ADVICE = {"database or disk is full": "free some space"}
T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


class HistoryDatabase:
    """A connection to a file, or to memory where the file is of no use.

    Safe to be used by several threads; one works at a time.

    Args:
        path: the file, made if it is missing, with a directory that only its owner can read.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._path = path
        self._refuge: Refuge | None = None
        self._tried_s = time.monotonic()
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

    def write(self, work: Work[T]) -> T:
        """Return what `work` returns, in a transaction: all of it is done, or nothing.

        Raises:
            HistoryError: not even memory helps.
        """

        def transaction(connection: sqlite3.Connection) -> T:
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(connection)
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk has rolled it back already
                    connection.execute("ROLLBACK")
                raise
            try:
                connection.execute("COMMIT")
            except sqlite3.Error:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            return result

        return self._do(transaction)

    def shrink_log(self) -> None:
        """Empty the write-ahead log, which still holds what was deleted; later if another process reads."""
        with self._lock, suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def mend(self, wait_s: float = RETRY_S) -> None:
        """Go back to the file if it can be written again; costs nothing until so much time went by since the last try."""
        with self._lock:
            refuge, now = self._refuge, time.monotonic()
            if refuge is None or now - self._tried_s < wait_s:
                return
            self._tried_s = now
            try:
                file = opened(self._path)
            except (OSError, sqlite3.Error, HistoryTooNewError):
                return
            try:
                refuge.carry_back(file)
            except sqlite3.Error:
                file.close()
                return
            refuge.connection.close()
            self._connection, self._refuge, self.trouble = file, None, None

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        with self._lock:
            self.mend(wait_s=0)
            self._connection.close()
            self._refuge = None

    def _do(self, work: Work[T]) -> T:
        with self._lock:
            try:
                return work(self._connection)
            except sqlite3.Error as error:
                if self.trouble is not None or _of_the_statement(error):
                    raise HistoryError(f"the history cannot do that: {error}") from error
                return self._do_in_memory(work, error)

    def _do_in_memory(self, work: Work[T], reason: sqlite3.Error) -> T:
        """Leave the file, taking along what can be read of it, and try again."""
        before = self._connection
        with closing(before):
            self._connection = in_memory()
            with suppress(sqlite3.Error):
                before.backup(self._connection)
                self._flee(reason)
                return work(self._connection)
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
        self.trouble = f"{told}: {advice}; localspec keeps trying, and holds the conversation in memory meanwhile"
        self._refuge = Refuge(self._connection)


def _of_the_statement(error: sqlite3.Error) -> bool:
    """Whether the file is sound, and only what was asked is impossible: a message that another chat deleted."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return code in {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT}
