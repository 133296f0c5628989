"""Batch: every line gets one record: an answer, or an error. Knows the engine only as an `RequestDriver`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from localspec.batch.output import FinishedLines
from localspec.batch.record import Id, Receipt, error_fields, record_of, reply_fields
from localspec.batch.request import Form, line_id, line_request, misspelt_options, requested_model
from localspec.batch.source import Line
from localspec.chat.request import Request, RequestDriver, RequestOutcome, at_once
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.errors import LocalspecError, UsageError

MOST_WAITING, _MOST_IDS = 1024, 100_000
"""Lines that may be under way, or wait for one before them; ids that are compared with later ones."""

_Record = dict[str, Any]


@dataclass(slots=True)
class Tally:
    """What came of the lines so far.

    Args:
        answered: lines that were answered; those of earlier runs are among them.
        failed: lines that have an error, those of earlier runs too.
        n_tokens: tokens that were generated, in this run.
        first_error: why the first line that failed in this run did.
        earlier: lines that earlier runs answered.
    """

    answered: int = 0
    failed: int = 0
    n_tokens: int = 0
    first_error: str = ""
    earlier: int = 0


@dataclass(slots=True, eq=False)
class BatchJob:
    """Answers lines.

    Args:
        lines: to answer.
        form: how they become prompts.
        receipt: what they are answered with.
        finished: lines that have a record already.
        write: takes the number and the record of a line.
        cancel: stops it.
        source: what messages call the lines.
        ready: says whether the next line, or the end, can be had without waiting.
        deterministic: evaluate every line with nothing cached, so that no bit depends on the lines before.
        ordered: write the records in the order of the lines.
        most: lines that may be held for that; while there are as many, no more are taken.
        notify: called after every line.

    Attributes:
        stopped: whether it ended before the last line.
        notes: on lines and replies, each once.
    """

    lines: Iterator[Line]
    form: Form
    receipt: Receipt
    finished: FinishedLines
    write: Callable[[int, _Record], None]
    cancel: CancelFlag
    source: str
    ready: Callable[[], bool] = at_once
    deterministic: bool = False
    ordered: bool = True
    most: int = MOST_WAITING
    notify: Callable[[Tally], None] = lambda _: None
    tally: Tally = field(init=False)
    stopped: bool = field(default=False, init=False)
    notes: list[str] = field(default_factory=list, init=False)
    _next: Request | None = field(default=None, init=False)
    _exhausted: bool = field(default=False, init=False)
    _repeated: bool = field(default=False, init=False)
    # Of the first lines, by id: more would take memory, and a note says so once.
    _lines_of_ids: dict[Id, int] = field(default_factory=dict, init=False)
    _under_way: dict[int, Line] = field(default_factory=dict, init=False)
    # In the order of the lines; None is a line that is under way.
    _held: dict[int, _Record | None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        failed = len(self.finished.failed)
        # Each line has its own: without this, all of them would be made without it.
        self.form = replace(self.form, options=replace(self.form.options, seed=None))
        answered = len(self.finished.digests) - failed
        self.tally = Tally(answered, failed, earlier=answered)

    def needs_answers(self) -> bool:
        """Pass over the lines that need no model, and return whether there is one that does."""
        while self._next is None and not self._exhausted:
            self._advance()
        return self._next is not None

    def answer(self, driver: RequestDriver, models: Mapping[str, Any]) -> None:
        """Answer all lines; if it stops before the end, `stopped` is set.

        Args:
            driver: takes the requests; called again if too many records were held.
            models: what the records call the models.

        Raises:
            LocalspecError: a record cannot be written, or the lines cannot be read further.
            UsageError: a line that has a record changed since the last run.
        """
        try:
            while not self.stopped and self.needs_answers():
                for answered in driver.outcomes(self._requests(), self._is_ready):
                    self._settle(answered, models)
                # A stop between two passes cancels no answer that could say so.
                if self.cancel.is_set and (
                    self._next is not None or self._under_way or not self._exhausted
                ):
                    self.stopped = True
        except Cancelled:
            self.stopped = True
        finally:
            for number, record in self._held.items():
                if record is not None:
                    self.write(number, record)
            self._held.clear()

    def _requests(self) -> Iterator[Request]:
        """Yield requests until the end, or until too many records are held."""
        while True:
            while not self._is_known:
                self._advance()
            if self._next is None or self._full:
                return
            request, self._next = self._next, None
            self._hold(request.id)
            yield request

    def _is_ready(self) -> bool:
        """Return whether the next request, or that there is none, is known without waiting."""
        while not self._is_known and self.ready():
            self._advance()
        return self._is_known

    @property
    def _is_known(self) -> bool:
        return self._next is not None or self._exhausted or self._full

    @property
    def _full(self) -> bool:
        return len(self._held) >= self.most

    def _advance(self) -> None:
        """Take the next line: one to answer, one to pass over, or the end."""
        line = next(self.lines, None)
        if line is None or self.cancel.is_set:
            self.stopped = self.stopped or line is not None
            self._exhausted = True
            return
        digest = self.finished.digests.get(line.number)
        if digest == line.digest:
            return
        if digest is not None:
            what = f"line {line.number} of {self.source} changed since the last run"
            if line.number in self.finished.failed:
                raise UsageError(f"{what}: --retry-failed answers it, or choose another output")
            raise UsageError(
                f"{what}, and it was answered already: undo the change, or choose another output"
            )
        try:
            self._next = line_request(
                line, self.form, self.receipt.seed, deterministic=self.deterministic
            )
            self._under_way[line.number] = line
            self._note_doubts(line)
        except LocalspecError as error:
            self._hold(line.number)
            self._fail(line, error)

    def _note_doubts(self, line: Line) -> None:
        """Note what is answered, though perhaps not as it was meant."""
        for each in misspelt_options(line, self.form):
            self._note(each)
        own = line_id(line)
        first = self._lines_of_ids.get(own)
        if first is not None and not self._repeated:
            self._repeated = True
            self._note(
                f"lines {first} and {line.number} have the id {own!r}: lines of one id have one seed"
            )
        elif own is not None and len(self._lines_of_ids) < _MOST_IDS:
            self._lines_of_ids[own] = line.number

    def _note(self, note: str) -> None:
        if note and note not in self.notes:
            self.notes.append(note)

    def _settle(self, answered: RequestOutcome, models: Mapping[str, Any]) -> None:
        line, reply = self._under_way.pop(answered.key), answered.reply
        if reply is None:
            self._fail(line, answered.error or LocalspecError("there is no answer"))
        elif answered.is_cancelled:
            self.stopped = True
        else:
            self._note(reply.note)
            self.tally.answered += 1
            self.tally.n_tokens += reply.completion_tokens
            requested = requested_model(line, self.form)
            model = dict(models) if requested is None else {**models, "asked": requested}
            self._write(line, reply_fields(reply, model, answered.reason))

    def _fail(self, line: Line, error: LocalspecError) -> None:
        self.tally.failed += 1
        self.tally.first_error = self.tally.first_error or f"line {line.number}: {error}"
        self._write(line, error_fields(error))

    def _hold(self, number: int) -> None:
        if self.ordered:
            self._held[number] = None

    def _write(self, line: Line, outcome: _Record) -> None:
        """Write the record of a line, once those before it are written."""
        known = None
        with suppress(UsageError):  # which is what its record says
            known = line_id(line)
        record = record_of(line, known, self.receipt, **outcome)
        if not self.ordered:
            self.write(line.number, record)
        else:
            self._held[line.number] = record
        while self._held:
            number, first = next(iter(self._held.items()))
            if first is None:
                break
            del self._held[number]
            self.write(number, first)
        self.notify(self.tally)
