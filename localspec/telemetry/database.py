"""The database: one SQLite file that only its owner can read, and its bounds. Whoever writes catches its errors."""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from localspec.telemetry.schema import TABLES, TEXT_TABLES, migrate

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

FILE = "telemetry.db"
LOG_BYTES = 8 << 20
"""What of the bound is left to the write-ahead log."""
_BUSY_S = 0.3
_CHECKPOINT_PAGES = 500
_SLICE = 5000
_FULL, _ENOUGH = 0.95, 0.85
"""Shares of the bound: where the oldest rounds begin to go, and where they stop to."""
_DAY_S = 86400.0


class Database:
    """A connection to the file.

    Args:
        directory: where it is, made if it is missing.
        megabytes: most that file and log take together.
        days: how long rounds are kept.
        busy_s: how long to wait for another process.

    Raises:
        OSError: the directory or the file cannot be made.
        sqlite3.Error: the file is damaged.
        TooNewError: it is of a later version.
    """

    def __init__(
        self, directory: Path, megabytes: int = 128, days: int = 365, busy_s: float = _BUSY_S
    ) -> None:
        self.path = directory / FILE
        self._bytes = (megabytes << 20) - LOG_BYTES
        self._days = days
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # SQLite gives its log the same mode as the file.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        self.connection = sqlite3.connect(self.path, timeout=busy_s, isolation_level=None)
        try:
            self.connection.execute("PRAGMA journal_mode = WAL").fetchone()
            self.connection.execute("PRAGMA synchronous = NORMAL")
            self.connection.execute("PRAGMA secure_delete = FAST").fetchone()
            self.connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}").fetchone()
            self.connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES // 2}").fetchone()
            migrate(self.connection)
        except BaseException:
            self.connection.close()
            raise

    def write(self, work: Work[T]) -> T:
        """Return what `work` returns, in a transaction: all of it is done, or nothing."""
        connection = self.connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # a full disk has rolled it back already
                connection.execute("ROLLBACK")
            raise
        return result

    @property
    def log_is_full(self) -> bool:
        """Whether the log has used up its part, since another process keeps it from being emptied."""
        log = self.path.with_name(f"{FILE}-wal")
        try:
            return log.stat().st_size > LOG_BYTES - (1 << 20) and not self._emptied()
        except OSError:
            return False

    def keep_within_bounds(self, now_s: float | None = None) -> None:
        """Remove what is too old, and the oldest rounds where the file gets too big; in slices, so that the log stays small."""
        now_s = time.time() if now_s is None else now_s
        self._remove_older_than(now_s - self._days * _DAY_S)
        if self._used_bytes() <= _FULL * self._bytes:
            return
        while self._used_bytes() > _ENOUGH * self._bytes and self.write(_oldest_removed):
            pass

    def wipe(self, *, only_text: bool = False) -> None:
        """Remove all, or all that is text, and leave none of its bytes in the file."""

        def remove(connection: sqlite3.Connection) -> None:
            for table in TEXT_TABLES if only_text else TABLES:
                connection.execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours

        self.write(remove)
        self.shrink()

    def shrink(self) -> None:
        """Give back what is free in the file, and empty the log."""
        self.connection.execute("VACUUM")
        self._emptied()

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self.connection.close()

    def _emptied(self) -> bool:
        busy, _, _ = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def _used_bytes(self) -> int:
        pages, free, size = (
            int(self.connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    def _remove_older_than(self, cutoff_s: float) -> None:
        connection = self.connection
        (old,) = connection.execute(
            "SELECT max(id) FROM reply WHERE started_s < ?", (cutoff_s,)
        ).fetchone()
        hour = int(cutoff_s // 3600)
        if old is not None:
            while self.write(lambda c: _removed_up_to(c, old)):
                pass
        if connection.execute("SELECT 1 FROM cell WHERE hour < ?", (hour,)).fetchone():
            self.write(lambda c: _hours_removed(c, hour))


def _removed_up_to(connection: sqlite3.Connection, reply: int) -> bool:
    """Remove a slice of the rounds of replies up to this one; with the last slice, the replies."""
    key = connection.execute(
        "SELECT reply, n FROM round WHERE reply <= ? ORDER BY reply, n LIMIT 1 OFFSET ?",
        (reply, _SLICE),
    ).fetchone()
    _remove_before(connection, key or (reply + 1, 0))
    return key is not None


def _oldest_removed(connection: sqlite3.Connection) -> bool:
    """Remove the oldest rounds, or where none is left the oldest sums; say whether there was anything."""
    key = connection.execute(
        "SELECT reply, n FROM round ORDER BY reply, n LIMIT 1 OFFSET ?", (_SLICE,)
    ).fetchone()
    if key is None:
        (last,) = connection.execute("SELECT max(id) FROM reply").fetchone()
        if last is not None:
            _remove_before(connection, (last + 1, 0))
            return True
        hour = connection.execute("SELECT hour FROM cell ORDER BY hour LIMIT 1 OFFSET 1000")
        found = hour.fetchone() or connection.execute("SELECT max(hour) + 1 FROM cell").fetchone()
        return found[0] is not None and _hours_removed(connection, found[0])
    _remove_before(connection, key)
    return True


def _remove_before(connection: sqlite3.Connection, key: tuple[int, int]) -> None:
    for table in ("round", "said"):
        connection.execute(f"DELETE FROM {table} WHERE (reply, n) < (?, ?)", key)  # noqa: S608
    for table, column in (("reply", "id"), ("prompt", "reply")):
        connection.execute(f"DELETE FROM {table} WHERE {column} < ?", key[:1])  # noqa: S608


def _hours_removed(connection: sqlite3.Connection, hour: int) -> bool:
    removed = 0
    for table in ("cell", "tally"):
        removed += connection.execute(f"DELETE FROM {table} WHERE hour < ?", (hour,)).rowcount  # noqa: S608
    return removed > 0
