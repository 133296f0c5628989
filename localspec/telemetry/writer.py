"""Writer: a thread that writes down what was noted. Nothing here ever fails an answer, or makes it wait.

What comes goes into a spool, in less than a second; from there into the database when it is much, when nothing has come for a
while, or when somebody reads. So while a text is made, nothing is imported, locked or added up; and what is
written at once takes a third of the time. Where something is impossible, nothing more is recorded, and `trouble` says why.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from localspec.telemetry.notes import Event, ReplyNotes

if TYPE_CHECKING:
    from pathlib import Path

    from localspec.telemetry.database import Database
    from localspec.telemetry.spool import Spool
    from localspec.telemetry.switch import Switch

FLUSH_S = 0.8
"""Less than the second that a kill may cost: the thread may wake late."""
_IDLE_S = 20.0
_DUE_BYTES, _MOST_BYTES = 1 << 17, 1 << 22
"""Of spools: some 800 rounds, and what is too much where the database has been locked for long."""
_MOST_WAITING = 20_000
_TRIM_EVERY_ROUNDS = 2000
_LAST_WORDS_S = 1.0


class Writer:
    """Takes events from whoever makes texts.

    Args:
        directory: of the database.
        switch: what is wanted.
        now: seconds since 1970.
        on_wipe: called when somebody has removed what was noted until then.

    Attributes:
        trouble: why nothing is recorded any more, on one line; None while all is well.
    """

    def __init__(
        self,
        directory: Path,
        switch: Switch,
        now: Callable[[], float],
        on_wipe: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._switch = switch
        self._now = now
        self._on_wipe = on_wipe
        self.trouble: str | None = None
        self._queue: deque[tuple[ReplyNotes, Event]] = deque()
        self._going_on: dict[int, ReplyNotes] = {}
        self._asleep, self._work = True, threading.Event()
        self._closing, self._until_closed = False, threading.Lock()
        self._until_closed.acquire()
        self._thread: threading.Thread | None = None
        self._spool: Spool | None = None
        self._database: Database | None = None
        self._since_trim = _TRIM_EVERY_ROUNDS

    @property
    def waiting(self) -> int:
        """How many events nobody has looked at yet."""
        return len(self._queue)

    def put(self, notes: ReplyNotes, event: Event) -> None:
        """Take an event; returns at once."""
        if self.trouble is not None or len(self._queue) >= _MOST_WAITING:
            return
        self._queue.append((notes, event))
        if self._asleep:
            self._wake()

    def close(self, wait_s: float = _LAST_WORDS_S) -> None:
        """Spool what is left; where spools have become large, write them into the database if it takes no longer than this.

        Closing twice is harmless.
        """
        if not self._closing:
            self._closing = True
            self._until_closed.release()
        self._work.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(wait_s)

    def _wake(self) -> None:
        self._work.set()
        if self._thread is None and not self._closing:
            self._thread = threading.Thread(
                target=self._write_until_closed, daemon=True, name="localspec-telemetry"
            )
            self._thread.start()

    def _write_until_closed(self) -> None:
        try:
            self._write()
        except Exception as error:  # whatever it is, the answer goes on
            self._give_up(getattr(error, "strerror", None) or str(error) or type(error).__name__)
        finally:
            if self._spool is not None:
                # What is left, somebody else will write; what has failed, nobody will.
                self._spool.close(keep=self.trouble is None and self._spool.size_bytes > 0)
            if self._database is not None:
                self._database.close()

    def _write(self) -> None:
        last = time.monotonic()
        while not self._closing or self._queue:
            if self._spooled_bytes == 0:
                self._sleep()
            if not self._closing:  # a lock wakes with less ado than an event
                self._until_closed.acquire(timeout=FLUSH_S)
            now = time.monotonic()
            if self._queue:
                self._take()
                last = now
            if self._spooled_bytes > _DUE_BYTES or now - last > _IDLE_S:
                self._store()
        if self._spooled_bytes and self._left_bytes() > _DUE_BYTES:
            self._store()

    @property
    def _spooled_bytes(self) -> int:
        return 0 if self._spool is None else self._spool.size_bytes

    def _left_bytes(self) -> int:
        """Return what all spools hold, those of others included."""
        from localspec.telemetry.spool import Spool  # noqa: PLC0415

        return sum(each.stat().st_size for each in self._directory.glob(Spool.NAMES))

    def _sleep(self) -> None:
        """Wait until there is something to do."""
        self._going_on.clear()
        self._asleep = True
        if not self._queue and not self._closing:
            self._work.wait()
        self._asleep = False
        self._work.clear()

    def _take(self) -> None:
        """Put what waits into the spool, in one write."""
        from localspec.telemetry.spool import Spool  # noqa: PLC0415 - an answer does not wait for it

        if self._spool is not None and self._spool.size_bytes == 0 and self._spool.is_gone:
            self._spool.close()
            self._spool = None
            self._on_wipe()
        if self._spool is None:
            self._spool = Spool.made(self._directory)
        if self._spool.size_bytes > _MOST_BYTES:
            self._spool.clear()
        news: dict[int, ReplyNotes] = {}
        for _ in range(len(self._queue)):  # what comes meanwhile is for the next time
            notes, event = self._queue.popleft()
            notes.take(event)
            news[notes.key] = notes
        self._spool.append([notes.stretch() for notes in news.values()])
        for key, notes in news.items():
            if notes.ended is not None:
                self._going_on.pop(key, None)
            else:
                self._going_on[key] = notes

    def _store(self) -> None:
        """Put what is spooled into the database; where that is locked, try again later."""
        import sqlite3  # noqa: PLC0415

        from localspec.telemetry.database import Database  # noqa: PLC0415
        from localspec.telemetry.taking_in import take_in, take_in_left_behind  # noqa: PLC0415

        if self._spool is None or self._spool.size_bytes == 0:
            return
        untagged = [each for each in self._going_on.values() if each.workload is None]
        for notes in untagged:
            notes.tag()
        try:
            if untagged:
                self._spool.append([notes.stretch() for notes in untagged])
            if self._database is None:
                switch = self._switch
                self._database = Database(self._directory, switch.megabytes, switch.days)
            take_in_left_behind(self._directory, self._database)
            self._since_trim += take_in(self._spool, self._database)
            if self._since_trim >= _TRIM_EVERY_ROUNDS:
                self._since_trim = 0
                self._database.keep_within_bounds(self._now())
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
                raise

    def _give_up(self, reason: str) -> None:
        self.trouble = (
            f"telemetry is off for this run ({' '.join(reason.split())}): see to {self._directory}"
        )
        self._queue.clear()
        self._going_on.clear()
