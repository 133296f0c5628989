"""A JSON schema rewritten for llguidance, which keeps most of it by itself.

What it lacks, or reads more widely than the standard, is rewritten so that every answer is valid. Properties that a
schema does not name are written only where it describes them.
"""

import json
import re
from collections.abc import Collection
from decimal import Decimal
from fractions import Fraction
from math import inf, isfinite, nextafter
from typing import Any, NamedTuple
from urllib.parse import unquote

from localspec.grammar.document import (  # fmt: skip
    CHOICES,
    KEYWORDS,
    member,
    part_at,
    require_known,
    schema_error,
    types_of,
)
from localspec.grammar.idioms import plain_part
from localspec.grammar.patterns import FORMATS, NATIVE_FORMATS, REFUSED_FORMATS, rust_pattern

_JOINS = ("$ref", *CHOICES)
_PROPERTIES = ("properties", "patternProperties")
_ITEMS = ("items", "prefixItems", "additionalItems", "additionalProperties")
_UPWARD = ("minimum", "exclusiveMinimum")
_UNWRITABLE = re.compile(r"\\u00(?:[01]|7f)")
"""Characters that llguidance leaves out of a text."""
_COUNTS = frozenset(
    f"{side}{what}" for side in ("min", "max") for what in ("Length", "Items", "Properties")
)
_MOST_COUNT = (1 << 31) - 1
_MOST_LIMIT = (1 << 63) - 1024
"""The largest double of 64 bits: what lies behind it is no number any more for llguidance."""
_MOST_DIVISOR = 100_000
"""A second to compile, and ten times as much takes ten."""
_MOST_INLINE = 4


class Rewritten(NamedTuple):
    """A schema as llguidance takes it.

    Args:
        schema: it; what it refers to is under its `$defs`.
        parts: each part of it with the JSON pointer to what it was made of; what lies within another comes first.
        unproven: whether it has a `oneOf`, whose alternatives llguidance has to find disjoint.
    """

    schema: dict[str, Any]
    parts: list[tuple[str, Any]]
    unproven: bool


def rewritten(schema: object, *, proven: bool = False) -> Rewritten:
    """Return a schema as llguidance takes it.

    Args:
        schema: as `json.loads` gives it.
        proven: whether the alternatives of each `oneOf` are known to be disjoint.

    Raises:
        UsageError: it is no schema, or has what a mask cannot keep, with the place.
    """
    try:
        return _Writer(schema, proven=proven).whole()
    except RecursionError:
        raise schema_error("", "it is nested too deeply") from None


