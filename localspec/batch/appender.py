"""Appender: records become lines of an output; it knows whether they are in the order of their lines."""

from localspec.batch.finished import FinishedLines
from localspec.batch.output import FileOutput, StreamOutput
from localspec.batch.record import Record, encoded, header
from localspec.batch.rewriting import put_in_order
from localspec.batch.rows import Format


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
