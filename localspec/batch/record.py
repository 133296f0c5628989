"""What is written of a line, with the receipt of the run that answered it, and what of it is read again."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from localspec.batch.source import Line
from localspec.chat.events import Reply
from localspec.chat.reply_figures import speculation, timings, usage
from localspec.display import printable_line
from localspec.errors import LocalspecError, for_command_line

Id = str | int | None

BEGINNING = b'{"line": '
"""How every record begins."""
MOST_RECORD_BYTES = 1 << 27
"""More than any context holds."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the answers of a run have in common; two runs with equal receipts answer alike.

    Args:
        seed: of the run, from which those of the lines are derived.
        target: sha256 of the target's file; of a server, the name of its model.
        build: versions of this program and of llama.cpp, or the server.
        options: digest of all that a line is answered by, see `options_digest`.
        draft_model: sha256 of the draft model's file; it changes no text, so it is not compared.
    """

    seed: int
    target: str
    build: str
    options: str
    draft_model: str | None = field(default=None, compare=False)

    def difference(self, other: "Receipt") -> str:
        """Return in words what another one differs in."""
        names = ("seed", "target", "build", "options")
        differing = [name for name in names if getattr(self, name) != getattr(other, name)]
        return " and ".join(
            f"{'other' if each == 'options' else 'another'} {each}" for each in differing
        )


class Record(msgspec.Struct, frozen=True):
    """What a resumed run reads of a record.

    Args:
        line: number of the line.
        input: digest of the line.
        receipt: what it was answered with.
        error: why there is no answer; None if there is one.
    """

    line: Annotated[int, msgspec.Meta(ge=1)]
    input: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
    receipt: Receipt
    error: dict[str, str] | None = None


def read_record(raw: bytes) -> Record:
    """Return the content of a record.

    Raises:
        ValueError: it is none.
    """
    try:
        return msgspec.convert(json.loads(raw), Record)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise ValueError("not a record") from error


def options_digest(options: Mapping[str, Any]) -> str:
    """Return what changes when an option does, 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:16]


def line_seed(run_seed: int, line_id: Id, number: int) -> int:
    """Return the seed of a line, 32 bits, from the run's and the line's id, or its number without one.

    Lines of the same id have the same seed; the id 5 and the text "5" have not.
    """
    name = f"line {number}" if line_id is None else f"id {json.dumps(line_id)}"
    digest = hashlib.sha256(f"localspec batch\n{run_seed}\n{name}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def record_of(line: Line, line_id: Id, receipt: Receipt, **outcome: Any) -> dict[str, Any]:
    """Return the record of a line, with its `reply_fields` or `error_fields`."""
    given = {"line": line.number, "id": line_id, **outcome}
    return {**given, "input": line.digest, "receipt": msgspec.to_builtins(receipt)}


def reply_fields(reply: Reply, model: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """Return the fields of an answer; `model` names the models, `reason` is why it was drafted as it was."""
    return {
        "text": reply.text,
        **({"thinking": reply.thinking} if reply.thinking else {}),
        "stop_reason": reply.stop_reason.value,
        "seed": reply.seed,
        "model": model,
        "usage": usage(reply),
        "timings": timings(reply),
        "speculation": speculation(reply, reason),
        **({"note": reply.note} if reply.note else {}),
    }


def error_fields(error: LocalspecError) -> dict[str, Any]:
    """Return the fields of a line that cannot be answered."""
    message = printable_line(for_command_line(error)) or "no reason is known"
    return {"error": {"type": type(error).__name__, "message": message}}


def encoded(record: Mapping[str, Any], *, ascii_only: bool = False) -> bytes:
    """Return a record as a line with its end; `ascii_only` for a terminal, which obeys some characters."""
    try:
        return json.dumps(record, ensure_ascii=ascii_only).encode() + b"\n"
    except UnicodeEncodeError:  # half of a character, in an id
        return json.dumps(record).encode() + b"\n"
