"""Nesting: a schema that contains itself is followed so many levels deep, and there finds its end.

A model that nests on and on never comes to the end of an answer. Down to the last level nothing is missing; there, a
reference is kept where what it leads to can end with fewer references below it than what refers, so there is
always a way out, and none back up.
"""

from collections.abc import Callable, Container, Iterator
from typing import Any

from localspec.grammar.document import Document
from localspec.grammar.keywords import (
    Schema,
    canonical,
    is_alone,
    member,
    schema_error,
    subschemas,
    types_of,
)

LEVELS = 8
_MOST_PARTS = 8_000
"""Of what contains itself, with all that lies in it, written once for each level: fewer levels where it is large."""
_MOST_MERGED = 400
"""Likewise where schemas are merged on the way: llguidance takes time that grows with every level."""
_MAX_PARTS = 20_000


class Nesting:
    """Which parts of a document contain themselves.

    Args:
        document: all of it that can be reached from its root is looked at.

    Raises:
        UsageError: a part is no schema, is nested too deeply, or leads nowhere but to itself.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self._references: dict[str, list[str]] = {}
        """What each part that is referred to, and the root, refers to itself."""
        self._sizes: dict[str, int] = {}
        self._merged: set[str] = set()
        """Parts in which several schemas say of one value what it is, by reference."""
        self._read("")
        self._back = self._ways_back()
        self._heights = self._ending()
        self._nesting = self._leading_to({name for name, _ in self._back})
        size = max(1, sum(self._sizes[name] for name in self._nesting))
        most = _MOST_PARTS if self._merged.isdisjoint(self._nesting) else _MOST_MERGED
        self._levels = max(2, min(LEVELS, most // size))

    @property
    def ends(self) -> bool:
        """Whether the whole document has an instance, or is without one for another reason than that it contains itself."""
        return "" in self._heights or not self._back

    def level(self, part: str, level: int, other: str) -> int | None:
        """Return the level of what a part refers to, which itself is on some level; None where that is left out.

        Args:
            part: pointer to it; "" is the root.
            level: the first is 1.
            other: pointer to what it refers to.
        """
        if other not in self._heights:
            return None
        if other not in self._nesting:
            return 1
        if level < self._levels:
            return level + ((part, other) in self._back)
        return level if self._heights[other] < self._heights[part] else None

    def _read(self, root: str) -> None:
        todo = [root]
        while todo:
            name = todo.pop()
            if name not in self._references:
                found = self._references[name] = []
                self._sizes[name] = self._collect(self._document.at(name), name, name, found)
                todo += found
                if sum(self._sizes.values()) > _MAX_PARTS:
                    raise schema_error("", "it says too much")

    def _collect(self, schema: object, path: str, name: str, found: list[str]) -> int:
        """Append the references within a schema, and return how many parts it has."""
        flat = canonical(schema, path)
        if "$ref" in flat:
            found.append(self._document.target(flat["$ref"], path))
        if ("$ref" in flat or "allOf" in flat) and not is_alone(flat):
            self._merged.add(name)
        return 1 + sum(
            self._collect(each, member(path, *place), name, found)
            for place, each in subschemas(flat)
        )

    def _ways_back(self) -> set[tuple[str, str]]:
        """Return which part refers to which that it lies within; without these, none would lie within itself."""
        back: set[tuple[str, str]] = set()
        seen = {""}
        within: dict[str, Iterator[str]] = {"": iter(self._references[""])}
        while within:
            name, left = next(reversed(within.items()))
            other = next(left, None)
            if other is None:
                del within[name]
            elif other in within:
                back.add((name, other))
            elif other not in seen:
                seen.add(other)
                within[other] = iter(self._references[other])
        return back

    def _leading_to(self, names: set[str]) -> set[str]:
        """Return these parts and all that refer to them, directly or by others."""
        found, grown = set(names), True
        while grown:
            new = {
                name for name, others in self._references.items() if not found.isdisjoint(others)
            }
            grown = not new <= found
            found |= new
        return found

    def _ending(self) -> dict[str, int]:
        """Return the parts of which there is an instance, each with how many references it needs below it at least."""
        found: dict[str, int] = {}
        for height in range(len(self._references)):
            new = [
                name
                for name in self._references
                if name not in found and self._ends(self._document.at(name), name, found)
            ]
            if not new:
                break
            found.update(dict.fromkeys(new, height))
        return found

    def _ends(self, schema: object, path: str, known: Container[str]) -> bool:
        """Say whether a schema may have an instance, given the parts that do. What is left out here is not asked."""
        flat = canonical(schema, path)

        def ends(*place: str | int) -> bool:
            part: Any = flat
            for name in place:
                part = part[name]
            return self._ends(part, member(path, *place), known)

        def of(keyword: str) -> list[bool]:
            return [ends(keyword, index) for index in range(len(flat.get(keyword, ())))]

        if flat.get("enum") == []:
            return False
        if "$ref" in flat and self._document.target(flat["$ref"], path) not in known:
            return False
        if not all(of("allOf")) or not all(
            any(of(each)) for each in ("anyOf", "oneOf") if each in flat
        ):
            return False
        types = types_of(flat, path)
        if types is None or not set(types) <= {"object", "array"}:
            return True
        return any(
            _object_ends(flat, ends) if kind == "object" else _array_ends(flat, ends)
            for kind in types
        )


def _object_ends(schema: Schema, ends: Callable[..., bool]) -> bool:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name in properties:
            if not ends("properties", name):
                return False
        elif "additionalProperties" in schema and not ends("additionalProperties"):
            return "patternProperties" in schema
    return True


def _array_ends(schema: Schema, ends: Callable[..., bool]) -> bool:
    least = schema.get("minItems", 0)
    firsts = len(schema.get("prefixItems", ()))
    if not all(ends("prefixItems", index) for index in range(firsts) if index < least):
        return False
    return least <= firsts or "items" not in schema or ends("items")
