"""Values that a schema names itself."""

from localspec.structured.keywords import ASSERTIONS, Schema, type_of, types_of
from localspec.structured.rules import choice, json_literal
from localspec.structured.schema_error import schema_error

_OF_VALUES = ASSERTIONS - {"type", "enum", "const"}


def values_body(schema: Schema, path: str) -> str:
    """Return the values that `enum` or `const` name, as JSON spells them.

    Raises:
        UsageError: none of them is valid, or more is said of them.
    """
    values = [schema["const"]] if "const" in schema else schema["enum"]
    if not isinstance(values, list):
        raise schema_error(path, "enum takes a list of values")
    if "const" in schema and "enum" in schema:
        raise schema_error(path, "const beside enum: leave one of them out")
    beside = [each for each in schema if each in _OF_VALUES]
    if beside:
        raise schema_error(
            path, f"{beside[0]} beside enum or const: leave it out, the values say it"
        )
    if "type" in schema:
        types = types_of(schema, path)
        values = [each for each in values if _is_of(type_of(each), types)]
    if not values:
        raise schema_error(path, "no value is valid here: make what needs one optional")
    return choice([json_literal(each) for each in values])


def _is_of(kind: str, types: tuple[str, ...]) -> bool:
    return kind in types or (kind == "integer" and "number" in types)
