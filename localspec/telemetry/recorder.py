"""Recorder: notes a reply while it is made, and has a thread write one record of it at its end.

Nothing here ever fails an answer, or makes it wait. Where something is impossible, nothing more is recorded, and
`trouble` says why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING

from localspec.telemetry.reply import Pair, ReplyRecord
from localspec.telemetry.text import Said

if TYPE_CHECKING:
    from pathlib import Path

    from localspec.decoding.round import Round
    from localspec.telemetry.switch import Switch

_LAST_WORDS_S = 1.0


class Recorder:
    """Records the replies of one pair.

    Args:
        directory: of the records.
        pair: what answers.
        switch: what is wanted.
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
        spell: Callable[[int], bytes],
        workload: str | None = None,
        clock: Callable[[], float] = time.perf_counter,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.directory = directory
        self.pair = pair
        self.switch = switch
        self.spell = spell
        self.workload = workload
        self.clock = clock
        self.now = now
        self.trouble: str | None = None
        self._ended: SimpleQueue[ReplyTrace | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self, asked: str, tokens: Sequence[int], *, greedy: bool) -> ReplyTrace:
        """Start the trace of a reply.

        Args:
            asked: what the user said last.
            tokens: ids of the whole prompt.
            greedy: whether the temperature is 0.
        """
        return ReplyTrace(self, asked, tokens, greedy=greedy)

    def put(self, trace: ReplyTrace) -> None:
        """Have a reply that has ended written down; returns at once."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._write, daemon=True, name="localspec-telemetry"
            )
            self._thread.start()
        self._ended.put(trace)

    def close(self, wait_s: float = _LAST_WORDS_S) -> None:
        """Write what is left, if it takes no longer than this; closing twice is harmless."""
        if self._thread is not None:
            self._ended.put(None)
            self._thread.join(wait_s)

    def give_up(self, error: Exception) -> None:
        """Record nothing any more, because of this."""
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        self.trouble = (
            f"telemetry is off for this run ({' '.join(reason.split())}): see to {self.directory}"
        )

    def _write(self) -> None:
        while (trace := self._ended.get()) is not None:
            if self.trouble is None:
                try:
                    trace.write()
                except Exception as error:
                    self.give_up(error)


class ReplyTrace:
    """The trace of one reply. Notes in microseconds, and never raises.

    Args:
        recorder: takes it at the end.
        asked: what the user said last.
        tokens: ids of the whole prompt.
        greedy: whether the temperature is 0.
    """

    def __init__(
        self, recorder: Recorder, asked: str, tokens: Sequence[int], *, greedy: bool
    ) -> None:
        self._recorder = recorder
        self._start = recorder.clock()
        self._asked, self._text = asked, ""
        self._record = ReplyRecord(recorder.now(), recorder.pair, greedy, len(tokens))
        self._said = Said(tokens) if recorder.switch.text else None

    def note(self, done: Round) -> None:
        """Note a round."""
        try:
            self._record.add(done)
            if self._said is not None:
                self._said.add(done)
        except Exception as error:
            self._recorder.give_up(error)

    def end(self, text: str, prefill_s: float, decode_s: float) -> None:
        """Note the end of the reply.

        Args:
            text: all of it.
            prefill_s: seconds of evaluating the prompt.
            decode_s: seconds from there to the last token.
        """
        record, self._text = self._record, text
        record.prefill_s, record.decode_s = prefill_s, decode_s
        record.wall_s = self._recorder.clock() - self._start
        if self._said is not None:
            self._said.spell(self._recorder.spell)
        self._recorder.put(self)

    def write(self) -> None:
        """Write the record; called by the recorder's thread.

        Raises:
            OSError: it cannot be written.
        """
        # What is imported here, no answer has to wait for.
        from localspec.telemetry.storing import store  # noqa: PLC0415
        from localspec.telemetry.workload import workload_of  # noqa: PLC0415

        recorder, record = self._recorder, self._record
        record.by_user = recorder.workload is not None
        record.workload = recorder.workload or workload_of(self._asked, self._text)
        store(recorder.directory, record, self._said, recorder.switch, recorder.now())
