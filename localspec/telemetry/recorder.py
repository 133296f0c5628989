"""Recorder: rounds go by and are noted, for a thread to write down. See `writer` for what becomes of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from localspec.decoding.generate import Confirmed
from localspec.decoding.timings import Timings
from localspec.telemetry.notes import Noted, NotedEnd, Pieces, ReplyNotes
from localspec.telemetry.switch import Switch
from localspec.telemetry.writer import Writer

if TYPE_CHECKING:
    from pathlib import Path

    from localspec.telemetry.pair import Pair

Spell = Callable[[int], bytes]


def alone() -> int:
    """Return how many replies share the passes where nobody else is answered."""
    return 1


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
        running: tells how many replies share the passes just now.
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
        running: Callable[[], int] = alone,
    ) -> None:
        self.directory = directory
        self.pair = pair
        self._switch = switch
        self.truncate_s = truncate_s
        self._spell = spell
        self._workload = workload
        self.clock = clock
        self._now = now
        self.running = running
        self._spelled: set[int] = set()
        self.writer = Writer(directory, switch, now, self._spelled.clear)

    @property
    def trouble(self) -> str | None:
        """Why nothing is recorded any more, on one line; None while all is well."""
        return self.writer.trouble

    def begin(self, asked: str, tokens: Sequence[int], *, greedy: bool) -> ReplyTrace:
        """Start the trace of a reply."""
        notes = ReplyNotes(
            self.pair,
            self._now(),
            asked,
            tokens,
            greedy=greedy,
            workload=self._workload,
            keeps_text=self._switch.text,
        )
        trace = ReplyTrace(self, notes, self.clock())
        if notes.keeps_text:
            self.spell(notes, tokens)
        return trace

    def spell(self, notes: ReplyNotes, tokens: Sequence[int]) -> None:
        """Note the bytes of ids that were not met before, where text is wanted."""
        new = set(tokens) - self._spelled
        if new:
            self._spelled |= new
            self.writer.put(notes, Pieces({token: self._spell(token) for token in new}))

    def close(self, wait_s: float | None = None) -> None:
        """Write what is left; closing twice is harmless. See `Writer.close`."""
        if wait_s is None:
            self.writer.close()
        else:
            self.writer.close(wait_s)


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
        recorder, notes = self._recorder, self._notes
        times = (
            timings.decode_s,
            timings.draft_prefill_s,
            timings.draft_s,
            timings.verify_s,
            timings.sample_s,
            *recorder.truncate_s(),
        )
        recorder.writer.put(notes, Noted(confirmed, times, recorder.running()))
        if notes.keeps_text:
            draft = () if confirmed.round is None else confirmed.round.draft.tokens
            recorder.spell(notes, (*draft, *confirmed.tokens))

    def end(self, text: str, timings: Timings) -> None:
        """Note the end of the reply."""
        wall_s = self._recorder.clock() - self._start
        ended = NotedEnd(text, timings.prefill_s, timings.decode_s, wall_s)
        self._recorder.writer.put(self._notes, ended)
