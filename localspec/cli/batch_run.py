"""BatchRun: the way of a batch from what was asked to an exit code."""

import secrets
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from localspec.batch.batch import Job, JobRun, Tally
from localspec.batch.finished import FinishedLines
from localspec.batch.output import FileOutput, StreamOutput
from localspec.batch.read_ahead import ReadAhead
from localspec.batch.receipt import Receipt
from localspec.batch.record import Record
from localspec.batch.resumed import read_finished, require_receipt, take_up
from localspec.batch.rewriting import Appender
from localspec.batch.rows import Row, read_rows
from localspec.batch.source import Source
from localspec.batch.window import ReorderBuffer
from localspec.chat.requests import Answerer, at_once
from localspec.cli import INTERRUPTED
from localspec.cli.batch_asked import Asked, receipt_of
from localspec.cli.batch_progress import BatchProgress, summary
from localspec.cli.gating import Gating
from localspec.cli.interrupt import cancel_on_interrupt, code_of, unwind_on_terminate
from localspec.cli.progress import ProgressLine
from localspec.cli.recorded import recorded
from localspec.cli.resident import resident
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.display import notice
from localspec.engine.client import EngineClient
from localspec.engine.protocol import Ready
from localspec.engine.remote import EngineGone, RemoteAssistant
from localspec.engine.shared import SharedEngine
from localspec.errors import LocalspecError
from localspec.launch.load import load
from localspec.launch.observe import Telemetry
from localspec.launch.plan import LoadPlan, make_plan
from localspec.options import LaunchOptions

