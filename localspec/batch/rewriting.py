"""Rewriting: records become lines of an output, which is replaced by the same ones, some left out or in another order.

It is replaced whole or not at all.
"""

import os
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import BinaryIO

import numpy as np

from localspec.batch.finished import FinishedLines, whole_records
from localspec.batch.output import FileOutput, StreamOutput, lock
from localspec.batch.record import Record, Written, encoded, header
from localspec.batch.rows import Format
from localspec.errors import LocalspecError


def drop_records(output: FileOutput, form: Format, drop: Callable[[Written], bool]) -> None:
    """Leave records out of an output.

    Raises:
        LocalspecError: the disk does not take the new file; the old one stays.
    """

    def kept(file: BinaryIO) -> Iterator[bytes]:
        for raw, record in whole_records(file, form, output.name):
            if record is None or not drop(record):
                yield raw

    _replaced(output, kept)


def put_in_order(output: FileOutput, form: Format) -> None:
    """Bring the records of an output into the order of their lines.

    Raises:
        LocalspecError: the disk does not take the new file; the old one stays.
    """

    def ordered(file: BinaryIO) -> Iterator[bytes]:
        places, numbers = array("Q"), array("Q")
        sizes = array("Q")
        at = 0
        for raw, record in whole_records(file, form, output.name):
            if record is None:
                yield raw
            else:
                places.append(at)
                sizes.append(len(raw))
                numbers.append(record.number)
            at += len(raw)
        for each in np.argsort(np.frombuffer(numbers, np.uint64), kind="stable") if numbers else ():
            file.seek(places[each])
            yield file.read(sizes[each])

    _replaced(output, ordered)


def _replaced(output: FileOutput, content: Callable[[BinaryIO], Iterator[bytes]]) -> None:
    path = output.path
    # A name of its own: whoever holds the output's lock may remove what a killed run left there.
    beside = path.with_name(f".{path.name}.localspec-new")
    try:
        beside.unlink(missing_ok=True)
        fd = os.open(beside, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            lock(fd)  # before it gets the name: nobody comes in between
            os.fchmod(fd, os.fstat(output.fd).st_mode & 0o7777)
            with open(fd, "wb", closefd=False) as new, path.open("rb") as old:
                new.writelines(content(old))
                new.flush()
                os.fsync(fd)
            beside.replace(path)
        except BaseException:
            os.close(fd)
            with suppress(OSError):
                beside.unlink()
            raise
    except OSError as error:
        raise LocalspecError(
            f"{output.name} cannot be rewritten ({error.strerror}): it stays as it was; make room"
        ) from error
    output.replace(fd)


class Appender:
    """Writes records.

    Args:
        output: takes them.
        form: how they are written.
        finished: what the output holds already.
        to_terminal: whether people see them there, where some characters are obeyed.
    """

    def __init__(
        self,
        output: FileOutput | StreamOutput,
        form: Format,
        finished: FinishedLines,
        *,
        to_terminal: bool = False,
    ) -> None:
        self._output = output
        self._form = form
        self._begun = isinstance(output, FileOutput) and output.size > 0
        self._to_terminal = to_terminal
        self._last = finished.last
        self._in_order = finished.in_order

    def write(self, record: Record) -> None:
        """Write a record, before a first one the header.

        Raises:
            BrokenPipeError: nobody reads any more.
            LocalspecError: it cannot be written.
        """
        line = encoded(record, self._form, to_terminal=self._to_terminal)
        self._output.append(line if self._begun else header(self._form) + line)
        self._begun = True
        self._in_order = self._in_order and self._last < record["line"]
        self._last = record["line"]

    def put_in_order(self) -> None:
        """Bring the records of a file into the order of their lines, if they are not.

        Raises:
            LocalspecError: the disk does not take the new file; the old one stays.
        """
        if isinstance(self._output, FileOutput) and not self._in_order:
            put_in_order(self._output, self._form)
            self._in_order = True
