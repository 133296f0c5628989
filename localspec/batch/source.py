"""Source: the lines of a file or stream, as JSON or as rows of a CSV, in constant memory; a line that cannot be read says why."""

import codecs
import csv
import hashlib
import json
import os
import queue
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Thread
from typing import Any, BinaryIO, Literal, Self

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.errors import LocalspecError, UsageError
from localspec.options.fields import from_text
from localspec.storage.paths import shown

Format = Literal["jsonl", "csv"]
FORMATS: tuple[Format, ...] = ("jsonl", "csv")
MOST_LINE_BYTES = 4 << 20
"""Longest line that is read: four times what a context of a million tokens holds."""
MOST_HELD = 4
"""Lines that are read ahead: one would do, and each may have megabytes."""

_TOO_LONG = (
    f"the line has more than {MOST_LINE_BYTES >> 20} MB: shorten it, or name its pictures as files"
)
_LOOK_EVERY_S = 0.2
_PIECE_BYTES = 1 << 16
_MOST_COLUMNS = 200
_Bytes = tuple[int, bytes | None, bytes]
"""Number of a line, its bytes without their end (None if there are too many), and the first 8 of their sha256."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the input, or a row of a CSV.

    Args:
        number: from 1; of a row over several lines, the first.
        digest: 16 hexadecimal digits: another line at the same place has another one.
        fields: by name; empty if it cannot be read.
        problem: why it cannot; empty if it can.
    """

    number: int
    digest: str
    fields: dict[str, Any]
    problem: str = ""


class Source:
    """A file, or stdin by the name of `-`, that is read once.

    Args:
        name: path of the file, or `-`.

    Attributes:
        waits: whether it may be slow to bring the next line, as pipes and terminals are.

    Raises:
        UsageError: it cannot be read.
    """

    def __init__(self, name: str) -> None:
        self.name = "stdin" if name == "-" else shown(name)
        try:
            # A descriptor of our own, also of stdin, whose buffer may be in use.
            self._fd = os.dup(sys.stdin.fileno()) if name == "-" else os.open(name, os.O_RDONLY)
            state = os.fstat(self._fd)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"{self.name} cannot be read ({reason}): check the path") from error
        if stat.S_ISDIR(state.st_mode):
            os.close(self._fd)
            raise UsageError(f"{self.name} is a directory: give a file of JSON lines or CSV")
        self.waits = not stat.S_ISREG(state.st_mode)
        self._size = state.st_size
        self._file = open(self._fd, "rb", closefd=False)  # noqa: SIM115 - closed by the descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.waits:  # else a thread may be reading
            os.close(self._fd)

    def lines(self, form: Format, needed: str | None, *, plain: bool = False) -> Iterator[Line]:
        """Return the lines, see `parsed`.

        Raises:
            LocalspecError: reading fails.
        """
        return parsed(self._split(), form, self.name, needed, plain=plain)

    def share(self) -> float | None:
        """Return how much of a file was taken, 0 to 1; None of a stream, whose end is unknown."""
        return None if self.waits or not self._size else min(self._file.tell() / self._size, 1.0)

    def is_same_file(self, fd: int) -> bool:
        """Return whether an open file is this one."""
        return os.path.samestat(os.fstat(self._fd), os.fstat(fd))

    def _split(self) -> Iterator[_Bytes]:
        try:
            yield from split_lines(self._file)
        except OSError as error:
            raise LocalspecError(
                f"{self.name} could not be read to its end ({error.strerror}): check it, then use --resume"
            ) from error


class ReadAhead:
    """Lines of a slow source, read by a thread, so that answers under way need not wait for the next one.

    An error of reading is raised where the line would have come.

    Args:
        lines: only the thread goes through them.
        cancel: ends the wait for a line with `Cancelled`.
    """

    def __init__(self, lines: Iterator[Line], cancel: CancelFlag) -> None:
        self._cancel = cancel
        self._end: BaseException | None = None
        # The thread holds one more.
        self._queue: queue.Queue[Line | BaseException] = queue.Queue(MOST_HELD - 1)
        Thread(target=self._read, args=(lines,), name="read-ahead", daemon=True).start()

    def __iter__(self) -> Iterator[Line]:
        return self

    def __next__(self) -> Line:
        while self._end is None:
            try:
                item = self._queue.get(timeout=_LOOK_EVERY_S)
            except queue.Empty:
                if self._cancel.is_set:
                    raise Cancelled from None
                continue
            if isinstance(item, Line):
                return item
            self._end = item
        raise self._end

    def ready(self) -> bool:
        """Return whether `next` would not wait."""
        return self._end is not None or not self._queue.empty()

    def _read(self, lines: Iterator[Line]) -> None:
        end: BaseException = StopIteration()
        try:
            for line in lines:
                self._queue.put(line)
        except BaseException as error:  # raised by `next`
            end = error
        self._queue.put(end)