SOME_FAILED = 5
_SEED_BITS = 32
_USUAL_PARALLEL = 4
"""What a server answers at a time, if its user did not say."""
_ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class BatchRun:
    """A batch, from the opened files on.

    Args:
        asked: what to do.
        source: the lines.
        output: takes the records.
        cancel: stops it.

    Raises:
        UsageError: the output is to be taken up, and is none.
    """

    def __init__(
        self, asked: Asked, source: Source, output: FileOutput | StreamOutput, cancel: CancelFlag
    ) -> None:
        self._asked = asked
        self._source = source
        self._output = output
        self._cancel = cancel
        self._finished, self._whole_bytes = FinishedLines(), 0
        if asked.resumption is not None and isinstance(output, FileOutput):
            form = asked.output_format
            self._finished, self._whole_bytes = read_finished(output, form, asked.resumption)

    def run(self) -> int:
        """Answer the lines, and return the exit code."""
        asked = self._asked
        engine = resident(asked.launch, {"own": asked.own, "workload": asked.workload})
        launch = _without_workers(asked.launch) if asked.launch.workers else asked.launch
        # What a server has in memory already needs no more of it.
        launch = replace(launch, fit=launch.fit and engine is None)
        with self._line() as line, unwind_on_terminate():
            plan = make_plan(launch, line.download, parallel=asked.parallel)
        with cancel_on_interrupt(self._cancel, _ENDINGS) as received:
            try:
                with self._rows() as (rows, ready):
                    tally = self._answered(plan, engine, rows, ready)
            except EngineGone as error:
                again = f"use --resume to continue {self._output.name}"
                raise LocalspecError(
                    f"{error}: {again if self._output.is_file else 'start again'}"
                ) from None
            except Cancelled:
                if self._output.is_file:
                    self._tell(f"stopped: use --resume to continue {self._output.name}")
                return code_of(received[0]) if received else INTERRUPTED
        return SOME_FAILED if tally.failed else 0

    @contextmanager
    def _rows(self) -> Iterator[tuple[Iterator[Row], Callable[[], bool]]]:
        """Open the rows of the source, and what tells whether the next one is there."""
        asked, source = self._asked, self._source
        plain = asked.form.template is not None
        rows = read_rows(
            source.lines(), asked.input_format, source.name, asked.form.needed, plain=plain
        )
        if not source.waits:
            yield rows, at_once
            return
        ahead = ReadAhead(rows)
        try:
            yield ahead, ahead.ready
        finally:
            source.stop()
            ahead.close()

    def _answered(
        self,
        plan: LoadPlan,
        engine: SharedEngine | None,
        rows: Iterator[Row],
        ready: Callable[[], bool],
    ) -> Tally:
        """Answer the lines.

        Raises:
            Cancelled: it was stopped before all of them were.
            EngineGone: the server that answered is gone.
        """
        asked, source = self._asked, self._source
        receipt = self._receipt(plan)
        to_terminal = not self._output.is_file and sys.stdout.isatty()
        appender = Appender(
            self._output, asked.output_format, self._finished, to_terminal=to_terminal
        )
        progress = BatchProgress(
            enabled=not asked.quiet, drawing=not to_terminal, share=source.share
        )
        gating = Gating(asked.gate)
        job = Job(
            rows,
            asked.form,
            receipt,
            self._finished,
            self._cancel,
            source.name,
            ready,
            afresh=asked.launch.exact,
            seen=gating.whole,
        )
        batch = JobRun(job, ReorderBuffer(appender.write, ordered=asked.ordered), progress.tell)
        if batch.needs_answers():
            told = f"seed {receipt.seed}"
            try:
                if engine is not None:
                    self._answer_by(engine, engine.ready, batch, told, progress)
                elif asked.launch.workers:
                    self._answer_apart(batch, told, progress)
                else:
                    self._answer(batch, plan, told, progress)
            finally:
                gating.close()
        if batch.stopped:
            raise Cancelled
        if asked.ordered:
            appender.put_in_order()
        self._tell(summary(batch.tally, progress.elapsed_s))
        return batch.tally

    def _receipt(self, plan: LoadPlan) -> Receipt:
        """Return what the records will be made with, once it is clear that the output may have them."""
        seed = self._asked.form.options.seed
        if seed is None:
            seed = self._finished.seed
        if seed is None:
            seed = secrets.randbits(_SEED_BITS)

        def on_share(name: str, share: float) -> None:
            if self._cancel.is_set:
                raise Cancelled
            line.hash(name, share)

        with self._line() as line:
            receipt = receipt_of(self._asked, plan, seed, on_share)
        resumption, output = self._asked.resumption, self._output
        if resumption is not None and isinstance(output, FileOutput):
            require_receipt(self._finished, receipt, resumption, output.name)
            take_up(output, self._asked.output_format, self._whole_bytes, self._finished)
        return receipt

    def _answer(self, batch: JobRun, plan: LoadPlan, told: str, progress: BatchProgress) -> None:
        asked, telemetry = self._asked, Telemetry(self._asked.workload)
        with self._line() as line:
            assistant = load(
                plan,
                self._cancel,
                line.load,
                line.measure,
                parallel=asked.parallel,
                observe=telemetry.observe,
            ).assistant
        if not asked.form.raw:
            _ = assistant.template  # without one, every line would say so
        self._tell(*assistant.notes, told)
        models = assistant.models
        names = {"target": models.target_name, "draft_model": models.draft_model_name}
        with recorded(telemetry, quiet=asked.quiet):
            _let_answer(batch, assistant, names, progress)

    def _answer_apart(self, batch: JobRun, told: str, progress: BatchProgress) -> None:
        """Answer by an engine in a process of its own."""
        from localspec.cli.own_engine import loaded_engine  # noqa: PLC0415 - few have workers

        asked = self._asked
        arguments = ["auto" if asked.parallel is None else str(asked.parallel)]
        arguments += [f"workload={asked.workload}"] if asked.workload else []
        with self._line() as line:
            found = loaded_engine(asked.launch, line, lambda: self._cancel.is_set, *arguments)
        if found is None:
            raise Cancelled
        self._answer_by(*found, batch, told, progress)

    def _answer_by(
        self,
        engine: SharedEngine | EngineClient,
        ready: Ready,
        batch: JobRun,
        told: str,
        progress: BatchProgress,
    ) -> None:
        count = self._asked.parallel or _USUAL_PARALLEL
        self._tell(*ready.notes, told)
        with closing(RemoteAssistant(engine, lambda: self._cancel.is_set, count)) as assistant:
            names = {"target": ready.target, "draft_model": ready.draft_model}
            _let_answer(batch, assistant, names, progress)

    def _line(self) -> ProgressLine:
        return ProgressLine(enabled=not self._asked.quiet)

    def _tell(self, *sentences: str) -> None:
        for each in () if self._asked.quiet else sentences:
            notice(each)


def _without_workers(launch: LaunchOptions) -> LaunchOptions:
    """Return what can be planned here: workers are their engine's, which alone knows their devices, and looks for itself."""
    anywhere = replace(launch.load, devices=(), split="layers", tensor_split=None)
    return replace(launch, load=anywhere, draft_devices=(), workers=(), fit=False)


def _let_answer(batch: JobRun, answerer: Answerer, names: Record, progress: BatchProgress) -> None:
    progress.begin()
    try:
        batch.answer(answerer, names)
    finally:
        progress.end()
