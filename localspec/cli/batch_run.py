"""BatchRun: a batch from its options to an exit code, with progress on stderr."""

import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from localspec import __version__
from localspec.batch.batch import BatchJob, Tally
from localspec.batch.output import FinishedLines, Output
from localspec.batch.record import Receipt, encoded, options_digest
from localspec.batch.request import Form
from localspec.batch.source import Format, ReadAhead, Source
from localspec.chat.request import at_once
from localspec.cli import INTERRUPTED
from localspec.cli.interrupt import Interrupts, code_of
from localspec.cli.output import ProgressLine, RedrawnLine
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.display import duration_text, notice
from localspec.engine.engine import Engine, EngineGone, Interrupted, entered
from localspec.engine.protocol import Load
from localspec.engine.shared import SharedEngine
from localspec.errors import LocalspecError
from localspec.launch.engine import open_engine, resident
from localspec.launch.plan import LoadPlan, make_plan
from localspec.llama.backend import build
from localspec.models.gguf import model_files
from localspec.models.store import model_sha256
from localspec.options import LaunchOptions
from localspec.storage.paths import data_dir

SOME_FAILED = 5
_SEED_BITS = 32
_REPORT_EVERY_S = 30.0
_DRAW_EVERY_S = 0.1
_ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """Options of the command line.

    Args:
        launch: what to answer with.
        form: how lines become prompts; its options have the seed, if one was given.
        input_format: of the lines.
        resume: continue an output that is there.
        retry_failed: answer lines again whose records are errors.
        mix_receipts: resume whatever the records were made with.
        ordered: whether records keep the order of the lines.
        quiet: print nothing but errors.
        workload: what kind of text the answers are; None guesses.
        parallel: how many lines to answer at a time; None takes what pays.
        own: load the models here, even if a server has them in memory.
    """

    launch: LaunchOptions
    form: Form
    input_format: Format = "jsonl"
    resume: bool = False
    retry_failed: bool = False
    mix_receipts: bool = False
    ordered: bool = True
    quiet: bool = False
    workload: str | None = None
    parallel: int | None = 1
    own: bool = False

    @property
    def digest(self) -> str:
        """The digest of all that a line is answered by.

        What drafts, how many lines are answered at a time, and on which device, is not in it: it
        may round differently, which `--exact` rules out, but changes nothing else.
        """
        form, loading = self.form, self.launch.load
        return options_digest(
            {
                **asdict(form.options),
                "seed": None,  # the receipt has it beside this
                "template": None if form.template is None else form.template.source,
                "field": form.field,
                "system": form.system,
                "raw": form.raw,
                "exact": self.launch.exact,
                "ctx": loading.n_ctx,
                "kv_type": loading.kv_type,
                # Without a gate a receipt is what it was before there were gates.
                **({"gate": form.gate} if form.gate else {}),
            }
        )


class BatchRun:
    """A batch, from the opened files on.

    Args:
        options: of the command line.
        source: the lines.
        output: takes the records.
        cancel: stops it.

    Raises:
        UsageError: the output is to be resumed, and is none.
    """

    def __init__(
        self, options: BatchOptions, source: Source, output: Output, cancel: CancelFlag
    ) -> None:
        self._options = options
        self._source = source
        self._output = output
        self._cancel = cancel
        self._signals = Interrupts(_ENDINGS)
        self._finished = FinishedLines()
        if options.resume:
            self._finished = output.finished(retry_failed=options.retry_failed)

    def run(self) -> int:
        """Answer the lines, and return the exit code."""
        options, again = self._options, f"use --resume to continue {self._output.name}"
        load = Load(options.launch, workload=options.workload)
        server = None if options.own else resident(load)
        launch = _without_workers(options.launch) if options.launch.workers else options.launch
        # What a server has in memory already needs no more of it.
        launch = replace(launch, fit=launch.fit and server is None)
        signals = self._signals
        with self._line() as line, signals.planning():
            plan = make_plan(launch, line.download, parallel=options.parallel)
        with signals.running(self._cancel.set):
            try:
                tally = self._answer(plan, server)
            except EngineGone as error:
                remedy = "start again" if self._output.path is None else again
                raise LocalspecError(f"{error}: {remedy}") from None
            except Cancelled:
                if self._output.path is not None:
                    self._notify(f"stopped: {again}")
                return code_of(signals.received[0]) if signals.received else INTERRUPTED
        return SOME_FAILED if tally.failed else 0

    def _answer(self, plan: LoadPlan, server: SharedEngine | None) -> Tally:
        """Answer the lines.

        Raises:
            Cancelled: it was stopped before all of them were.
            EngineGone: the server that answered is gone.
        """
        options, source, output = self._options, self._source, self._output
        receipt = self._receipt(plan)
        to_terminal = output.path is None and sys.stdout.isatty()
        progress = BatchProgress(
            enabled=not options.quiet, drawing=not to_terminal, share=source.share
        )
        template = options.form.template
        lines = source.lines(options.input_format, options.form.needed, plain=template is not None)
        ahead = ReadAhead(lines, self._cancel) if source.waits else None
        batch = BatchJob(
            ahead or lines,
            options.form,
            receipt,
            self._finished,
            lambda number, record: output.append(number, encoded(record, ascii_only=to_terminal)),
            self._cancel,
            source.name,
            ahead.ready if ahead else at_once,
            deterministic=options.launch.exact,
            ordered=options.ordered,
            notify=progress.update,
        )
        if batch.needs_answers():
            with self._engine(plan, server) as engine:
                ready = engine.ready
                self._notify(*ready.notes, f"seed {receipt.seed}")
                progress.begin()
                try:
                    models = {"target": ready.target, "draft_model": ready.draft_model}
                    batch.answer(engine, models)
                finally:
                    progress.end()
        if batch.stopped:
            raise Cancelled
        if options.ordered:
            output.put_in_order()
        self._notify(summary(batch.tally, progress.elapsed_s))
        return batch.tally

    def _receipt(self, plan: LoadPlan) -> Receipt:
        """Return what the records will be made with, and bring an output that is resumed into shape.

        Raises:
            UsageError: the output has records that were made otherwise.
        """
        options, finished = self._options, self._finished
        seed = finished.seed if options.form.options.seed is None else options.form.options.seed
        llama = build()
        receipt = Receipt(
            seed=secrets.randbits(_SEED_BITS) if seed is None else seed,
            target=self._sha256(plan, plan.target),
            draft_model=None if plan.draft_model is None else self._sha256(plan, plan.draft_model),
            build=f"localspec {__version__}, llama-cpp-python {llama.version} ({', '.join(llama.backends)})",
            options=options.digest,
        )
        finished.require(receipt, self._output.name, mix_receipts=options.mix_receipts)
        if options.resume:
            self._output.take_up(finished)
        return receipt

    def _sha256(self, plan: LoadPlan, file: Path) -> str:
        def on_share(share: float) -> None:
            if self._cancel.is_set:
                raise Cancelled
            line.hash(plan.names[file], share)

        with self._line() as line:
            return model_sha256(model_files(file), data_dir(), on_share)

    @contextmanager
    def _engine(self, plan: LoadPlan, server: SharedEngine | None) -> Iterator[Engine]:
        """Yield what answers, in this process, a child, or a server.

        Raises:
            Cancelled: it was stopped before it was loaded.
        """
        options, line = self._options, self._line()
        load = Load(options.launch, options.parallel, workload=options.workload)
        opening = open_engine(
            load, line.show, self._signals, own=True, shared=server, plan=plan, notify=self._notify
        )
        with ExitStack() as stack:
            try:
                with line:
                    engine = stack.enter_context(entered(opening))
            except Interrupted:
                raise Cancelled from None
            if not options.form.raw:
                engine.require_template()  # without one, every line would say so
            yield engine

    def _line(self) -> ProgressLine:
        return ProgressLine(enabled=not self._options.quiet)

    def _notify(self, *sentences: str) -> None:
        for each in () if self._options.quiet else sentences:
            notice(each)


