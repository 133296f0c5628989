"""A JSON schema rewritten for llguidance, which keeps most of it by itself.

What it lacks, or reads more widely than the standard, is rewritten so that every answer is valid. Properties that a
schema does not name are written only where it describes them.
"""

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import combinations
from math import inf, nextafter
from typing import Any
from urllib.parse import unquote

from localspec.grammar.document import (  # fmt: skip
    JOINS,
    KEPT,
    NAMED,
    Document,
    member,
    schema_error,
    spoken_types,
)
from localspec.grammar.patterns import FORMATS, NATIVE_FORMATS, UNKEPT_FORMATS, rust_pattern

_OTHERS = ("additionalItems", "additionalProperties")
_UPWARD = ("minimum", "exclusiveMinimum")
_UNWRITABLE = re.compile(r"\\u00(?:[01]|7f)")
"""Characters that llguidance leaves out of a text."""
_MOST_VALUES = 8
"""Of which lists of different values are written out."""
_MOST_INLINE = 4


@dataclass(frozen=True, slots=True)
class Rewritten:
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
        UsageError: it is no schema, or says what a mask cannot keep, with the place.
    """
    try:
        return _Writer(schema, proven=proven).whole()
    except RecursionError:
        raise schema_error("", "it is nested too deeply") from None


class _Writer:
    def __init__(self, schema: object, *, proven: bool) -> None:
        self._document = Document(schema)
        self._proven = proven
        self._unproven = False
        self._names: dict[tuple[str, bool], str] = {}
        self._parts: list[tuple[str, Any]] = []
        self._inline = 0

    def whole(self) -> Rewritten:
        root = self._reference("#", closed=True)
        definitions: dict[str, Any] = {}
        while new := [each for each in self._names if self._names[each] not in definitions]:
            for pointer, closed in new:
                name = self._names[pointer, closed]
                definitions[name] = self._written(self._document.at(pointer), pointer, closed)
        ending = set[str]()
        while more := {
            name for name in definitions.keys() - ending if _ends(definitions[name], ending)
        }:
            ending |= more
        ending -= {name for name in ending if definitions[name] is False}
        if "0" not in ending:
            raise schema_error("", "it allows nothing, or has to contain itself: it can never end")
        for _, part in self._parts:
            if "$ref" in part and part["$ref"].rpartition("/")[2] not in ending:
                part.clear()
                part["enum"] = []
        return Rewritten({"$ref": root, "$defs": definitions}, self._parts, self._unproven)

    def _reference(self, reference: str, *, closed: bool) -> str:
        key = (unquote(reference[1:]), closed)
        return f"#/$defs/{self._names.setdefault(key, str(len(self._names)))}"

    def _written(self, schema: Any, path: str, closed: bool) -> Any:
        """Return a part; where `closed`, it alone constrains a value, which is written without what it does not name."""
        if isinstance(schema, bool):
            return schema
        kept = {keyword: value for keyword, value in schema.items() if keyword in KEPT}
        absent = self._absent(kept.get("oneOf", []))
        known = "oneOf" not in kept or self._proven or bool(absent)
        alone = len(kept) == 1 == len(kept.get("allOf", "1")) and not kept.keys().isdisjoint(JOINS)
        inner = closed and alone and known
        found: dict[str, Any] = {}
        also: list[Any] = []
        for keyword, value in kept.items():
            place = member(path, keyword)
            if keyword == "$ref":
                found[keyword] = self._reference(value, closed=inner)
            elif keyword == "oneOf":
                also.append(self._one_of(value, place, inner, absent))
            elif keyword in JOINS:
                found[keyword] = self._listed(value, place, inner)
            elif keyword in NAMED[2:]:
                also += self._dependent(value, place)
            elif keyword in {*NAMED, "items", "prefixItems", *_OTHERS}:
                found |= self._inner(keyword, value, kept, path, closed)
            else:
                found |= _of_values(keyword, value, kept, path, also)
        if closed and not inner:
            self._close(found, also, kept)
        if also:
            found["allOf"] = [*found.get("allOf", ()), *also]
        self._parts.append((path, found))
        return found

    def _dependent(self, needs: dict[str, Any], path: str) -> Iterator[Any]:
        """Yield what holds where a property is there: it is not, or more holds."""
        for name, need in needs.items():
            more = {"required": need} if isinstance(need, list) else need
            more = self._written(more, member(path, name), False)
            yield {"anyOf": [{"properties": {name: False}}, more]}

    def _inner(
        self, keyword: str, value: Any, schema: dict[str, Any], path: str, closed: bool
    ) -> dict[str, Any]:
        """Return what a keyword says of properties or items."""
        place = member(path, keyword)
        if keyword in NAMED:
            _require_writable([*value], path)
            written = {
                name: self._written(each, member(place, name), closed)
                for name, each in value.items()
            }
            if keyword == "patternProperties":
                written = {rust_pattern(name): each for name, each in written.items()}
            return {keyword: written}
        if isinstance(value, list):
            return {"prefixItems": self._listed(value, place, closed)}
        if keyword == "additionalItems" and not isinstance(schema.get("items"), list):
            return {}
        keyword = keyword.replace("additionalItems", "items")
        return {keyword: self._written(value, place, closed)}

    def _listed(self, schemas: list[Any], path: str, closed: bool) -> list[Any]:
        return [self._written(each, member(path, i), closed) for i, each in enumerate(schemas)]

    def _absent(self, alternatives: list[Any]) -> list[list[str]]:
        """Return a property that each other alternative requires, of each; nothing where values tell them apart."""
        parts = [[*self._document.parts(each)] for each in alternatives]
        values = (
            each for some in parts for part in some for each in part.get("properties", {}).values()
        )
        if any(
            isinstance(each, dict) and not each.keys().isdisjoint({"const", "enum"})
            for each in values
        ):
            return []
        required = [{name for part in some for name in part.get("required", ())} for some in parts]
        pairs = [[other - mine for other in required if other is not mine] for mine in required]
        return [[*map(min, some)] for some in pairs] if all(map(all, pairs)) else []

    def _one_of(
        self, alternatives: list[Any], path: str, closed: bool, absent: list[list[str]]
    ) -> Any:
        """Return alternatives of which one alone holds."""
        if absent:
            some = self._listed(alternatives, path, closed)
            lacking = (
                {"type": "object", "properties": dict.fromkeys(names, False)} for names in absent
            )
            return {"anyOf": [{"allOf": both} for both in zip(some, lacking, strict=True)]}
        if self._proven:
            return {"anyOf": self._listed(alternatives, path, closed)}
        self._unproven = True
        self._inline += 1
        if self._inline <= _MOST_INLINE:  # llguidance does not look behind a reference
            alternatives = [
                self._document.at(unquote(each["$ref"][1:]))
                if isinstance(each, dict) and KEPT.keys() & each.keys() == {"$ref"}
                else each
                for each in alternatives
            ]
        found = {"oneOf": self._listed(alternatives, path, False)}
        self._inline -= 1
        return found

    def _close(self, found: dict[str, Any], also: list[Any], schema: dict[str, Any]) -> None:
        """Add the types that a schema speaks of, and that no other properties are written than it describes."""
        parts = [*self._document.parts(schema, through=True)]
        keywords = {keyword for part in parts for keyword in part}
        if not keywords.isdisjoint({"const", "enum"}):
            return
        if "type" not in keywords and (spoken := spoken_types(keywords)):
            found["type"] = spoken
        is_open = any(part.get("additionalProperties", False) is not False for part in parts)
        if is_open or keywords.isdisjoint({"properties", "patternProperties"}):
            return
        names = ("properties", "required")
        named = {name: True for key in names for part in parts for name in part.get(key, ())}
        patterns = {
            rust_pattern(name): True for part in parts for name in part.get("patternProperties", ())
        }
        also.append(
            {"properties": named, "patternProperties": patterns, "additionalProperties": False}
        )


def _of_values(
    keyword: str, value: Any, schema: dict[str, Any], path: str, also: list[Any]
) -> dict[str, Any]:
    """Return what a keyword says of values; what else it says comes to `also`."""
    if keyword == "uniqueItems":
        also += [_different(schema, path)] if value and schema.get("maxItems") not in {0, 1} else []
        return {}
    if keyword == "format":
        if value in UNKEPT_FORMATS:
            raise schema_error(path, f"format {value!r} is not supported: remove it")
        also += [{"pattern": f"^(?:{FORMATS[value]})$"}] if value in FORMATS else []
        return {keyword: NATIVE_FORMATS[value]} if value in NATIVE_FORMATS else {}
    if keyword == "pattern":
        return {keyword: rust_pattern(value)}
    if keyword == "minProperties" and value > len({*schema.get("required", ())}) + 1:
        # Of two properties by the same name one is lost, so only the first one without a name counts for sure.
        raise schema_error(path, "minProperties cannot be enforced: require properties by name")
    if KEPT[keyword] == (int, float) and not isinstance(value, bool):
        if abs(value) > 1.7e308:
            raise schema_error(path, f"{keyword} {str(value)[:40]} is too large")
        near, side = float(value), inf if keyword in _UPWARD else -inf
        if near != value and (near < value) == (side > 0):
            near = nextafter(near, side)  # no double is that number
        return {keyword: int(near) if near.is_integer() else near}
    _require_writable(value, path)
    return {keyword: value}


def _different(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the arrays of different values out of a few, in their order, as alternatives."""
    items = schema.get("items")
    values = items.get("enum", ()) if isinstance(items, dict) else ()
    if not 0 < len(values) <= _MOST_VALUES or "prefixItems" in schema:
        raise schema_error(
            path,
            f"uniqueItems can only be enforced for items from an enum of at most {_MOST_VALUES}: remove it",
        )
    sizes = range(
        schema.get("minItems", 0), min(schema.get("maxItems", _MOST_VALUES), len(values)) + 1
    )
    return {"enum": [[*some] for size in sizes for some in combinations(values, size)]}


def _require_writable(value: Any, path: str) -> None:
    """Refuse what llguidance writes as another value: control characters, and numbers that no double is."""
    text = json.dumps(value)
    if _UNWRITABLE.search(text) or json.loads(text, parse_int=float) != value:
        raise schema_error(
            path,
            f"{text[:40]} cannot be written: it has a control character, or a number too large",
        )


def _ends(schema: Any, ending: Collection[str]) -> bool:
    """Say whether a part has a value, given the definitions that have one."""
    if isinstance(schema, bool):
        return True
    needed = [*schema.get("allOf", ())]
    if schema.get("type") in ("object", ["object"]):
        properties = schema.get("properties", {})
        needed += [properties.get(name, True) for name in schema.get("required", ())]
    if schema.get("type") in ("array", ["array"]) and schema.get("minItems"):
        needed += [*schema.get("prefixItems", ()), schema.get("items", True)][: schema["minItems"]]
    return (
        ("$ref" not in schema or schema["$ref"].rpartition("/")[2] in ending)
        and all(_ends(each, ending) for each in needed)
        and all(
            any(_ends(each, ending) for each in schema[some] or [True])
            for some in ("anyOf", "oneOf")
            if some in schema
        )
    )
