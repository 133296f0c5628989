"""Recorder: notes a reply while it is made, and has a thread write one record of it at its end.

Nothing here ever fails an answer, or makes it wait. Where something is impossible, nothing more is recorded, and
`trouble` says why.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Optional

import msgspec

from localspec.decoding.round import Round
from localspec.options.recording import Switch
from localspec.telemetry.reply import Pair, ReplyRecord
from localspec.telemetry.text import ReplyTokens

_LAST_WORDS_S = 1.0


@dataclass(slots=True)
class Recorder:
    """Records the replies of one pair.

    Args:
        directory: of the records.
        pair: what answers.
        switch: what is wanted.
        spell: the bytes of an id; question only where text is wanted.
        workload: what the user says all texts are; None guesses.
        now: seconds since 1970.
        is_secret: whether a text has anything that must not be recorded; by default it has.

    Attributes:
        trouble: why nothing is recorded any more, on one line; None while all is well.
    """

    directory: Path
    pair: Pair
    switch: Switch
    spell: Callable[[int], bytes]
    workload: str | None = None
    now: Callable[[], float] = time.time
    is_secret: Callable[[str], bool] = lambda _text: True
    trouble: str | None = field(default=None, init=False)
    _ended: SimpleQueue[Optional["ReplyTrace"]] = field(default_factory=SimpleQueue, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def begin(self, question: str, tokens: Sequence[int], *, greedy: bool) -> "ReplyTrace":
        """Start the trace of a reply.

        Args:
            question: what the user said last.
            tokens: ids of the whole prompt; negative ones are of pictures and sounds.
            greedy: whether the temperature is 0.
        """
        record = ReplyRecord(self.now(), self.pair, greedy, len(tokens))
        # Without its picture, a text about it teaches a draft model nothing.
        is_words = self.switch.text and min(tokens, default=0) >= 0
        noted = ReplyTokens(list(tokens)) if is_words else None
        return ReplyTrace(self, question, record, noted, time.perf_counter())

    def put(self, trace: "ReplyTrace") -> None:
        """Have a reply that has ended written down; returns at once."""
        if self._thread is None and self.trouble is None:
            thread = threading.Thread(target=self._write, daemon=True, name="telemetry")
            try:
                thread.start()
            except RuntimeError as error:  # too few processes are allowed
                self.give_up(error)
                return
            self._thread = thread
        self._ended.put(trace)

    def close(self, wait_s: float = _LAST_WORDS_S) -> None:
        """Write what is left, if it takes no longer than this; closing twice is harmless."""
        if self._thread is not None:
            self._ended.put(None)
            self._thread.join(wait_s)

    def give_up(self, error: Exception) -> None:
        """Record nothing any more, because of this."""
        cause = error.__cause__ or error
        reason = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        from localspec.storage.database import is_full  # noqa: PLC0415 - mostly there is room

        reason, advice = " ".join(reason.split()), f"check {self.directory}"
        if is_full(cause, self.directory / "replies.db"):
            reason, advice = "the disk is full", "free some space"
        self.trouble = f"telemetry is off for this run ({reason}): {advice}"

    def _write(self) -> None:
        while (trace := self._ended.get()) is not None:
            if self.trouble is None:
                try:
                    trace.write()
                except Exception as error:  # whatever it is, the answer goes on
                    self.give_up(error)


@dataclass(slots=True, eq=False)
class ReplyTrace:
    """The trace of one reply. Notes in microseconds, and never raises.

    Args:
        recorder: takes it at the end.
        question: what the user said last.
        record: counts.
        tokens: notes what is said; None where that is not wanted.
        start_s: `time.perf_counter` at the beginning.
        text: all of the reply, once it has ended.
        findings: how often each rule of a gate had a match, and what was done about it.
    """

    recorder: Recorder
    question: str
    record: ReplyRecord
    tokens: ReplyTokens | None
    start_s: float
    text: str = ""
    findings: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def note(self, done: Round) -> None:
        """Note a round."""
        try:
            self.record.add(done)
            if self.tokens is not None:
                self.tokens.add(done)
        except Exception as error:  # whatever it is, the answer goes on
            self.recorder.give_up(error)

    def end(
        self,
        text: str,
        prefill_s: float,
        decode_s: float,
        seed: int | None = None,
        plain_s: float = 0.0,
    ) -> None:
        """Note the end of the reply.

        Args:
            text: all of it.
            prefill_s: seconds of evaluating the prompt.
            decode_s: seconds from there to the last token.
            seed: of the reply.
            plain_s: seconds that it would have taken without drafting; 0 where that is not known.
        """
        self.record.plain_s = plain_s
        self.text, self.record.prefill_s, self.record.decode_s = text, prefill_s, decode_s
        self.record.wall_s = time.perf_counter() - self.start_s
        if self.tokens is not None:
            self.tokens.seed = seed
            self.tokens.spell(self.recorder.spell)
        self.recorder.put(self)

    def write(self) -> None:
        """Write the record; called by the recorder's thread.

        Raises:
            LocalspecError: it cannot be written.
        """
        # What is imported here, no answer has to wait for.
        from localspec.telemetry.log import store  # noqa: PLC0415
        from localspec.telemetry.workload import workload_of  # noqa: PLC0415

        recorder, record = self.recorder, self.record
        record.by_user = recorder.workload is not None
        record.workload = recorder.workload or workload_of(self.question, self.text)
        # A text with holes would teach a draft model nothing.
        private = self.tokens is not None and self.tokens.has_secret(recorder.is_secret)
        text = None if self.tokens is None or private else msgspec.json.encode(self.tokens)
        store(recorder.directory, record, text, self.findings, recorder.switch, recorder.now())
