"""JobRun: every line is answered once, or says why not. Knows who answers only as an `Answerer`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from localspec.batch.ask import Form, LineRequest, ask_of, line_id
from localspec.batch.finished import FinishedLines
from localspec.batch.receipt import Receipt
from localspec.batch.record import Id, Record, answer_record, error_record
from localspec.batch.rows import Row
from localspec.batch.window import ReorderBuffer
from localspec.chat.events import Reply
from localspec.chat.requests import Answered, Answerer, Request, at_once
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.round import StopReason
from localspec.errors import LocalspecError, UsageError


@dataclass(slots=True)
class Tally:
    """What came of the lines so far.

    Args:
        answered: lines that were answered; those of earlier runs are among them.
        failed: lines that say why they were not, likewise.
        n_tokens: tokens that were generated, in this run.
        first_error: why the first line that failed in this run did.
    """

    answered: int = 0
    failed: int = 0
    n_tokens: int = 0
    first_error: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """What a batch is made of.

    Args:
        rows: lines to answer.
        form: how they become prompts.
        receipt: what they are answered with.
        finished: lines that have a record already.
        cancel: stops it.
        source: what messages call the lines.
        ready: says whether the next row, or the end, can be had without waiting.
        afresh: evaluate every line with nothing cached, so that no bit depends on the lines before.
        seen: returns a reply as it may be written.
    """

    rows: Iterator[Row]
    form: Form
    receipt: Receipt
    finished: FinishedLines
    cancel: CancelFlag
    source: str
    ready: Callable[[], bool] = at_once
    afresh: bool = False
    seen: Callable[[Reply], Reply] = lambda reply: reply


@dataclass(frozen=True, slots=True, eq=False)
class _UnderWay:
    """A line that is being answered."""

    row: Row
    id: Id
    model: str | None


class JobRun:
    """Answers the lines of a job.

    Args:
        job: what to answer.
        window: takes the records.
        on_record: is told after every line.
    """

    def __init__(
        self, job: Job, window: ReorderBuffer, on_record: Callable[[Tally], None] = lambda _: None
    ) -> None:
        failed = job.finished.failed
        self.tally = Tally(len(job.finished) - failed, failed)
        self.stopped = False
        self._job = job
        self._window = window
        self._on_record = on_record
        self._next: tuple[_UnderWay, LineRequest] | None = None
        self._exhausted = False
        self._under_way: dict[int, _UnderWay] = {}

    def needs_answers(self) -> bool:
        """Pass over the lines that need no model, and return whether there is one that does."""
        while self._next is None and not self._exhausted:
            self._advance()
        return self._next is not None

    def answer(self, answerer: Answerer, names: Record) -> None:
        """Answer all lines; when it stops before the end, `stopped` says so.

        Args:
            answerer: who answers; asked again when the window was full and is empty.
            names: what the records call the models.

        Raises:
            LocalspecError: a record cannot be written, or the lines cannot be read further.
            UsageError: a line that has a record is not the one that was answered.
        """
        try:
            while not self.stopped and self.needs_answers():
                for answered in answerer.answer(self._requests(), self._ready):
                    self._settle(answered, names)
        except Cancelled:
            self.stopped = True
        finally:
            self._window.release()

    def _requests(self) -> Iterator[Request]:
        while (taken := self._taken()) is not None:
            line, ask = taken
            number = line.row.number
            request = Request(number, ask.prompt, ask.options, ask.raw, afresh=self._job.afresh)
            self._under_way[number] = line
            self._window.expect(number)
            yield request

    def _taken(self) -> tuple[_UnderWay, LineRequest] | None:
        """Return the next line to answer; None at the end, and where the window is full."""
        while self._next is None and not self._exhausted and not self._window.full:
            self._advance()
        if self._window.full:
            return None
        taken, self._next = self._next, None
        return taken

    def _ready(self) -> bool:
        """Say whether it is known, without waiting, which line is next, or that none is to be had."""
        while not self._is_known and self._job.ready():
            self._advance()
        return self._is_known

    @property
    def _is_known(self) -> bool:
        return self._next is not None or self._exhausted or self._window.full

    def _advance(self) -> None:
        """Take the next row: one to answer, one to pass over, or the end."""
        row = next(self._job.rows, None)
        if row is None or self._job.cancel.is_set:
            self.stopped = self.stopped or row is not None
            self._exhausted = True
            return
        if self._is_finished(row):
            return
        known: Id = None
        try:
            known = line_id(row)
            ask = ask_of(row, self._job.form, self._job.receipt.seed)
        except LocalspecError as error:
            self._window.expect(row.number)
            self._fail(row, known, error)
            return
        self._next = _UnderWay(row, known, ask.model), ask

    def _is_finished(self, row: Row) -> bool:
        digest = self._job.finished.digest_of(row.number)
        if digest is not None and digest != row.digest:
            raise UsageError(
                f"line {row.number} of {self._job.source} is not the one that was answered: "
                "the input has changed since: choose another output, or use --retry-failed for corrected lines"
            )
        return digest is not None

    def _settle(self, answered: Answered, names: Record) -> None:
        line, reply = self._under_way.pop(answered.key), answered.reply
        if reply is None:
            self._fail(line.row, line.id, answered.error or LocalspecError("there is no answer"))
            return
        if reply.stop_reason is StopReason.CANCELLED:
            self.stopped = True
            return
        self.tally.answered += 1
        self.tally.n_tokens += reply.completion_tokens
        model = names if line.model is None else {**names, "asked": line.model}
        record = answer_record(line.row, line.id, self._job.seen(reply), model, self._job.receipt)
        self._window.place(line.row.number, record)
        self._on_record(self.tally)

    def _fail(self, row: Row, known: Id, error: LocalspecError) -> None:
        self.tally.failed += 1
        self.tally.first_error = self.tally.first_error or f"line {row.number}: {error}"
        self._window.place(row.number, error_record(row, known, error, self._job.receipt))
        self._on_record(self.tally)
