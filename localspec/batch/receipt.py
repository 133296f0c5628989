"""Receipt: what an answer was made with, so that answers of different makings are not mixed unseen."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the answers of a run have in common; two runs with equal receipts answer alike.

    Args:
        seed: of the run, from which those of the lines are derived.
        target: sha256 of the target's file.
        build: versions of this program and of llama.cpp.
        options: digest of all that a line is answered by, see `options_digest`.
        draft_model: sha256 of the draft model's file; it changes no text, so it is told, not compared.
    """

    seed: int
    target: str
    build: str
    options: str
    draft_model: str | None = field(default=None, compare=False)

    def as_json(self) -> dict[str, Any]:
        """Return it as values for JSON."""
        return asdict(self)


def receipt_from(values: Any) -> Receipt:
    """Return the receipt that a record has.

    Raises:
        ValueError: it has none.
    """
    try:
        receipt = Receipt(**values)
    except TypeError:
        raise ValueError("no receipt") from None
    texts = (receipt.target, receipt.build, receipt.options)
    if not isinstance(receipt.seed, int) or not all(isinstance(each, str) for each in texts):
        raise ValueError("no receipt")
    return receipt


def options_digest(options: Mapping[str, Any]) -> str:
    """Return what changes when an option does, 16 hexadecimal digits."""
    text = json.dumps(options, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def difference(one: Receipt, other: Receipt) -> str:
    """Return what two receipts differ in, in words."""
    names = {
        "seed": "another seed",
        "target": "another target",
        "build": "another build",
        "options": "other options",
    }
    return " and ".join(
        text for name, text in names.items() if getattr(one, name) != getattr(other, name)
    )