class _Writer:
    def __init__(self, schema: object, *, proven: bool) -> None:
        self._schema, self._proven = schema, proven
        self._unproven = False
        self._names: dict[tuple[str, bool], str] = {}
        self._parts: list[tuple[str, Any]] = []
        self._inline = 0

    def whole(self) -> Rewritten:
        root, definitions = self._reference("#", "", closed=True), dict[str, Any]()
        while len(definitions) < len(self._names):  # which writing one may add to
            reference, closed = [*self._names][len(definitions)]
            part = part_at(self._schema, reference, "")
            definitions[str(len(definitions))] = self._written(part, unquote(reference[1:]), closed)
        ending = set[str]()
        while more := {n for n in definitions.keys() - ending if _ends(definitions[n], ending)}:
            ending |= more
        ending -= {name for name, each in definitions.items() if each is False}
        if "0" not in ending:
            raise schema_error("", "it allows nothing, or has to contain itself: it can never end")
        for _, part in self._parts:  # what can contain nothing but itself is left out
            if "$ref" in part and not _ends({"$ref": part["$ref"]}, ending):
                part.clear()
                part["enum"] = []
        return Rewritten({"$ref": root, "$defs": definitions}, self._parts, self._unproven)

    def _reference(self, reference: str, path: str, *, closed: bool) -> str:
        part_at(self._schema, reference, path)
        return f"#/$defs/{self._names.setdefault((reference, closed), str(len(self._names)))}"

    def _written(self, schema: Any, path: str, closed: bool) -> Any:
        """Return a part; where `closed`, it alone constrains a value, which is written without what it does not name."""
        schema = plain_part(self._schema, schema, path)
        if isinstance(schema, bool):
            return schema
        require_known(schema, path)
        schema = {keyword: value for keyword, value in schema.items() if keyword in KEYWORDS}
        alone = len(schema) == 1 == len(schema.get("allOf", "1")) and not schema.keys().isdisjoint(
            _JOINS
        )
        inner = closed and alone and ("oneOf" not in schema or self._proven)
        part: dict[str, Any] = {}
        also: list[Any] = []
        for keyword, value in schema.items():
            place = member(path, keyword)
            if keyword == "$ref":
                part[keyword] = self._reference(value, path, closed=inner)
            elif keyword == "oneOf" and not self._proven:
                also.append({"oneOf": self._unproven_alternatives(value, place)})
            elif keyword in CHOICES:
                name = keyword if keyword == "allOf" else "anyOf"
                joined = {name: self._listed(value, place, inner)}
                # llguidance reads it before the alternatives of `oneOf`, which may contain this part.
                is_first = keyword == "anyOf" and "oneOf" in schema
                part |= joined if is_first else {}
                also += [] if is_first else [joined]
            elif keyword in {*_PROPERTIES, *_ITEMS}:
                part |= self._inner(keyword, value, schema, path, closed)
            else:
                part |= _of_values(keyword, value, schema, path, also)
        if closed and not inner:
            self._close(part, also, schema, path)
        if also:
            part["allOf"] = also
        self._parts.append((path, part))
        return part

    def _inner(
        self, keyword: str, value: Any, schema: dict[str, Any], path: str, closed: bool
    ) -> dict[str, Any]:
        """Return what a keyword says of properties or items."""
        place = member(path, keyword)
        if keyword in _PROPERTIES:
            _require_writable([*value], path)
            spell = rust_pattern if keyword == "patternProperties" else str
            parts = value.items()
            return {keyword: {spell(name): self._written(each, member(place, name), closed) for name, each in parts}}  # fmt: skip
        if isinstance(value, list):
            return {"prefixItems": self._listed(value, place, closed)}
        if keyword == "additionalItems" and not isinstance(schema.get("items"), list):
            return {}
        name = keyword.replace("additionalItems", "items")
        return {name: self._written(value, place, closed)}

    def _listed(self, schemas: list[Any], path: str, closed: bool) -> list[Any]:
        return [self._written(each, member(path, i), closed) for i, each in enumerate(schemas)]

    def _unproven_alternatives(self, alternatives: list[Any], path: str) -> list[Any]:
        """Return alternatives that llguidance has to find disjoint: it does not look behind a reference."""
        self._unproven = True
        self._inline += 1
        if self._inline <= _MOST_INLINE:
            for number, each in enumerate(alternatives):
                require_known(each, member(path, number))
            alternatives = [
                part_at(self._schema, each["$ref"], path)
                if isinstance(each, dict) and KEYWORDS.keys() & each.keys() == {"$ref"}
                else each
                for each in alternatives
            ]
        listed = self._listed(alternatives, path, False)
        self._inline -= 1
        return listed

    def _close(
        self, part: dict[str, Any], also: list[Any], schema: dict[str, Any], path: str
    ) -> None:
        """Add the types that a schema speaks of, and that no other properties are written than it describes."""
        parts = _joined_parts(self._schema, schema, path)
        keywords = {keyword for each in parts for keyword in each}
        if not keywords.isdisjoint({"const", "enum"}):
            return
        if "type" not in keywords and (types := types_of(keywords)):
            part["type"] = types
        is_open = any(each.get("additionalProperties", False) is not False for each in parts)
        if is_open or keywords.isdisjoint(_PROPERTIES):
            return
        names, patterns = (
            [name for each in parts for key in keys for name in each.get(key, ())]
            for keys in (("properties", "required"), ("patternProperties",))
        )
        also.append(
            {
                "properties": dict.fromkeys(names, True),
                "patternProperties": dict.fromkeys(map(rust_pattern, patterns), True),
                "additionalProperties": False,
            }
        )


def _joined_parts(whole: Any, schema: Any, path: str) -> list[dict[str, Any]]:
    """Return a part of a schema, what it refers to, and what it joins, alternatives as well."""
    todo, references, parts = [(schema, path)], set[str](), list[dict[str, Any]]()
    for each, place in todo:
        part = plain_part(whole, each, place)
        if isinstance(part, bool):
            continue
        require_known(part, place)
        parts.append(part)
        todo += (
            (each, member(place, name, number))
            for name in CHOICES
            for number, each in enumerate(part.get(name, ()))
        )
        reference = part.get("$ref")
        if reference is not None and reference not in references:
            references.add(reference)
            todo.append((part_at(whole, reference, place), unquote(reference[1:])))
    return parts


