"""BatchRun: the way of a batch from what was asked to an exit code."""

import secrets
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from localspec import __version__
from localspec.batch.appender import Appender
from localspec.batch.ask import Form
from localspec.batch.batch import Batch, Job, Tally
from localspec.batch.finished import Finished
from localspec.batch.output import FileOutput, StreamOutput
from localspec.batch.receipt import Receipt, options_digest
from localspec.batch.resumed import Resumption, read_finished, require_receipt, take_up
from localspec.batch.rows import Format, read_rows
from localspec.batch.source import Source
from localspec.batch.window import Window
from localspec.chat.assistant import Assistant
from localspec.chat.requests import OneAtATime
from localspec.cli import INTERRUPTED
from localspec.cli.batch_progress import BatchProgress, summary
from localspec.cli.interrupt import cancel_on_interrupt, code_of, unwind_on_terminate
from localspec.cli.progress import ProgressLine
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.launch import Launch, prepare
from localspec.llama.build import build
from localspec.loading import Prepared
from localspec.models.file_hash import model_sha256
from localspec.models.paths import data_dir

SOME_FAILED = 5
_SEED_BITS = 32
_ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for.

    Args:
        launch: what to answer with.
        form: how lines become prompts; its options have the seed, if one was given.
        input_format: of the lines.
        output_format: of the records.
        resumption: how to take up an output; None where it has to be new.
        ordered: whether records keep the order of the lines.
        quiet: say nothing but errors.
    """

    launch: Launch
    form: Form
    input_format: Format
    output_format: Format
    resumption: Resumption | None
    ordered: bool
    quiet: bool


class BatchRun:
    """A batch, from the opened files on.

    Args:
        asked: what to do.
        source: the lines.
        output: takes the records.
        cancel: stops it.
    """

    def __init__(
        self, asked: Asked, source: Source, output: FileOutput | StreamOutput, cancel: CancelFlag
    ) -> None:
        self._asked = asked
        self._source = source
        self._output = output
        self._cancel = cancel
        self._finished, self._whole_bytes = Finished(), 0
        if asked.resumption is not None and isinstance(output, FileOutput):
            form = asked.output_format
            self._finished, self._whole_bytes = read_finished(output, form, asked.resumption)

    def run(self) -> int:
        """Answer the lines, and return the exit code."""
        with ProgressLine(enabled=not self._asked.quiet) as line:
            with unwind_on_terminate():
                prepared = prepare(self._asked.launch, line.download)
            with cancel_on_interrupt(self._cancel, _ENDINGS) as received:
                try:
                    tally = self._answered(prepared, line)
                except Cancelled:
                    if self._output.is_file:
                        self._tell(f"stopped: --resume goes on with {self._output.name}")
                    return code_of(received[0]) if received else INTERRUPTED
        return SOME_FAILED if tally.failed else 0

    def _answered(self, prepared: Prepared, line: ProgressLine) -> Tally:
        """Answer the lines.

        Raises:
            Cancelled: it was stopped before all of them were.
        """
        asked, source = self._asked, self._source
        receipt = self._receipt(prepared, line)
        self._take_up(receipt)
        to_terminal = not self._output.is_file and sys.stdout.isatty()
        appender = Appender(
            self._output, asked.output_format, self._finished, only_ascii=to_terminal
        )
        rows = read_rows(source.lines(), asked.input_format, source.name, asked.form.needed)
        progress = BatchProgress(
            enabled=not asked.quiet, drawing=not to_terminal, share=source.share
        )
        job = Job(rows, asked.form, receipt, self._finished, self._cancel, source.name)
        batch = Batch(job, Window(appender.write, ordered=asked.ordered), progress.tell)
        if batch.needs_answers():
            assistant = prepared.load(self._cancel, line.load, line.measure)
            self._tell(*assistant.notes, f"seed {receipt.seed}")
            self._let_answer(batch, assistant, progress)
        if batch.stopped:
            raise Cancelled
        if asked.ordered:
            appender.put_in_order()
        self._tell(summary(batch.tally, progress.elapsed_s))
        return batch.tally

    def _let_answer(self, batch: Batch, assistant: Assistant, progress: BatchProgress) -> None:
        if not self._asked.form.raw:
            _ = assistant.template  # without one, every line would say so
        models = assistant.models
        names = {"target": models.target_name, "draft_model": models.draft_model_name}
        progress.begin()
        try:
            batch.answer(OneAtATime(assistant, afresh=self._asked.launch.exact), names)
        finally:
            progress.end()

    def _receipt(self, prepared: Prepared, line: ProgressLine) -> Receipt:
        """Return what the records will be made with; the seed is the one that was given, or was used before."""
        form, options = self._asked.form, self._asked.launch.options
        seed = form.options.seed
        if seed is None:
            seed = self._finished.seed
        if seed is None:
            seed = secrets.randbits(_SEED_BITS)
        llama = build()
        text = "" if form.template is None else form.template.source
        how = {
            **asdict(form.options),
            "seed": None,
            "template": text,
            "field": form.field,
            "system": form.system,
            "raw": form.raw,
            "exact": self._asked.launch.exact,
            "ctx": options.n_ctx,
            "kv_type": options.kv_type,
        }
        return Receipt(
            seed=seed,
            target=self._sha256(prepared, prepared.target, line),
            draft_model=None
            if prepared.draft_model is None
            else self._sha256(prepared, prepared.draft_model, line),
            build=f"localspec {__version__}, llama-cpp-python {llama.version} ({', '.join(llama.backends)})",
            options=options_digest(how),
        )

    def _sha256(self, prepared: Prepared, file: Path, line: ProgressLine) -> str:
        def on_share(share: float) -> None:
            if self._cancel.is_set:
                raise Cancelled
            line.hash(prepared.files.names[file], share)

        return model_sha256(file, data_dir(), on_share)

    def _take_up(self, receipt: Receipt) -> None:
        resumption, output = self._asked.resumption, self._output
        if resumption is not None and isinstance(output, FileOutput):
            require_receipt(self._finished, receipt, resumption, output.name)
            take_up(output, self._asked.output_format, self._whole_bytes, self._finished)

    def _tell(self, *sentences: str) -> None:
        for each in () if self._asked.quiet else sentences:
            click.echo(f"localspec: {each}", err=True)