class BatchProgress:
    """How many lines are done: on a terminal in one line, elsewhere now and then.

    Args:
        enabled: False prints nothing at all.
        drawing: whether a line may be drawn over: not where answers go to the same terminal.
        share: returns how much of the input was read, 0 to 1; None if that is unknown.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        *,
        enabled: bool,
        drawing: bool,
        share: Callable[[], float | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._enabled = enabled
        self._line = RedrawnLine(enabled=enabled and drawing)
        self._share = share
        self._clock = clock
        self._start = self._last = clock()
        self._share_before = 0.0

    def begin(self) -> None:
        """Begin with the rates: what went before takes no part in them."""
        self._start = self._clock()
        self._share_before = self._share() or 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since it began."""
        return self._clock() - self._start

    def update(self, tally: Tally) -> None:
        """Count a line that is done."""
        now = self._clock()
        every_s = _DRAW_EVERY_S if self._line.drawn else _REPORT_EVERY_S
        if not self._enabled or now - self._last < every_s:
            return
        self._last = now
        text = progress_text(tally, self.elapsed_s, self._share(), self._share_before)
        (self._line.draw if self._line.drawn else notice)(text)

    def end(self) -> None:
        """Clear the line."""
        self._line.clear()


def progress_text(tally: Tally, elapsed_s: float, share: float | None, share_before: float) -> str:
    """Return how far a batch is, the most important first, since a narrow terminal shows less.

    Args:
        tally: of the lines.
        elapsed_s: seconds since answering began.
        share: of the input that was read; None if that is unknown.
        share_before: share when answering began.
    """
    parts = [f"{tally.answered} done"]
    if tally.failed:
        parts.append(f"{tally.failed} failed")
    if share is not None and share > share_before:
        left_s = elapsed_s * max(1 - share, 0.0) / (share - share_before)
        parts.append(f"{duration_text(left_s)} left")
    if elapsed_s > 0:
        parts.append(f"{tally.n_tokens / elapsed_s:.1f} tokens/s")
    return ", ".join(parts)


def summary(tally: Tally, elapsed_s: float) -> str:
    """Return what came of a batch."""
    parts = [f"{tally.answered} answered"]
    if tally.failed:
        parts.append(f"{tally.failed} failed")
    if tally.n_tokens:
        parts.append(f"{tally.n_tokens} tokens, {tally.n_tokens / elapsed_s:.1f} tokens/s")
    if tally.first_error:
        parts.append(f"the first that failed, {tally.first_error}")
    return " · ".join(parts)


def _without_workers(launch: LaunchOptions) -> LaunchOptions:
    """Return what can be planned here: workers are their engine's, which alone knows their devices, and looks for itself."""
    anywhere = replace(launch.load, devices=(), split="layers", tensor_split=None)
    return replace(launch, load=anywhere, draft_devices=(), workers=(), fit=False)
