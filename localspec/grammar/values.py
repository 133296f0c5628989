"""What a schema says of values that have no parts: types, numbers, strings, counts; and lists of different values."""

from itertools import combinations
from math import inf, nextafter
from typing import Any

from localspec.grammar.keywords import COUNTS, Schema, same_value, schema_error, types_of
from localspec.grammar.strings import FORMATS, NEVER_WRITTEN, NOT_KEPT, PatternError, translated

_BOUNDS = {"minimum": inf, "exclusiveMinimum": inf, "maximum": -inf, "exclusiveMaximum": -inf}
"""Each with the side that is the safe one where no double is that number."""
_MOST_SUBSETS = 600


def said_of_values(flat: Schema, path: str) -> dict[str, Any]:
    """Return what a schema says of the value itself, in normal form.

    Args:
        flat: a canonical schema.
        path: pointer to it.

    Raises:
        UsageError: a keyword has a value that it does not take, or one that cannot be kept.
    """
    found: dict[str, Any] = {}
    types = types_of(flat, path)
    if types is not None:
        found["type"] = [each for each in types if each != "integer" or "number" not in types]
    for keyword in ("const", "enum", "required", "multipleOf", *COUNTS):
        if keyword in flat:
            found[keyword] = flat[keyword]
            _require_doubles(flat[keyword], path)
            if keyword in {"const", "enum"}:
                _require_writable(flat[keyword], path)
    for keyword, side in _BOUNDS.items():
        if keyword in flat:
            found[keyword] = _bound(flat[keyword], keyword, side, path)
    return found | _of_strings(flat, path)


def plain_pattern(source: object, path: str, *, clear: bool = False) -> str:
    """Return a pattern as llguidance reads it.

    Args:
        source: as the schema has it.
        path: pointer to where it does.
        clear: whether ECMAScript and Python have to agree on all of it.

    Raises:
        UsageError: it has what cannot be kept.
    """
    if not isinstance(source, str):
        raise schema_error(path, f"pattern {str(source)[:40]!r} is not text")
    try:
        found = translated(source)
        if not clear or found == translated(source, wide=True):
            return found
    except PatternError as error:
        raise schema_error(
            path, f"pattern {source[:100]!r} has {error}, which a grammar cannot keep"
        ) from None
    raise schema_error(
        path,
        f"pattern {source[:100]!r} matches other names in ECMAScript than in Python: set additionalProperties to false",
    )


def different(flat: Schema, path: str) -> dict[str, Any]:
    """Return the arrays of different values out of a few, in their order, as alternatives.

    Raises:
        UsageError: the values are not known, or too many.
    """
    items = flat.get("items")
    values = items.get("enum") if isinstance(items, dict) else None
    if not isinstance(values, list) or "prefixItems" in flat:
        raise schema_error(
            path, "uniqueItems can only be enforced for items from a short enum: remove it"
        )
    known: list[Any] = []
    for value in values:
        if not any(same_value(value, each) for each in known):
            known.append(value)
    found: list[Any] = []
    most = min(flat.get("maxItems", len(known)), len(known))
    for size in range(flat.get("minItems", 0), most + 1):
        for some in combinations(known, size):
            firsts = {"prefixItems": [{"const": each} for each in some]} if some else {}
            found.append({"type": "array", **firsts, "minItems": size, "maxItems": size})
            if len(found) > _MOST_SUBSETS:
                raise schema_error(
                    path,
                    "uniqueItems cannot be enforced over so many values: set a smaller maxItems",
                )
    return {"anyOf": found}


def _of_strings(flat: Schema, path: str) -> dict[str, Any]:
    found = {"pattern": plain_pattern(flat["pattern"], path)} if "pattern" in flat else {}
    name = flat.get("format")
    if isinstance(name, str) and name in FORMATS:
        whole = f"^(?:{FORMATS[name]})$"
        return {"allOf": [{"pattern": whole}], **found} if found else {"pattern": whole}
    if not isinstance(name, str | None) or name in NOT_KEPT:
        raise schema_error(path, f"format {str(name)[:40]!r} is not supported: remove it")
    return found


def _bound(value: object, keyword: str, side: float, path: str) -> float:
    """Return a number as a double; where that is another one, the next one on the safe side."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise schema_error(path, f"{keyword} is {str(value)[:40]}: it takes a number")
    _require_finite(value, path)
    near = float(value)
    if near != value and (near < value) == (side > 0):
        near = nextafter(near, side)
    return int(near) if near.is_integer() else near


def _require_doubles(value: object, path: str) -> None:
    """Refuse values with numbers that no double is: llguidance knows no others."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _require_doubles(each, path)
    elif isinstance(value, int | float):
        _require_finite(value, path)
        if float(value) != value:
            raise schema_error(path, f"the number {value} cannot be written: no double equals it")


def _require_writable(value: object, path: str) -> None:
    """Refuse values with texts that have a character which is never written: llguidance would leave it out."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _require_writable(each, path)
    elif isinstance(value, str) and NEVER_WRITTEN.search(value):
        raise schema_error(
            path, f"the text {value[:40]!r} cannot be written: it has a control character"
        )


def _require_finite(value: float, path: str) -> None:
    if not abs(value) < 1.7e308:
        raise schema_error(path, f"the number {str(value)[:40]} cannot be written: it is too large")
