"""`localspec batch`: a file of prompts becomes a file of answers; figures and progress on stderr."""

import secrets
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localspec import __version__
from localspec.batch.batch import BatchJob, Tally
from localspec.batch.line_template import read_template
from localspec.batch.output import FinishedLines, Output, open_output
from localspec.batch.record import Receipt, encoded, options_digest
from localspec.batch.request import Form
from localspec.batch.source import FORMATS, Format, ReadAhead, Source
from localspec.chat.request import at_once
from localspec.cli import INTERRUPTED
from localspec.cli import options as cli
from localspec.cli.interrupt import Interrupts, code_of
from localspec.cli.progress import ProgressLine
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.display import counted, duration_text, notice
from localspec.engine.engine import Engine, Needs
from localspec.engine.protocol import Load, Ready
from localspec.engine.sync import ParallelRequests, entered, run_sync
from localspec.errors import EngineGone, Interrupted, LocalspecError, UsageError
from localspec.launch.engine import open_engine
from localspec.llama.backend import build
from localspec.models.gguf import model_files
from localspec.models.store import model_sha256
from localspec.options import LaunchOptions
from localspec.storage.paths import data_dir, shown

if TYPE_CHECKING:
    from localspec.plan.load_plan import LoadPlan

SOME_FAILED = 5
_SUFFIXES: dict[str, Format] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_SEED_BITS = 32
_NOTICE_S = 30.0
_TEXT_EVERY_S = 10.0
"""Nobody reads a record before it is whole."""
_ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@dataclass(frozen=True, slots=True)
class BatchFlags:
    """Flags of `batch` alone.

    Args:
        output: Where to write the answers; - is stdout. Default: -.
        resume: Continue an unfinished output, or start it.
        retry_failed: Resume, and answer failed lines again.
        mix_receipts: Resume even if the seed, model, options or build have changed.
        unordered: Write answers as they are ready, not in input order.
        format: Format of SOURCE, if its name does not end in .jsonl or .csv. Default: jsonl.
        template: Jinja template that makes the prompt from a line's fields; all of them are data then.
        field: Field that holds the prompt. Default: prompt.
        system: System prompt for lines without one.
        raw: Complete prompts as plain text, without a chat template.
        quiet: Print only errors on stderr.
        parallel: Lines to answer at a time; auto: as many as are faster and fit in memory. Default: 1.
    """

    output: str = cli.flag("-o", "--output", "FILE", default="-")
    resume: bool = cli.switch()
    retry_failed: bool = cli.switch()
    mix_receipts: bool = cli.switch()
    unordered: bool = cli.switch()
    format: Format | None = cli.flag(type=click.Choice(list(FORMATS)))
    template: str | None = cli.flag("FILE")
    field: str | None = cli.flag("NAME")
    system: str | None = cli.flag("TEXT")
    raw: bool = cli.switch()
    quiet: bool = cli.switch("-q", "--quiet")
    parallel: int | None = cli.flag("N|auto", default="1", callback=cli.parallel_count)

    @property
    def resumes(self) -> bool:
        """Whether an output that is there is continued."""
        return self.resume or self.retry_failed or self.mix_receipts

    def form(self, settings: cli.Settings) -> Form:
        """Return how lines become prompts.

        Raises:
            UsageError: flags cannot be combined, or a file that they name cannot be read.
        """
        if self.raw and self.system is not None:
            raise UsageError("--raw and --system cannot be combined: raw text has no system prompt")
        if self.raw and cli.is_typed("think"):
            raise UsageError("--raw and --think cannot be combined: raw text has no chat template")
        if self.template is not None and self.field is not None:
            raise UsageError(
                "--template and --field cannot be combined: a template names its fields"
            )
        path = Path(self.output)
        if _SUFFIXES.get(path.suffix.lower()) == "csv":
            raise UsageError(
                f"{shown(path)} would be CSV, and answers are JSON lines: give {shown(path.with_suffix('.jsonl'))}"
            )
        template = None if self.template is None else read_template(Path(self.template))
        return Form(settings.reply, template, self.field, self.system, self.raw, settings.gate)


