"""What a line says of what its answer has to look like: a grammar, a schema, or OpenAI's `response_format`."""

from collections.abc import Mapping
from typing import Any

from localspec.batch.plain import plain_line
from localspec.errors import UsageError

STRUCTURE = ("grammar", "json_schema", "response_format")


def line_structure(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a reply that a line sets; none where it says nothing. What it says replaces the run's.

    Raises:
        UsageError: it says two things at once, or what is neither a grammar nor a schema.
    """
    given = {name: fields[name] for name in STRUCTURE if fields.get(name) is not None}
    if not given:
        return {}
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other: give one of them")
    if "grammar" in given:
        return {"grammar": _text("grammar", given["grammar"]), "json_schema": None}
    schema = given.get("json_schema")
    if schema is None:
        schema = _of_format(given["response_format"])
    elif not isinstance(schema, dict | str | bool):
        raise UsageError(f"json_schema is {plain_line(str(schema))[:40]}: it takes an object")
    return {"json_schema": schema, "grammar": None}


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
        f"response_format is {plain_line(str(wanted))[:60]}: its type is text, json_object, or json_schema with a schema"
    )


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} is {plain_line(str(value))[:40]}: it takes a text")
    return value
