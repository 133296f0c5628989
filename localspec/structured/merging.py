"""Merging: a schema that says what several say together, as `allOf` and a `$ref` with neighbours do."""

from collections.abc import Callable
from typing import Any

from localspec.structured.keywords import ASSERTIONS, Schema, type_of
from localspec.structured.schema_error import schema_error

_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_UNSET = object()


def merged(one: Schema, other: Schema, path: str) -> dict[str, Any]:
    """Return a schema that is valid where both are.

    Raises:
        UsageError: together they ask for what one schema cannot say.
    """
    found = {**one, **other}
    for keyword in one.keys() & other.keys() & ASSERTIONS:
        left, right = one[keyword], other[keyword]
        if left != right and keyword != "properties":
            found[keyword] = _both(keyword, left, right, path)
    if "properties" in one or "properties" in other:
        for each in (one, other):
            if not isinstance(each.get("properties", {}), dict):
                raise schema_error(path, "properties takes an object")
        found["properties"] = _properties(one, other)
    return found


def _both(keyword: str, left: Any, right: Any, path: str) -> Any:
    combine = _COMBINED.get(keyword)
    if combine is None:
        raise schema_error(path, f"{keyword!r} is said twice, and differently: say it once")
    try:
        return combine(left, right)
    except TypeError:  # of values that the keyword does not take
        raise schema_error(path, f"{keyword!r} is said twice, and once wrongly") from None


def _properties(one: Schema, other: Schema) -> dict[str, Any]:
    """Return the properties of both; where one closes its object, what it does not name is gone."""
    left, right = one.get("properties", {}), other.get("properties", {})
    found: dict[str, Any] = {}
    for name in (*left, *(name for name in right if name not in left)):
        parts = [
            each
            for each in (_property(one, name), _property(other, name))
            if each is not _UNSET and each is not True
        ]
        found[name] = parts[0] if len(parts) == 1 else {"allOf": parts} if parts else True
    return found


def _property(schema: Schema, name: str) -> Any:
    properties = schema.get("properties", {})
    return properties[name] if name in properties else schema.get("additionalProperties", _UNSET)


def _types(left: Any, right: Any) -> list[str]:
    one, other = ([each] if isinstance(each, str) else each for each in (left, right))
    common = [each for each in one if each in other or (each == "integer" and "number" in other)]
    return common + [
        each for each in other if each == "integer" and "number" in one and each not in common
    ]


def _values(left: list[Any], right: list[Any]) -> list[Any]:
    return [each for each in left if any(same_value(each, value) for value in right)]


def same_value(one: object, other: object) -> bool:
    """Say whether two values are the same in JSON, where true is not 1."""
    kinds = {type_of(one), type_of(other)}
    return one == other and (len(kinds) == 1 or kinds == {"integer", "number"})


def _all_of(left: Any, right: Any) -> Any:
    if left is False or right is False:
        return False
    return {"allOf": [each for each in (left, right) if each is not True]}


_COMBINED: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(_LOWER, max),
    **dict.fromkeys(_UPPER, min),
    "type": _types,
    "enum": _values,
    "required": lambda left, right: [*left, *(each for each in right if each not in left)],
    "additionalProperties": _all_of,
    "items": _all_of,
    "uniqueItems": lambda left, right: left or right,
}
