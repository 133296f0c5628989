"""What a line may say of how it is answered, laid over what the run says."""

import json
from collections.abc import Mapping
from typing import Any

from localspec.batch.line_structure import STRUCTURE, line_structure
from localspec.errors import UsageError
from localspec.options import Option, ReplyOptions, changed, cut, options_of

_OPTIONS = {each.name: each for each in options_of(ReplyOptions)}
OVERRIDES = (*_OPTIONS, "response_format")
OWN = "reply_options"
"""The field with options of a line whose other fields may be data."""
_OWN_NAMES = (*OVERRIDES, "system")


def line_options(fields: Mapping[str, Any], options: ReplyOptions) -> ReplyOptions:
    """Return options with what the fields of a line say instead; null says nothing.

    Raises:
        UsageError: a value is of the wrong kind, or out of its range.
    """
    given = {
        name: _checked(option, fields[name])
        for name, option in _OPTIONS.items()
        if fields.get(name) is not None and name not in STRUCTURE
    }
    return changed(options, given | line_structure(fields))


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
            raise UsageError(f"{OWN} is {cut(value)}: it takes a JSON object") from None
    if not isinstance(value, dict):
        raise UsageError(f"{OWN} is {cut(value)}: it takes an object")
    for name in value:
        if name not in _OWN_NAMES:
            raise UsageError(f"{OWN} has {cut(name)}: choose one of {', '.join(_OWN_NAMES)}")
    return value


def from_text(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a CSV: numbers where an option takes one, nothing where its cell is empty."""
    return {
        name: _number(_OPTIONS.get(name), text)
        for name, text in fields.items()
        if text or name not in OVERRIDES
    }


def _number(option: Option | None, text: str) -> Any:
    if option is None or option.kind not in {"whole", "number"}:
        return text
    try:
        return option.parse(text)
    except ValueError:
        return text


def _checked(option: Option, value: Any) -> Any:
    if option.kind == "texts" and isinstance(value, str):
        value = [value]
    try:
        if option.name == "logit_bias":
            return tuple((int(token), float(bias)) for token, bias in value.items())
        return option.read(value)
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise UsageError(f"{option.name} is {cut(value)}: it takes {option.takes}") from None
