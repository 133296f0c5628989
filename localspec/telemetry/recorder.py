"""Recorder: rounds go by and are noted, for a thread to write down. See `writer` for what becomes of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from localspec.decoding.round import Round
from localspec.telemetry.notes import NotedEnd, Pieces, ReplyNotes
from localspec.telemetry.switch import Switch
from localspec.telemetry.writer import Writer

if TYPE_CHECKING:
    from pathlib import Path

    from localspec.telemetry.pair import Pair

Spell = Callable[[int], bytes]


class Recorder:
    """Notes the replies of one pair.

    Args:
        directory: of the database.
        pair: what answers.
        switch: what is wanted.
        spell: the bytes of an id; asked only where text is wanted.
        workload: what the user says all texts are; None guesses.
        clock: seconds, monotonic.
        now: seconds since 1970.
    """

    def __init__(
        self,
        directory: Path,
        pair: Pair,
        switch: Switch,
        spell: Spell,
        workload: str | None = None,
        clock: Callable[[], float] = time.perf_counter,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.directory = directory
        self.pair = pair
        self._switch = switch
        self._spell = spell
        self._workload = workload
        self.clock = clock
        self._now = now
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

    def note(self, done: Round) -> None:
        """Note a round."""
        recorder, notes = self._recorder, self._notes
        recorder.writer.put(notes, done)
        if notes.keeps_text:
            recorder.spell(notes, (*done.draft.tokens, *done.confirmed))

    def end(self, text: str, prefill_s: float, decode_s: float) -> None:
        """Note the end of the reply.

        Args:
            text: all of it.
            prefill_s: seconds of evaluating the prompt.
            decode_s: seconds from there to the last token.
        """
        wall_s = self._recorder.clock() - self._start
        self._recorder.writer.put(self._notes, NotedEnd(text, prefill_s, decode_s, wall_s))
