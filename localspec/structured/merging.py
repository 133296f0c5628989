"""Merging: a schema that says what several say together, as `allOf` and a `$ref` with neighbours do."""

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

from localspec.structured.arrays import item_schemas
from localspec.structured.keywords import ASSERTIONS, Schema
from localspec.structured.schema_error import schema_error

_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_APART = ("properties", "prefixItems", "items", "additionalItems")
_UNSET = object()


def merged(one: Schema, other: Schema, path: str) -> dict[str, Any]:
    """Return a schema that is valid where both are.

    Raises:
        UsageError: together they ask for what one schema cannot say.
    """
    found = {**one, **other}
    for keyword in one.keys() & other.keys() & ASSERTIONS:
        left, right = one[keyword], other[keyword]
        if keyword not in _APART and not same_value(left, right):
            found[keyword] = _both(keyword, left, right, path)
    if found.get("type") == []:
        raise schema_error(path, "what is said together allows no type: leave one of them out")
    if "properties" in one or "properties" in other:
        for each in (one, other):
            if not isinstance(each.get("properties", {}), dict):
                raise schema_error(path, "properties takes an object")
        found["properties"] = _properties(one, other)
    if any(keyword in each for keyword in ("prefixItems", "items") for each in (one, other)):
        found.pop("additionalItems", None)
        found.pop("items", None)
        found |= _items(one, other, path)
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
        found[name] = _all_of(_property(one, name), _property(other, name))
    return found


def _items(one: Schema, other: Schema, path: str) -> dict[str, Any]:
    """Return the first items of both, and all others; what one says of all others, it says of the other's first ones."""
    (firsts, rest), (other_firsts, other_rest) = (item_schemas(each, path) for each in (one, other))
    both = zip_longest(firsts, other_firsts, fillvalue=_UNSET)
    first = [
        _all_of(rest if left is _UNSET else left, other_rest if right is _UNSET else right)
        for left, right in both
    ]
    others = _all_of(rest, other_rest)
    return ({"prefixItems": first} if first else {}) | ({} if others is True else {"items": others})


def _property(schema: Schema, name: str) -> Any:
    properties = schema.get("properties", {})
    return properties[name] if name in properties else schema.get("additionalProperties", True)


def _types(left: Any, right: Any) -> list[str]:
    one, other = ([each] if isinstance(each, str) else each for each in (left, right))
    common = [each for each in one if each in other or (each == "integer" and "number" in other)]
    return common + [
        each for each in other if each == "integer" and "number" in one and each not in common
    ]


def _values(left: list[Any], right: list[Any]) -> list[Any]:
    return [each for each in left if any(same_value(each, value) for value in right)]


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


def _all_of(left: Any, right: Any) -> Any:
    if left is False or right is False:
        return False
    said = [each for each in (left, right) if each is not True]
    return {"allOf": said} if len(said) > 1 else said[0] if said else True


_COMBINED: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(_LOWER, max),
    **dict.fromkeys(_UPPER, min),
    "type": _types,
    "enum": _values,
    "required": lambda left, right: [*left, *(each for each in right if each not in left)],
    "additionalProperties": _all_of,
    "uniqueItems": lambda left, right: left or right,
}