def _of_values(
    keyword: str, value: Any, schema: dict[str, Any], path: str, also: list[Any]
) -> dict[str, Any]:
    """Return what a keyword says of values; what else it says comes to `also`."""
    if keyword == "uniqueItems":
        if value and schema.get("maxItems") not in {0, 1}:
            raise schema_error(path, "uniqueItems cannot be enforced: remove it")
        return {}
    if keyword == "format":
        if value in REFUSED_FORMATS:
            raise schema_error(path, f"format {value!r} is not supported: remove it")
        also += [{"pattern": f"^(?:{FORMATS[value]})$"}] if value in FORMATS else []
        return {keyword: NATIVE_FORMATS[value]} if value in NATIVE_FORMATS else {}
    if keyword == "pattern":
        return {keyword: rust_pattern(value)}
    if keyword == "minProperties" and value > len({*schema.get("required", ())}) + 1:
        # Of two properties by the same name one is lost, so only the first one without a name counts for sure.
        raise schema_error(path, "minProperties cannot be enforced: require properties by name")
    if KEYWORDS[keyword] == (int, float) and not isinstance(value, bool):
        return {keyword: _number(keyword, value, path)}
    _require_writable(value, path)
    return {keyword: value}


def _number(keyword: str, value: float, path: str) -> float:
    """Return a limit, a count or a divisor as llguidance can keep it: a limit that it cannot hold is narrower."""
    upward = keyword in _UPWARD
    if keyword in _COUNTS:
        most = _MOST_COUNT if keyword.startswith("max") else inf
    else:
        most = inf if upward else _MOST_LIMIT
        value = max(value, -_MOST_LIMIT) if upward else value
    value = min(value, most)
    too_large = abs(value) > (_MOST_COUNT if keyword in _COUNTS else _MOST_LIMIT)
    if too_large or (keyword == "multipleOf" and Fraction(repr(value)).numerator > _MOST_DIVISOR):
        raise schema_error(path, f"{keyword} {str(value)[:40]} is too large: leave it out")
    if keyword in _COUNTS and not float(value).is_integer():
        raise schema_error(path, f"{keyword} is {value}: give a whole number")
    near, side = float(value), inf if upward else -inf
    if near != value and (near < value) == (side > 0):
        near = nextafter(near, side)  # no double is that number
    return int(near) if near.is_integer() else near


def _require_writable(value: Any, path: str) -> None:
    """Refuse what llguidance writes as another value: control characters, and numbers that no double is."""
    text = json.dumps(value)
    if _UNWRITABLE.search(text) or not _is_exact(value):
        raise schema_error(
            path,
            f"{text[:40]} cannot be written exactly: it has a control character, or a number that is too large",
        )


def _is_exact(value: Any) -> bool:
    """Return whether a value is what llguidance writes for it: of numbers the double, and beyond 64 bits its shortest digits."""
    if isinstance(value, dict):
        return all(map(_is_exact, value.values()))
    if isinstance(value, list):
        return all(map(_is_exact, value))
    if not isinstance(value, int | float) or isinstance(value, bool):
        return True
    try:
        near = float(value)
    except OverflowError:
        return False
    if not near.is_integer():
        return isfinite(near)
    return (int(near) if abs(near) < 1 << 63 else Decimal(repr(near))) == value


def _ends(schema: Any, ending: Collection[str]) -> bool:
    """Return whether a part has a value, given the definitions that have one."""
    if isinstance(schema, bool):
        return True
    needed = [*schema.get("allOf", ())]
    if schema.get("type") in ("object", ["object"]):
        properties = schema.get("properties", {})
        needed += [properties.get(name, True) for name in schema.get("required", ())]
    if schema.get("type") in ("array", ["array"]) and schema.get("minItems"):
        needed += [*schema.get("prefixItems", ()), schema.get("items", True)][: schema["minItems"]]
    choices = [schema[some] for some in ("anyOf", "oneOf") if schema.get(some)]
    return (
        ("$ref" not in schema or schema["$ref"].rpartition("/")[2] in ending)
        and all(_ends(each, ending) for each in needed)
        and all(any(_ends(each, ending) for each in some) for some in choices)
    )
