"""What a line may say of how it is answered, laid over what the run says."""

import json
from collections.abc import Mapping
from typing import Any

from localspec.display import printable_line
from localspec.errors import UsageError
from localspec.options import GRAMMARS, Option, ReplyOptions, changed, cut, options_of

_OPTIONS = {each.name: each for each in options_of(ReplyOptions)}
OVERRIDES = (*_OPTIONS, "response_format")
STRUCTURE = (*GRAMMARS, "response_format")
"""What a line may say of its answer's look: a schema, a grammar, a regular expression, or OpenAI's `response_format`."""
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


def line_structure(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a reply that a line sets; none where it says nothing. What it says replaces the run's.

    Raises:
        UsageError: it says two things at once, or what is none of these.
    """
    given = {name: fields[name] for name in STRUCTURE if fields.get(name) is not None}
    if not given:
        return {}
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} cannot be combined: give one of them")
    ((name, value),) = given.items()
    if name == "response_format":
        name, value = "json_schema", _of_format(value)
    elif not isinstance(value, dict | str | bool if name == "json_schema" else str):
        wanted = "an object" if name == "json_schema" else "a text"
        raise UsageError(f"{name} is {printable_line(str(value))[:40]}: it takes {wanted}")
    return {**dict.fromkeys(GRAMMARS), name: value}


def _of_format(wanted: Any) -> Any:
    """Return the schema that a `response_format` asks for; None for any text."""
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    named = wanted.get("json_schema") if kind == "json_schema" else None
    if isinstance(named, dict) and isinstance(named.get("schema"), dict):
        return named["schema"]
    raise UsageError(
        f"response_format is {printable_line(str(wanted))[:60]}: its type is text, json_object, or json_schema with a schema"
    )
