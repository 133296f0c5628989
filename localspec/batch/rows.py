"""Rows: the fields of each line, of JSON lines or CSV; what cannot be read says why, and the next goes on."""

import csv
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from localspec.batch.line_options import from_text
from localspec.batch.source import MOST_LINE_BYTES, Line
from localspec.errors import UsageError

Format = Literal["jsonl", "csv"]
FORMATS: tuple[Format, ...] = ("jsonl", "csv")

_TOO_LONG = (
    f"the line has more than {MOST_LINE_BYTES >> 20} MB, more than any context holds: shorten it"
)
_SHOWN_COLUMNS = 200


@dataclass(frozen=True, slots=True)
class Row:
    """What a line says.

    Args:
        number: of the line, from 1; of several, the first.
        digest: of the line, 8 bytes: another line at the same place has another one.
        fields: by name; empty where it cannot be read.
        problem: why it cannot; empty where it can.
    """

    number: int
    digest: bytes
    fields: dict[str, Any]
    problem: str = ""


def read_rows(
    lines: Iterator[Line], form: Format, name: str, needed: str | None, *, plain: bool = False
) -> Iterator[Row]:
    """Return the rows of a source; empty lines are skipped, and counted.

    Args:
        lines: of the source.
        form: how they are written.
        name: what messages call the source.
        needed: a column that a CSV must have.
        plain: leave cells of a CSV as they are, those of columns named like options, too.

    Raises:
        UsageError: a CSV has no header, or not the column.
    """
    if form == "jsonl":
        return _json_rows(lines)
    return _csv_rows(lines, name, needed, dict if plain else from_text)


def _json_rows(lines: Iterator[Line]) -> Iterator[Row]:
    for line in lines:
        if line.raw is None:
            yield Row(line.number, line.digest, {}, _TOO_LONG)
        elif line.raw.strip():
            yield _json_row(line, line.raw)


def _json_row(line: Line, raw: bytes) -> Row:
    fields, problem = {}, ""
    try:
        fields = json.loads(raw.decode())
        if not isinstance(fields, dict):
            fields, problem = {}, 'the line is not an object: write {"prompt": "…"}'
    except UnicodeDecodeError as error:
        problem = _not_utf8(error)
    except json.JSONDecodeError as error:
        problem = f"not valid JSON ({error.msg}, column {error.colno}): write one object per line"
    except (ValueError, RecursionError) as error:  # a number of 5000 digits, a thousand brackets
        problem = f"not valid JSON ({error}): write one plain object per line"
    return Row(line.number, line.digest, fields, problem)


_Fields = Callable[[Mapping[str, str]], dict[str, Any]]
"""Makes fields of the cells of a row."""


def _csv_rows(
    lines: Iterator[Line], name: str, needed: str | None, fields: _Fields
) -> Iterator[Row]:
    csv.field_size_limit(MOST_LINE_BYTES)  # its own is 128 KB, and the process's
    taken: list[Line] = []
    reader = csv.reader(_texts(lines, taken), strict=True)
    header = _header(reader, taken, name, needed)
    if header is None:
        return
    while True:
        taken.clear()
        cells, problem = list[str](), ""
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:  # the next row begins at the next line
            problem = f"not valid CSV ({error}): check its quotes"
        if any(line.raw is None for line in taken):
            problem = _TOO_LONG
        if cells or problem:
            yield _csv_row(taken, header, cells, problem, fields)


def _texts(lines: Iterator[Line], taken: list[Line]) -> Iterator[str]:
    """Yield lines as the csv module wants them; what is no UTF-8 is seen once the row is whole."""
    for line in lines:
        taken.append(line)
        yield (line.raw or b"").decode(errors="surrogateescape") + "\n"


def _header(
    reader: Iterator[list[str]], taken: list[Line], name: str, needed: str | None
) -> list[str] | None:
    try:
        header = next(reader, None)
    except csv.Error as error:
        raise UsageError(f"{name} has no header that can be read ({error}): check line 1") from None
    if header is None:
        return None
    shown = repr(", ".join(header)[:_SHOWN_COLUMNS])
    if any(line.raw is None for line in taken) or len(set(header)) < len(header):
        raise UsageError(
            f"{name} has columns of the same name ({shown}): line 1 must name each column"
        )
    if needed is not None and needed not in header:
        raise UsageError(f"{name} has no column {needed!r} among {shown}: name one with --field")
    return header


def _csv_row(
    taken: list[Line], header: list[str], cells: list[str], problem: str, fields_of: _Fields
) -> Row:
    number = taken[0].number
    digest = taken[0].digest
    if len(taken) > 1:
        digest = hashlib.sha256(b"".join(line.digest for line in taken)).digest()[:8]
    if not problem and len(cells) != len(header):
        problem = (
            f"the row has {len(cells)} cells and the header {len(header)}: check commas and quotes"
        )
    if not problem:
        try:
            b"\n".join(line.raw or b"" for line in taken).decode()
        except UnicodeDecodeError as error:
            problem = _not_utf8(error)
    fields = {} if problem else fields_of(dict(zip(header, cells, strict=True)))
    return Row(number, digest, fields, problem)


def _not_utf8(error: UnicodeDecodeError) -> str:
    byte = error.object[error.start]
    return f"the line is not UTF-8 (byte {byte:#04x} at offset {error.start}): convert it, for example with iconv"
