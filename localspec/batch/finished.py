"""FinishedLines: which lines an output has already, in 16 bytes a line; and where a record that was cut begins.

A record counts once it is whole: what follows the last end of one was being written when the
program was killed. What is whole and no record means that the file is another's, and is left alone.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import numpy as np

from localspec.batch.receipt import Receipt
from localspec.batch.record import (
    BEGINNING,
    MOST_ANSWER_CHARS,
    NoRecordError,
    Written,
    header,
    read_record,
)
from localspec.batch.rows import Format
from localspec.errors import UsageError

_MOST_BYTES = 2 * MOST_ANSWER_CHARS


class FinishedLines:
    """The lines that have a record.

    Args:
        records: of the output, in its order.
        retry_failed: whether a record that is an error leaves its line unfinished.
    """

    def __init__(self, records: Iterable[Written] = (), *, retry_failed: bool = False) -> None:
        numbers, digests = array("Q"), array("Q")
        self.failed = 0
        self.dropped = 0
        self.seed: int | None = None
        self.receipts: dict[Receipt, None] = {}
        self.in_order = True
        for each in records:
            self.seed = each.receipt.seed
            if retry_failed and each.failed:
                self.dropped += 1
                continue
            self.in_order = self.in_order and (not numbers or numbers[-1] < each.number)
            self.failed += each.failed
            self.receipts[each.receipt] = None
            numbers.append(each.number)
            digests.append(int.from_bytes(each.digest, "big"))
        order = np.argsort(np.array(numbers, np.uint64), kind="stable")
        self._numbers = np.array(numbers, np.uint64)[order]
        self._digests = np.array(digests, np.uint64)[order]

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def last(self) -> int:
        """The highest number of a line; 0 where there is none."""
        return int(self._numbers[-1]) if len(self) else 0

    def digest_of(self, number: int) -> bytes | None:
        """Return the digest of the line that was answered at a number; None where none was."""
        at = int(np.searchsorted(self._numbers, np.uint64(number)))
        if at == len(self) or int(self._numbers[at]) != number:
            return None
        return int(self._digests[at]).to_bytes(8, "big")


def whole_records(
    file: BinaryIO, form: Format, name: str
) -> Iterator[tuple[bytes, Written | None]]:
    """Yield every whole record of an output with its bytes, the header of a CSV with None.

    Args:
        file: at its beginning; left behind the last whole record, or where a record begins that was cut.
        form: how it is written.
        name: what messages call it.

    Raises:
        UsageError: it holds something else, or a record that is damaged.
    """
    number = 0
    while raw := _whole(file, form):
        number += 1
        if number == 1 and form == "csv":
            if raw != header(form):
                raise _foreign(name, number)
            yield raw, None
            continue
        try:
            yield raw, read_record(raw, form)
        except NoRecordError:
            raise _foreign(name, number) from None
    start = file.tell()
    rest = file.read(len(BEGINNING) + len(header(form)))
    file.seek(start)
    if not _may_begin(rest, form, first=number == 0):
        raise _foreign(name, number + 1)


def _may_begin(rest: bytes, form: Format, *, first: bool) -> bool:
    """Return whether a record, cut somewhere, may look like this."""
    if form == "csv" and not first:
        return not rest or rest[:1].isdigit()
    beginning = header(form) or BEGINNING
    shorter = min(len(rest), len(beginning))
    return rest[:shorter] == beginning[:shorter]


def _whole(file: BinaryIO, form: Format) -> bytes:
    """Return the next record with its end; nothing, and stay, where there is none that is whole."""
    start = file.tell()
    raw = b""
    while piece := file.readline(_MOST_BYTES - len(raw)):
        raw += piece
        if raw.endswith(b"\n") and (form == "jsonl" or raw.count(b'"') % 2 == 0):
            return raw
    file.seek(start)
    return b""


def _foreign(name: str, number: int) -> UsageError:
    return UsageError(
        f"{name} is not an output of batch, or is damaged: record {number} is not valid; give another output"
    )
