"""What a line says of its answer's look: a schema, a grammar, a regular expression, or OpenAI's `response_format`."""

from collections.abc import Mapping
from typing import Any

from localspec.display import printable_line
from localspec.errors import UsageError
from localspec.options import GRAMMARS

STRUCTURE = (*GRAMMARS, "response_format")


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
