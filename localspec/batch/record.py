"""Record: what is written of one line, as JSON or as a row of CSV, and what of it is read again."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from localspec.batch.receipt import Receipt, receipt_from
from localspec.batch.rows import Format, Row
from localspec.batch.seeds import Id
from localspec.chat.events import Reply
from localspec.chat.reply_figures import speculation, timings, usage
from localspec.display import printable, printable_line
from localspec.errors import LocalspecError

Record = dict[str, Any]

MOST_ANSWER_CHARS = 1 << 26
"""More than any context holds."""

BEGINNING = b'{"line": '
"""How every record begins in JSON lines."""

# Column: where a record has its value.
_COLUMNS: dict[str, tuple[str, ...]] = {
    "line": ("line",),
    "id": ("id",),
    "text": ("text",),
    "error": ("error", "message"),
    "stop_reason": ("stop_reason",),
    "thinking": ("thinking",),
    "seed": ("seed",),
    "prompt_tokens": ("usage", "prompt_tokens"),
    "completion_tokens": ("usage", "completion_tokens"),
    "first_token_s": ("timings", "first_token_s"),
    "decode_s": ("timings", "decode_s"),
    "tokens_per_s": ("timings", "tokens_per_s"),
    "drafter": ("speculation", "drafter"),
    "drafted": ("speculation", "drafted"),
    "accepted": ("speculation", "accepted"),
    "input": ("input",),
    "run_seed": ("receipt", "seed"),
    "target": ("receipt", "target"),
    "draft_model": ("receipt", "draft_model"),
    "build": ("receipt", "build"),
    "options": ("receipt", "options"),
}


class NoRecordError(Exception):
    """What was read is not a record, or not a whole one."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a record says of its line.

    Args:
        number: of the line.
        digest: of the line, 8 bytes.
        receipt: what it was answered with.
        failed: whether it says why there is no answer.
    """

    number: int
    digest: bytes
    receipt: Receipt
    failed: bool


def answer_record(row: Row, line_id: Id, reply: Reply, model: Record, receipt: Receipt) -> Record:
    """Return the record of a line that was answered; `model` names the models."""
    return {
        "line": row.number,
        "id": line_id,
        "text": reply.text,
        **({"thinking": reply.thinking} if reply.thinking else {}),
        "stop_reason": reply.stop_reason.value,
        "seed": reply.seed,
        "model": model,
        "usage": usage(reply),
        "timings": timings(reply),
        "speculation": speculation(reply),
        "input": row.digest.hex(),
        "receipt": receipt.as_json(),
    }


def error_record(row: Row, line_id: Id, error: LocalspecError, receipt: Receipt) -> Record:
    """Return the record of a line that cannot be answered."""
    message = printable_line(str(error)) or "no reason is known"
    return {
        "line": row.number,
        "id": line_id,
        "error": {"type": type(error).__name__, "message": message},
        "input": row.digest.hex(),
        "receipt": receipt.as_json(),
    }


def encoded(record: Record, form: Format, *, to_terminal: bool = False) -> bytes:
    """Return a record as a line, its end included; of CSV, a row, which may have more of them in quotes.

    Args:
        record: what was written.
        form: how to write it.
        to_terminal: leave out what one would obey; JSON spells it, as all that is not ASCII.
    """
    if form == "csv":
        values = [_value(record, path) for path in _COLUMNS.values()]
        if to_terminal:
            values = [printable(each, "\t\n") if isinstance(each, str) else each for each in values]
        return _row_of(values)
    text = json.dumps(record, ensure_ascii=to_terminal)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # half of a character, in an id
        return json.dumps(record).encode() + b"\n"


def header(form: Format) -> bytes:
    """Return what a file begins with before its first record."""
    return _row_of(list(_COLUMNS)) if form == "csv" else b""


def read_record(raw: bytes, form: Format) -> Written:
    """Return what a record says.

    Raises:
        NoRecordError: it is none.
    """
    try:
        record = json.loads(raw) if form == "jsonl" else _nested(_cells(raw))
        number, digest = record["line"], bytes.fromhex(record["input"])
        receipt, failed = receipt_from(record["receipt"]), "error" in record
    except (LookupError, TypeError, ValueError, StopIteration, RecursionError, csv.Error) as error:
        raise NoRecordError from error
    if not isinstance(number, int) or not 0 < number < 1 << 63 or len(digest) != 8:
        raise NoRecordError
    return Written(number, digest, receipt, failed)


def _value(record: Record, path: Sequence[str]) -> Any:
    value: Any = record
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _row_of(values: Sequence[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(values)  # its own line ends: both of their characters get quotes
    return text.getvalue().removesuffix("\r\n").encode(errors="replace") + b"\n"


def _cells(raw: bytes) -> dict[str, str]:
    csv.field_size_limit(MOST_ANSWER_CHARS)  # its own is 128 KB
    cells = next(csv.reader(io.StringIO(raw.decode(), newline=""), strict=True))
    return dict(zip(_COLUMNS, cells, strict=True))


def _nested(cells: dict[str, str]) -> Record:
    receipt = {
        "seed": int(cells["run_seed"]),
        "draft_model": cells["draft_model"] or None,
        **{name: cells[name] for name in ("target", "build", "options")},
    }
    failed = {"error": cells["error"]} if cells["error"] else {}
    return {"line": int(cells["line"]), "input": cells["input"], "receipt": receipt, **failed}
