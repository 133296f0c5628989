"""What a line may say of how it is answered, laid over what the run says."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from localspec.batch.line_structure import STRUCTURE, line_structure
from localspec.chat.reply_options import ReplyOptions
from localspec.errors import UsageError

NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
)
WHOLE = ("top_k", "penalty_last_n", "max_tokens", "seed")
OVERRIDES = (*NUMBERS, *WHOLE, "stop", "logit_bias", *STRUCTURE)
OWN = "reply_options"
"""The field with options of a line whose other fields may be data."""
_OF_THE_REPLY = ("max_tokens", "seed", "stop")
_OWN_NAMES = (*OVERRIDES, "system")


def line_options(fields: Mapping[str, Any], options: ReplyOptions) -> ReplyOptions:
    """Return options with what the fields of a line say instead; null says nothing.

    Raises:
        UsageError: a value is of the wrong kind, or out of its range.
    """
    structure = line_structure(fields)
    given = {
        name: _checked(name, fields[name])
        for name in OVERRIDES
        if fields.get(name) is not None and name not in STRUCTURE
    }
    if not given and not structure:
        return options
    of_the_reply = structure | {name: given.pop(name) for name in _OF_THE_REPLY if name in given}
    return replace(options, sampling=replace(options.sampling, **given), **of_the_reply)


def own_options(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a line says in `reply_options`: an object, or in a CSV the JSON of one; a system prompt is part of it.

    Raises:
        UsageError: it is no object, or has a name that is none of an option.
    """
    value = fields.get(OWN)
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise UsageError(f"{OWN} is {_cut(value)}: it takes a JSON object") from None
    if not isinstance(value, dict):
        raise UsageError(f"{OWN} is {_cut(value)}: it takes an object")
    for name in value:
        if name not in _OWN_NAMES:
            raise UsageError(f"{OWN} has {_cut(name)}: known are {', '.join(_OWN_NAMES)}")
    return value


def from_text(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a CSV: numbers where an option takes one, nothing where its cell is empty."""
    return {
        name: _number(name, text) if name in NUMBERS or name in WHOLE else text
        for name, text in fields.items()
        if text or name not in OVERRIDES
    }


def _number(name: str, text: str) -> float | int | str:
    kind: Callable[[str], float | int] = int if name in WHOLE else float
    try:
        return kind(text)
    except ValueError:
        return text


def _checked(name: str, value: Any) -> Any:
    if name == "stop":
        return _stop(value)
    if name == "logit_bias":
        return _logit_bias(value)
    kinds = (int, float) if name in NUMBERS else (int,)
    try:
        if isinstance(value, kinds) and not isinstance(value, bool):
            return float(value) if name in NUMBERS else value
    except OverflowError:  # a whole number beyond every float
        pass
    wanted = "a number" if name in NUMBERS else "a whole number"
    raise UsageError(f"{name} is {_cut(value)}: it takes {wanted}")


def _stop(value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"stop is {_cut(value)}: it takes a text, or a list of texts")
    return tuple(texts)


def _logit_bias(value: Any) -> tuple[tuple[int, float], ...]:
    try:
        return tuple((int(token), float(bias)) for token, bias in value.items())
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise UsageError(
            f"logit_bias is {_cut(value)}: it takes an object of token ids and numbers"
        ) from None


def _cut(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}…"