@click.command(cls=cli.SectionedCommand)
@click.argument("source")
@cli.flags(batching=BatchFlags)
@cli.option_flags(
    "models",
    "server",
    "exact",
    "sampling",
    "structure",
    "context",
    "device",
    exact="Give exactly the same text with any --draft and any earlier lines; slower, reuses nothing.",
    seed="Seed of the run; each line derives its own from it. Default: random.",
)
@cli.gate_option
@cli.own_option
@cli.workload_option
@cli.with_settings
def batch(source: str, settings: cli.Settings, batching: BatchFlags, workload: str | None) -> int:
    """Answer every line of SOURCE, a file or `-` for stdin, each exactly once.

    A line is {"prompt": …}, {"messages": […]}, or OpenAI's batch form, {"custom_id": …, "body":
    {…}}; or a row of a CSV file with a header. It may have its own id (a text or a whole number),
    system prompt, temperature, top_k, top_p, min_p, repeat_penalty, presence_penalty,
    frequency_penalty, penalty_last_n, logit_bias, max_tokens, seed, stop, json_schema, grammar,
    regex, lark, and OpenAI's response_format. With --template, fields of these names are data like
    any other; put a line's options into an object in the field reply_options. Messages may have
    pictures and sounds as OpenAI's parts; an image_url is a data: URL or a file in SOURCE's folder.

    Answers keep the order of the lines. Each is written as soon as it is ready, with its id,
    figures, and a receipt: the run's seed, the models' sha256, the build, and a digest of the
    options. A line's seed is derived from the run's seed and the line's id, or its number if it has
    none. So a line that you answer again gets the same answer; with --exact, to the last bit.

    An existing output is never overwritten. Continue a run that was stopped or killed with

        localspec batch in.jsonl -o out.jsonl --resume

    A line that cannot be answered (not valid JSON, not UTF-8, over 4 MB, too long for the context)
    gets a record with an error, the others are answered, and the exit code is 5. Empty lines are
    skipped.
    """
    if not batching.quiet and {"pair", "target", "server"} <= settings.unset:
        from localspec.cli.prompt import with_model  # noqa: PLC0415 - few have not chosen

        settings, default = with_model(settings, quiet=False)
    else:
        default = ""
    form, suffix = batching.form(settings), Path(source).suffix.lower()
    if source != "-":
        form = replace(form, folder=Path(source).parent)
    load = Load(
        settings.launch,
        batching.parallel,
        workload=workload,
        text_every_s=_TEXT_EVERY_S,
        given=settings.given_sampling,
        own=settings.own,
    )
    with (
        Source(source) as lines,
        closing(open_output(batching.output, resume=batching.resumes)) as output,
    ):
        if output.path is not None and lines.is_same_file(output.fd):
            raise UsageError(f"{output.name} is input and output: give another output")
        input_format = _SUFFIXES.get(suffix, batching.format or "jsonl")
        return BatchRun(load, form, batching, lines, input_format, output, default).run()


