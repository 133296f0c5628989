"""Recorder: rounds go by and are noted; a thread writes them down every second. Nothing here ever fails an answer.

Where the file cannot be written, nothing more is recorded, and `trouble` says why. sqlite is imported by the thread,
when there is something to write.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from localspec.decoding.generate import Confirmed
from localspec.decoding.timings import Timings
from localspec.telemetry.notes import Ended, Event, Noted, Pieces, ReplyNotes, Times
from localspec.telemetry.switch import Switch

if TYPE_CHECKING:
    from pathlib import Path

    from localspec.telemetry.database import Database
    from localspec.telemetry.pair import Pair

FLUSH_S = 0.6
"""Less than the second that a kill may cost: the thread may wake late, and writing takes a while."""
_TRIM_EVERY_ROUNDS = 2000
_MOST_WAITING = 20_000
_LAST_WORDS_S = 1.0

Spell = Callable[[int], bytes]


class Recorder:
    """Traces replies of one pair; see `localspec.chat.tracing`.

    Args:
        directory: of the database.
        pair: what answers.
        switch: what is wanted.
        truncate_s: tells the seconds that removing from the caches of target and draft model took so far.
        spell: the bytes of an id; asked only where text is wanted.
        workload: what the user says all texts are; None guesses.
        clock: seconds, monotonic.
        now: seconds since 1970.

    Attributes:
        trouble: why nothing is recorded any more, on one line; None while all is well.
    """

    def __init__(
        self,
        directory: Path,
        pair: Pair,
        switch: Switch,
        truncate_s: Callable[[], tuple[float, float]],
        spell: Spell,
        workload: str | None = None,
        clock: Callable[[], float] = time.perf_counter,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory
        self._pair = pair
        self._switch = switch
        self.truncate_s = truncate_s
        self._spell = spell
        self._workload = workload
        self.clock = clock
        self._now = now
        self.trouble: str | None = None
        self._queue: deque[tuple[ReplyNotes, Event]] = deque()
        self._unwritten: dict[int, ReplyNotes] = {}
        self._spelled: set[int] = set()
        self._work, self._hurry = threading.Event(), threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._since_trim = _TRIM_EVERY_ROUNDS

    def begin(self, asked: str, tokens: Sequence[int], *, greedy: bool) -> ReplyTrace:
        """Start the trace of a reply."""
        text = self._switch.text
        notes = ReplyNotes(
            started_s=self._now(),
            asked=asked,
            prompt=tuple(tokens) if text else (),
            n_prompt=len(tokens),
            greedy=greedy,
            workload=self._workload,
            by_user=self._workload is not None,
            keeps_text=text,
        )
        trace = ReplyTrace(self, notes, self.clock())
        if text:
            self.spell(notes, tokens)
        return trace

    def put(self, notes: ReplyNotes, event: Event) -> None:
        """Take an event that is to be written down; returns at once."""
        if self.trouble is not None or len(self._queue) >= _MOST_WAITING:
            return
        self._queue.append((notes, event))
        if not self._work.is_set():
            self._work.set()
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(
                    target=self._write_until_closed, daemon=True, name="localspec-telemetry"
                )
                self._thread.start()

    def spell(self, notes: ReplyNotes, tokens: Sequence[int]) -> None:
        """Note the bytes of ids that were not met before, where text is wanted."""
        if not self._switch.text:
            return
        new = set(tokens) - self._spelled
        if new:
            self._spelled |= new
            self.put(notes, Pieces({token: self._spell(token) for token in new}))

    def close(self, wait_s: float = _LAST_WORDS_S) -> None:
        """Write what is left, as far as that takes no longer than this; closing twice is harmless."""
        self._closing = True
        self._hurry.set()
        self._work.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(wait_s)
            if thread.is_alive() and self.trouble is None:
                self.trouble = self._told("another process uses it")

    def _write_until_closed(self) -> None:
        import sqlite3  # noqa: PLC0415 - an answer does not wait for it

        from localspec.telemetry.database import Database  # noqa: PLC0415
        from localspec.telemetry.schema import TooNewError  # noqa: PLC0415
        from localspec.telemetry.writing import settle_all  # noqa: PLC0415

        database = None
        try:
            while not (self._closing and not self._queue and not self._unwritten):
                self._work.wait()
                self._hurry.wait(FLUSH_S)
                self._work.clear()
                try:
                    if database is None:
                        switch = self._switch
                        database = Database(self._directory, switch.megabytes, switch.days)
                        database.write(settle_all)
                    self._flush(database)
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode & 0xFF not in {
                        sqlite3.SQLITE_BUSY,
                        sqlite3.SQLITE_LOCKED,
                    }:
                        raise
                    self._work.set()  # another process writes: later
        except TooNewError:
            self._give_up("its database is of a later localspec")
        except Exception as error:  # whatever it is, the answer goes on
            self._give_up(getattr(error, "strerror", None) or str(error) or type(error).__name__)
        finally:
            if database is not None:
                database.close()

    def _flush(self, database: Database) -> None:
        from localspec.telemetry.writing import write_notes  # noqa: PLC0415

        while self._queue:
            notes, event = self._queue.popleft()
            notes.take(event)
            self._unwritten[id(notes)] = notes
        if not self._unwritten:
            return
        waiting = list(self._unwritten.values())
        n_rows = sum(len(notes.rows) for notes in waiting)
        if database.log_is_full:
            for notes in waiting:  # somebody reads and does not stop: the bound comes first
                notes.dropped()
            return
        ids = database.write(lambda c: write_notes(c, self._pair, waiting))
        for notes, number in zip(waiting, ids, strict=True):
            notes.written(number)
        self._unwritten.clear()
        self._since_trim += n_rows
        if self._since_trim >= _TRIM_EVERY_ROUNDS:
            self._since_trim = 0
            database.keep_within_bounds(self._now())

    def _give_up(self, reason: str) -> None:
        self.trouble = self._told(reason)
        self._queue.clear()
        self._unwritten.clear()

    def _told(self, reason: str) -> str:
        return (
            f"telemetry is off for this run ({' '.join(reason.split())}): see to {self._directory}"
        )


class ReplyTrace:
    """The trace of one reply. Notes in microseconds, and never raises.

    Args:
        recorder: takes what is noted.
        notes: of this reply.
        start: the recorder's clock at its beginning.
    """

    __slots__ = ("_notes", "_recorder", "_start")

    def __init__(self, recorder: Recorder, notes: ReplyNotes, start: float) -> None:
        self._recorder = recorder
        self._notes = notes
        self._start = start

    def note(self, confirmed: Confirmed, timings: Timings) -> None:
        """Note what a round confirmed."""
        recorder = self._recorder
        times = Times(
            timings.decode_s,
            timings.draft_prefill_s,
            timings.draft_s,
            timings.verify_s,
            timings.sample_s,
            *recorder.truncate_s(),
        )
        recorder.put(self._notes, Noted(confirmed, times))
        if self._notes.keeps_text:
            draft = () if confirmed.round is None else confirmed.round.draft.tokens
            recorder.spell(self._notes, (*draft, *confirmed.tokens))

    def end(self, text: str, timings: Timings) -> None:
        """Note the end of the reply."""
        wall_s = self._recorder.clock() - self._start
        self._recorder.put(self._notes, Ended(text, wall_s, timings.prefill_s, timings.decode_s))
