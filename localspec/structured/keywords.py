"""Keywords of JSON schema: which are kept, which are refused, and which say nothing about what is valid."""

from collections.abc import Mapping
from typing import Any

from localspec.structured.schema_error import schema_error

Schema = Mapping[str, Any]
TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_BY_TYPE = {
    "object": ("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "additionalItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
ASSERTIONS = frozenset(
    {
        *(keyword for keywords in _BY_TYPE.values() for keyword in keywords),
        *("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"),
        *("unevaluatedProperties", "unevaluatedItems"),
    }
)
_REFUSED = (
    *("not", "if", "then", "else", "patternProperties", "propertyNames", "contains", "minContains"),
    *("maxContains", "dependentRequired", "dependentSchemas", "dependencies", "$dynamicRef"),
    *("$recursiveRef", "$anchor", "$dynamicAnchor", "contentSchema"),
)


def require_known(schema: object, path: str) -> Schema:
    """Return a schema as an object, after a look at its keywords; what is no keyword says nothing, as the standard has it.

    Raises:
        UsageError: it is no schema, or has a keyword that a grammar cannot keep.
    """
    if schema is True:
        return {}
    if schema is False:
        return {"enum": []}
    if not isinstance(schema, dict):
        raise schema_error(path, f"{str(schema)[:40]!r} is no schema: it takes an object")
    for keyword in _REFUSED:
        if keyword in schema:
            raise schema_error(path, f"a grammar cannot keep {keyword!r}: leave it out")
    return schema


def types_of(schema: Schema, path: str) -> tuple[str, ...]:
    """Return the types that a schema allows; where it says none, those that its keywords speak of, or all.

    `integer` is left out where `number` is allowed.
    """
    said = schema.get("type")
    if said is None:
        spoken = [each for each, keywords in _BY_TYPE.items() if any(k in schema for k in keywords)]
        return tuple(spoken) or tuple(each for each in TYPES if each != "integer")
    listed = [said] if isinstance(said, str) else said
    if not isinstance(listed, list) or not listed or any(each not in TYPES for each in listed):
        raise schema_error(path, f"type is {str(said)[:60]!r}: it takes some of {', '.join(TYPES)}")
    return tuple(each for each in listed if each != "integer" or "number" not in listed)


def type_of(value: object) -> str:
    """Return the type of a value as JSON schema calls it."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    kinds = ((float, "number"), (str, "string"), (list, "array"), (dict, "object"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "null")


def count(schema: Schema, keyword: str, path: str) -> int | None:
    """Return a keyword that counts something; None where it is not there."""
    value = schema.get(keyword)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 100_000:
        raise schema_error(
            path, f"{keyword} is {str(value)[:40]}: it takes a whole number from 0 to 100000"
        )
    return value
