"""Options of a reply as JSON fields: lines of a batch and bodies of all HTTP interfaces are read here, and nowhere else."""

from collections.abc import Mapping
from typing import Any

from localspec.errors import UsageError
from localspec.options.option import Option, changed, cut, options_of
from localspec.options.reply import FORBIDDEN, GRAMMARS, ReplyOptions

_OPTIONS = {each.name: each for each in options_of(ReplyOptions)}
FORMAT = "response_format"
FIELDS = (*_OPTIONS, FORMAT)
_STRUCTURE = (*GRAMMARS, FORMAT)
_BAN = -100
"""The bias that OpenAI calls a ban."""


def with_fields(options: ReplyOptions, fields: Mapping[str, Any]) -> ReplyOptions:
    """Return options with what `FIELDS` among some fields say instead; null says nothing.

    A schema, a grammar, an expression or a format replaces whatever the answer had to look like.

    Raises:
        UsageError: a value is of the wrong kind, or out of its range, or two cannot be combined.
    """
    given = {
        name: _value(option, fields[name])
        for name, option in _OPTIONS.items()
        if fields.get(name) is not None and name not in GRAMMARS
    }
    return changed(options, given | _structure(fields))


def schema_of(wanted: Any) -> tuple[Any, bool]:
    """Return the schema that a `response_format` stands for, None for text, and whether it must be enforced to the letter.

    The description of a `json_schema` may also stand in the format itself, as in OpenAI's responses.
    """
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if kind == "text":
        return None, False
    if kind == "json_object":
        return {"type": "object"}, True
    described = wanted.get("json_schema", wanted) if kind == "json_schema" else None
    if isinstance(described, dict) and isinstance(described.get("schema"), dict | bool):
        return described["schema"], described.get("strict") is True
    raise UsageError(
        f"{FORMAT} is {cut(wanted)}: its type is text, json_object, or json_schema with a schema"
    )


def from_text(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a CSV: numbers where an option takes one, nothing where its cell is empty."""
    return {
        name: _number(_OPTIONS.get(name), text)
        for name, text in fields.items()
        if text or name not in FIELDS
    }


def _number(option: Option | None, text: str) -> Any:
    if option is None or option.kind not in {"whole", "number"}:
        return text
    try:
        return option.parse(text)
    except ValueError:
        return text


def _value(option: Option, value: Any) -> Any:
    if option.kind == "texts" and isinstance(value, str):
        value = [value]
    try:
        if option.name == "logit_bias":
            biases = ((int(token), float(bias)) for token, bias in value.items())
            return tuple((token, FORBIDDEN if bias <= _BAN else bias) for token, bias in biases)
        return option.read(value)
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise UsageError(f"{option.name} is {cut(value)}: it takes {option.takes}") from None


def _structure(fields: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: fields[name] for name in _STRUCTURE if fields.get(name) is not None}
    if not given:
        return {}
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} cannot be combined: give one of them")
    ((name, value),) = given.items()
    if name == FORMAT:
        name, value = "json_schema", schema_of(value)[0]
    elif not isinstance(value, dict | str | bool if name == "json_schema" else str):
        wanted = "an object" if name == "json_schema" else "a text"
        raise UsageError(f"{name} is {cut(value)}: it takes {wanted}")
    return {**dict.fromkeys(GRAMMARS), name: value}
