"""Keywords of JSON schema: which are kept, where subschemas lie, and the error that names a place."""

from collections.abc import Iterator, Mapping
from typing import Any

from localspec.display import printable
from localspec.errors import UsageError

Schema = Mapping[str, Any]
TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
BY_TYPE = {
    "object": (
        *("properties", "patternProperties", "additionalProperties", "unevaluatedProperties"),
        *("required", "minProperties", "maxProperties"),
        *("dependentRequired", "dependentSchemas", "dependencies"),
    ),
    "array": ("prefixItems", "items", "unevaluatedItems", "minItems", "maxItems", "uniqueItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""What speaks of one type of value alone."""
IN_PLACE = ("$ref", "allOf", "anyOf", "oneOf")
"""What says more of the same value."""
ASSERTIONS = frozenset(
    {*(each for some in BY_TYPE.values() for each in some), *IN_PLACE, "type", "enum", "const"}
)
COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_REFUSED = (
    *("not", "if", "then", "else", "propertyNames", "contains", "minContains", "maxContains"),
    *("$dynamicRef", "$recursiveRef"),
)
_ONE = ("items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties")
_LISTED = ("prefixItems", "allOf", "anyOf", "oneOf")
_NAMED = ("properties", "patternProperties", "dependentSchemas")
_LONGEST = 300


def schema_error(path: str, what: str) -> UsageError:
    """Return the error about a place in a schema, on one line.

    Args:
        path: JSON pointer to it, "" for the whole.
        what: is wrong there, and what to do.
    """
    text = " ".join(what.split())
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    where = path if len(path) <= _LONGEST else f"{path[:_LONGEST]}…"
    line = f"the JSON schema cannot be enforced at {where or 'its root'}: {shown}"
    # A schema may come from anywhere, and a terminal obeys some characters.
    return UsageError(printable(line))


def member(path: str, *names: str | int) -> str:
    """Return the pointer to what lies within what `path` points to."""
    escaped = (str(name).replace("~", "~0").replace("/", "~1") for name in names)
    return "/".join((path, *escaped))


def canonical(schema: object, path: str) -> Schema:
    """Return a schema with the keywords of 2020-12 in place of older ones; its subschemas are left as they are.

    Raises:
        UsageError: it is no schema, a keyword has a value that it does not take, or is none that can be kept.
    """
    if isinstance(schema, bool):
        return {} if schema else {"enum": []}
    if not isinstance(schema, dict):
        raise schema_error(path, f"{str(schema)[:40]!r} is not a schema: write an object")
    for keyword in _REFUSED:
        if keyword in schema:
            raise schema_error(path, f"{keyword!r} is not supported: remove it")
    found = {keyword: value for keyword, value in schema.items() if keyword in ASSERTIONS}
    _modernise(found, schema)
    for keyword in COUNTS:
        if keyword in found:
            found[keyword] = _count(found[keyword], keyword, path)
    _require_shapes(found, path)
    return found


def _modernise(found: dict[str, Any], schema: Schema) -> None:
    """Put keywords of 2020-12 in place of older ones."""
    if isinstance(found.get("items"), list):
        firsts = found.pop("items")
        rest = {"items": schema["additionalItems"]} if "additionalItems" in schema else {}
        found |= ({"prefixItems": firsts} if firsts else {}) | rest
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(found.get(exclusive), bool):  # as in draft 4
            found |= {exclusive: found[bound]} if found.pop(exclusive) and bound in found else {}
    both = found.pop("dependencies", {})
    if not isinstance(both, dict):
        found["dependentRequired"] = both  # which takes no such thing either
        return
    for name, needed in both.items():
        kind = "dependentRequired" if isinstance(needed, list) else "dependentSchemas"
        found[kind] = {**found.get(kind, {}), name: needed}


def subschemas(schema: Schema) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the subschemas of a canonical schema, each with its place."""
    for keyword in _ONE:
        if keyword in schema:
            yield (keyword,), schema[keyword]
    for keyword in _LISTED:
        for index, each in enumerate(schema.get(keyword, ())):
            yield (keyword, index), each
    for keyword in _NAMED:
        for name, each in schema.get(keyword, {}).items():
            yield (keyword, name), each


def applies(flat: Schema) -> bool:
    """Say whether a schema says more of the same value by other schemas."""
    return any(keyword in flat for keyword in (*IN_PLACE, "dependentSchemas"))


def is_alone(flat: Schema) -> bool:
    """Say whether a schema hands on to others to say all: it only refers to one, or lists alternatives."""
    return (
        len(flat) == 1 and not flat.keys().isdisjoint(IN_PLACE) and len(flat.get("allOf", "1")) == 1
    )


def types_of(schema: Schema, path: str) -> tuple[str, ...] | None:
    """Return the types that a schema names; None where it names none.

    Raises:
        UsageError: they are no types.
    """
    said = schema.get("type")
    if said is None:
        return None
    listed = [said] if isinstance(said, str) else said
    if not isinstance(listed, list) or not listed or any(each not in TYPES for each in listed):
        raise schema_error(path, f"type is {str(said)[:60]!r}: it takes some of {', '.join(TYPES)}")
    return tuple(listed)


def spoken_types(schema: Schema) -> tuple[str, ...]:
    """Return the types that the keywords of a schema speak of."""
    return tuple(kind for kind, keywords in BY_TYPE.items() if any(k in schema for k in keywords))


def type_of(value: object) -> str:
    """Return the type of a value as JSON schema calls it."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    kinds = ((float, "number"), (str, "string"), (list, "array"), (dict, "object"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "null")


def same_value(one: object, other: object) -> bool:
    """Say whether two values are the same in JSON, where true is not 1, however deep within them."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_value, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            same_value(one[name], other[name]) for name in one
        )
    return one == other


def _count(value: object, keyword: str, path: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise schema_error(
            path, f"{keyword} is {str(value)[:40]}: it takes a whole number from 0 on"
        )
    return value


def _require_shapes(found: Schema, path: str) -> None:
    for keyword in (*_NAMED, "dependentRequired"):
        if not isinstance(found.get(keyword, {}), dict):
            raise schema_error(path, f"{keyword} takes an object")
    for keyword in _LISTED:
        if keyword in found and (not isinstance(found[keyword], list) or not found[keyword]):
            raise schema_error(path, f"{keyword} takes a list of schemas")
    for names in (found.get("required", []), *found.get("dependentRequired", {}).values()):
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            raise schema_error(path, "required takes a list of names")
    if not isinstance(found.get("enum", []), list):
        raise schema_error(path, "enum takes a list of values")