class BatchRun:
    """A batch, from the opened files on.

    Args:
        load: what to answer with.
        form: how lines become prompts; its options have the seed, if one was given.
        batching: flags of the verb.
        source: the lines.
        input_format: of the lines.
        output: takes the records.
        default: a line that names the default model, where none was chosen; else empty.

    Raises:
        UsageError: the output is to be resumed, and is none.
    """

    def __init__(
        self,
        load: Load,
        form: Form,
        batching: BatchFlags,
        source: Source,
        input_format: Format,
        output: Output,
        default: str,
    ) -> None:
        self._load, self._form, self._flags, self._default = load, form, batching, default
        self._source, self._format, self._output = source, input_format, output
        self._cancel, self._signals = CancelFlag(), Interrupts(_ENDINGS)
        self._line = self._progress()
        self._finished = FinishedLines()
        if batching.resumes:
            self._finished = output.finished(retry_failed=batching.retry_failed)

    def run(self) -> int:
        """Answer the lines, and return the exit code."""
        signals = self._signals
        try:
            with self._engine() as engine, signals.running(self._cancel.set):
                if engine.plan is not None:
                    receipt = self._local_receipt(engine.plan)
                else:  # only the server knows what its model is called
                    receipt = self._receipt(self._ready(engine).target, None, engine.can.at)
                tally = self._answer(receipt, engine)
        except EngineGone as error:
            raise LocalspecError(f"{error}: {self._again or 'start again'}") from None
        except Cancelled:
            if self._again:
                self._notify(f"stopped: {self._again}")
            return code_of(signals.received[0]) if signals.received else INTERRUPTED
        return SOME_FAILED if tally.failed else 0

    @property
    def _again(self) -> str:
        """What goes on from here; empty where the output is no file."""
        if self._output.path is None:
            return ""
        if self._output.is_empty:
            return "nothing was answered yet, give the same command again"
        return f"use --resume to continue {self._output.name}"

    def _answer(self, receipt: Receipt, engine: Engine) -> Tally:
        """Answer the lines, by an engine that loads where there is one to answer.

        Raises:
            Cancelled: it was stopped before all of them were.
            EngineGone: the server that answered is gone.
        """
        ordered, source, output = not self._flags.unordered, self._source, self._output
        to_terminal = output.path is None and sys.stdout.isatty()
        begun_s, share_before = time.monotonic(), 0.0
        plain = self._form.template is not None
        lines = source.lines(self._format, self._form.needed, plain=plain)
        ahead = ReadAhead(lines, self._cancel) if source.waits else None

        def text() -> str:
            elapsed_s = time.monotonic() - begun_s
            return progress_text(job.tally, elapsed_s, source.share(), share_before)

        job = BatchJob(
            ahead or lines,
            self._form,
            receipt,
            self._finished,
            lambda number, record: output.append(number, encoded(record, ascii_only=to_terminal)),
            self._cancel,
            source.name,
            ahead.ready if ahead else at_once,
            deterministic=self._load.options.exact,
            ordered=ordered,
            notify=lambda _: progress.report(text),
        )
        with self._progress(drawing=not to_terminal) as progress:
            if job.needs_answers():
                ready = self._ready(engine)
                self._notify(*filter(None, [self._default]), *ready.notes, f"seed {receipt.seed}")
                begun_s, share_before = time.monotonic(), source.share() or 0.0
                models = {"target": ready.target, "draft_model": ready.draft_model}
                job.answer(ParallelRequests(engine, self._notify), models)
                self._notify(*job.notes)
        if job.stopped:
            raise Cancelled
        if ordered:
            output.put_in_order()
        took_s = time.monotonic() - begun_s
        self._notify(summary(job.tally, took_s, resumed=self._flags.resumes))
        return job.tally

    def _local_receipt(self, plan: "LoadPlan") -> Receipt:
        llama = build()
        return self._receipt(
            self._sha256(plan, plan.target),
            None if plan.draft_model is None else self._sha256(plan, plan.draft_model),
            f"llama-cpp-python {llama.version} ({', '.join(llama.backends)})",
            None if plan.encoder.path is None else self._sha256(plan, plan.encoder.path),
        )

    def _receipt(
        self, target: str, draft_model: str | None, engine: str | None, mmproj: str | None = None
    ) -> Receipt:
        """Return what the records will be made with, and bring an output that is resumed into shape.

        Raises:
            UsageError: the output has records that were made otherwise.
        """
        finished, seed = self._finished, self._form.options.seed
        seed = finished.seed if seed is None else seed
        receipt = Receipt(
            seed=secrets.randbits(_SEED_BITS) if seed is None else seed,
            target=target,
            draft_model=draft_model,
            build=f"localspec {__version__}, {engine}",
            options=digest(self._form, self._load.options, self._load.given, mmproj),
        )
        finished.require(receipt, self._output.name, mix_receipts=self._flags.mix_receipts)
        if self._flags.resumes:
            self._output.take_up(finished)
        return receipt

    def _sha256(self, plan: "LoadPlan", file: Path) -> str:
        def on_share(share: float) -> None:
            if self._cancel.is_set:
                raise Cancelled
            line.hash(plan.names.get(file, file.name), share)

        with self._progress() as line:
            return model_sha256(model_files(file), data_dir(), on_share)

    @contextmanager
    def _engine(self) -> Iterator[Engine]:
        """Yield what answers, in this process, a child, or a server, before it has loaded anything."""
        needs, show = Needs(plan=True), self._line.show
        opening = open_engine(self._load, needs, show, self._signals, self._notify)
        with ExitStack() as stack:
            with self._line:
                engine = stack.enter_context(entered(opening))
            yield engine

    def _ready(self, engine: Engine) -> Ready:
        """Return what is loaded, once it is; raises Cancelled where that was stopped."""
        try:
            with self._line:
                ready = run_sync(engine.loaded())
        except Interrupted:
            raise Cancelled from None
        if not self._form.raw:
            engine.require_template()  # without one, every line would say so
        return ready

    def _progress(self, *, drawing: bool = True) -> ProgressLine:
        return ProgressLine(enabled=not self._flags.quiet, drawing=drawing, notice_s=_NOTICE_S)

    def _notify(self, *sentences: str) -> None:
        for each in () if self._flags.quiet else sentences:
            notice(each)


