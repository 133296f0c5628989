"""Resuming: an output that was begun is brought into a state to which records can be added."""

from collections.abc import Iterator
from dataclasses import dataclass

from localspec.batch.finished import FinishedLines, whole_records
from localspec.batch.output import FileOutput
from localspec.batch.receipt import Receipt, difference
from localspec.batch.record import Written
from localspec.batch.rewriting import drop_records
from localspec.batch.rows import Format
from localspec.errors import UsageError


@dataclass(frozen=True, slots=True)
class Resumption:
    """How to take up an output.

    Args:
        retry_failed: answer the lines again whose records are errors.
        mix_receipts: take lines for finished whatever they were answered with.
    """

    retry_failed: bool = False
    mix_receipts: bool = False


def read_finished(
    output: FileOutput, form: Format, resumption: Resumption
) -> tuple[FinishedLines, int]:
    """Return what counts of what an output holds, and how many bytes are whole records; changes nothing.

    Raises:
        UsageError: it is no output, or a damaged one.
    """
    size = 0

    def records() -> Iterator[Written]:
        nonlocal size
        with output.path.open("rb") as file:
            for raw, record in whole_records(file, form, output.name):
                size += len(raw)
                if record is not None:
                    yield record

    return FinishedLines(records(), retry_failed=resumption.retry_failed), size


def require_receipt(
    finished: FinishedLines, receipt: Receipt, resumption: Resumption, name: str
) -> None:
    """Refuse to add to records that were made otherwise.

    Raises:
        UsageError: they were, and nobody said that it does not matter.
    """
    other = next((each for each in finished.receipts if each != receipt), None)
    if other is not None and not resumption.mix_receipts:
        raise UsageError(
            f"{name} has answers of {difference(other, receipt)}: use the same again, "
            "give another output, or allow it with --mix-receipts"
        )


def take_up(output: FileOutput, form: Format, size: int, finished: FinishedLines) -> None:
    """Cut what is not whole, and drop the records of lines that are to be answered again.

    Raises:
        LocalspecError: the disk does not take it; the file stays as it was.
    """
    output.cut(size)
    if finished.dropped:
        drop_records(output, form, lambda record: record.failed)