def split_lines(file: BinaryIO, most_bytes: int = MOST_LINE_BYTES) -> Iterator[_Bytes]:
    """Yield the lines of a file, each as soon as it is whole; of one that is too long, only number and digest."""
    number = 0
    while piece := file.readline(most_bytes + 1):
        number += 1
        line = piece.removesuffix(b"\n")
        digest = hashlib.sha256(line)
        raw = line if len(line) <= most_bytes else None
        while raw is None and not piece.endswith(b"\n") and (piece := file.readline(_PIECE_BYTES)):
            digest.update(piece.removesuffix(b"\n"))
        if raw is not None and number == 1:
            raw = raw.removeprefix(codecs.BOM_UTF8)
        yield number, raw, digest.digest()[:8]


def parsed(
    raws: Iterator[_Bytes], form: Format, name: str, needed: str | None, *, plain: bool = False
) -> Iterator[Line]:
    """Yield the lines with their fields; empty ones are skipped, and counted.

    Args:
        raws: of the source.
        form: how they are written.
        name: what messages call the source.
        needed: a column that a CSV must have.
        plain: leave cells of a CSV as they are, also those of columns named like options.

    Raises:
        UsageError: a CSV has no header, or not the column.
    """
    if form == "csv":
        yield from _rows(raws, name, needed, dict if plain else from_text)
        return
    for number, raw, digest in raws:
        if raw is None or raw.strip():
            fields, problem = ({}, _TOO_LONG) if raw is None else _json_fields(raw)
            yield Line(number, digest.hex(), fields, problem)


def _json_fields(raw: bytes) -> tuple[dict[str, Any], str]:
    try:
        fields = json.loads(raw.decode())
    except UnicodeDecodeError as error:
        return {}, _not_utf8(error)
    except json.JSONDecodeError as error:
        return {}, f"not valid JSON ({error.msg}, column {error.colno}): write one object per line"
    except (ValueError, RecursionError) as error:  # a number of 5000 digits, a thousand brackets
        return {}, f"not valid JSON ({error}): write one plain object per line"
    if not isinstance(fields, dict):
        return {}, 'the line is not an object: write {"prompt": "…"}'
    return fields, ""


def _rows(
    raws: Iterator[_Bytes],
    name: str,
    needed: str | None,
    fields_of: Callable[[dict[str, str]], dict[str, Any]],
) -> Iterator[Line]:
    csv.field_size_limit(MOST_LINE_BYTES)  # its own is 128 KB, and the process's
    taken: list[_Bytes] = []

    def texts() -> Iterator[str]:
        for each in raws:
            taken.append(each)
            # What is not UTF-8 is found once the row is whole.
            yield (each[1] or b"").decode(errors="surrogateescape") + "\n"

    reader = csv.reader(texts(), strict=True)
    header = _header(reader, taken, name, needed)
    while header:
        taken.clear()
        cells, problem = list[str](), ""
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:  # the next row begins at the next line
            problem = f"not valid CSV ({error}): check its quotes"
        problem = _row_problem(taken, len(cells), len(header), problem)
        if cells or problem:
            fields = {} if problem else fields_of(dict(zip(header, cells, strict=True)))
            digest = taken[0][2]
            if len(taken) > 1:
                digest = hashlib.sha256(b"".join(each[2] for each in taken)).digest()[:8]
            yield Line(taken[0][0], digest.hex(), fields, problem)


def _header(
    reader: Iterator[list[str]], taken: list[_Bytes], name: str, needed: str | None
) -> list[str]:
    """Return the header of a CSV; nothing of an empty one."""
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise UsageError(f"{name} has no header that can be read ({error}): check line 1") from None
    if taken and not header:
        raise UsageError(f"{name} has no header: name each column in line 1")
    columns = repr(", ".join(header)[:_MOST_COLUMNS])
    if any(raw is None for _, raw, _ in taken) or len(set(header)) < len(header):
        raise UsageError(
            f"{name} has columns of the same name ({columns}): line 1 must name each column"
        )
    if taken and needed is not None and needed not in header:
        raise UsageError(f"{name} has no column {needed!r} among {columns}: name one with --field")
    return header


def _row_problem(taken: list[_Bytes], n_cells: int, n_columns: int, problem: str) -> str:
    """Return what is wrong with a row; nothing of an empty line."""
    if any(raw is None for _, raw, _ in taken):
        return _TOO_LONG
    if problem or not n_cells:
        return problem
    if n_cells != n_columns:
        return f"the row has {n_cells} cells and the header {n_columns}: check commas and quotes"
    try:
        b"\n".join(raw or b"" for _, raw, _ in taken).decode()
    except UnicodeDecodeError as error:
        return _not_utf8(error)
    return ""


def _not_utf8(error: UnicodeDecodeError) -> str:
    byte = error.object[error.start]
    return f"the line is not UTF-8 (byte {byte:#04x} at offset {error.start}): convert it, for example with iconv"