def digest(
    form: Form, launch: LaunchOptions, given: Sequence[str] = (), mmproj: str | None = None
) -> str:
    """Return the digest of all that a line is answered by.

    What drafts, how many lines are answered at a time, and on which device, is not in it: it
    may round differently, which `--exact` rules out, but changes nothing else. Of a server, `given`
    are the sampling options that do not hold there unless they are set. `mmproj` is the sha256 of the encoders.
    """
    options = asdict(form.options)
    later = {"think": None, "min_tokens": 0, "ignore_eos": False, "template_kwargs": None}
    for name, usual in later.items():
        if options[name] == usual:  # as before there was such an option
            del options[name]
    return options_digest(
        {
            **options,
            "seed": None,  # the receipt has it beside this
            "template": None if form.template is None else form.template.source,
            "field": form.field,
            "system": form.system,
            "raw": form.raw,
            "exact": launch.exact,
            "ctx": launch.load.n_ctx,
            "kv_type": launch.load.kv_type,
            # Without a gate a receipt is what it was before there were gates.
            **({"gate": form.gate} if form.gate else {}),
            **({"given": given} if given else {}),
            **({"mmproj": mmproj} if mmproj else {}),
        }
    )


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


def summary(tally: Tally, elapsed_s: float, *, resumed: bool = False) -> str:
    """Return what came of a batch; one that was resumed may have had nothing left to do."""
    parts = [f"{tally.answered} answered"]
    if tally.earlier and tally.n_tokens:
        parts[0] += f", {tally.earlier} of them by earlier runs"
    if tally.failed:
        parts.append(f"{tally.failed} failed")
    if tally.n_tokens:
        now = " in this run" if tally.earlier else ""
        tokens = counted(tally.n_tokens, "token")
        parts.append(f"{tokens}{now}, {tally.n_tokens / elapsed_s:.1f} tokens/s")
    if tally.first_error:
        which = "the first that failed in this run" if tally.earlier else "the first that failed"
        parts.append(f"{which}, {tally.first_error}")
    elif resumed and not tally.n_tokens:
        again = "; --retry-failed answers what failed again" if tally.failed else ""
        parts.append(f"all by earlier runs: nothing was left to answer{again}")
    return " · ".join(parts)
