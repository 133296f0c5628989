"""Facts: what a schema says of one value, with all that it says by reference, in parts, or in alternatives."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from localspec.grammar.document import Document
from localspec.grammar.keywords import (
    Schema,
    canonical,
    is_alone,
    member,
    same_value,
    spoken_types,
    type_of,
    types_of,
)

_MAX_DEPTH = 30
_OPENING = ("additionalProperties", "unevaluatedProperties")


class Subschema(NamedTuple):
    """A schema, and the pointer to where it stands."""

    schema: Any
    path: str


@dataclass(slots=True)
class Facts:
    """What several schemas say together of one value.

    Args:
        types: that it may have; None is all.
        spoken: types that their keywords speak of.
        values: that it may be; None is all.
        low: least number, where it is one.
        high: largest.
        required: names that it has, where it is an object.
        properties: what is said of the value under a name.
        patterns: that its names may match.
        closed: names that it may have, of each schema that allows no others.
        is_open: whether it is said what other properties there may be.
        firsts: number of items of which something is said one by one.
        all_items: whether something is said of all others.
        choices: alternatives of which one has to hold, by where they stand.
        merged: whether more than one schema says it.
    """

    types: set[str] | None = None
    spoken: dict[str, None] = field(default_factory=dict)
    values: list[Any] | None = None
    low: float = -inf
    high: float = inf
    required: dict[str, None] = field(default_factory=dict)
    properties: dict[str, list[Subschema]] = field(default_factory=dict)
    patterns: dict[str, None] = field(default_factory=dict)
    closed: list[set[str]] = field(default_factory=list)
    is_open: bool = False
    firsts: int = 0
    all_items: bool = False
    choices: dict[str, list[Subschema]] = field(default_factory=dict)
    merged: bool = False

    def allow(self, types: Iterable[str]) -> None:
        """Take in that the value has one of some types."""
        self.types = set(types) if self.types is None else common_types(self.types, types)

    def close(self) -> None:
        """Take in what a grammar leaves out where this is all that is said: other types, and properties not named."""
        if self.types is None and not self.merged and not self.choices:
            self.types = set(self.spoken) or None
        if self.properties and not (self.is_open or self.patterns or self.choices):
            self.closed.append({*self.properties, *self.required})


def facts(
    document: Document,
    parts: Iterable[Subschema],
    chosen: frozenset[str] = frozenset(),
    *,
    through: bool = False,
) -> Facts:
    """Return what schemas say together.

    Args:
        document: that they are part of.
        parts: they.
        chosen: places of alternatives that are passed over.
        through: whether what any of the alternatives says is taken as said.
    """
    found = Facts()
    for part in parts:
        _add(document, part, chosen, found, through, 0)
    return found


def common_types(one: set[str], other: Iterable[str]) -> set[str]:
    """Return the types that both allow."""
    names = set(other)
    found = one & names
    if ("number" in one and "integer" in names) or ("number" in names and "integer" in one):
        found.add("integer")
    return found


def _add(
    document: Document,
    part: Subschema,
    chosen: frozenset[str],
    found: Facts,
    through: bool,
    depth: int,
) -> None:
    schema, path = part
    if depth > _MAX_DEPTH:
        return
    flat = canonical(schema, path)
    found.merged |= not is_alone(flat) and ("$ref" in flat or "allOf" in flat)
    types = types_of(flat, path)
    if types is not None:
        found.allow(types)
    found.spoken |= dict.fromkeys(spoken_types(flat))
    _add_values(flat, found)
    _add_names(flat, path, found)
    found.firsts = max(found.firsts, len(flat.get("prefixItems", ())))
    found.all_items |= "items" in flat or "unevaluatedItems" in flat
    inner = [
        Subschema(each, member(path, "allOf", i)) for i, each in enumerate(flat.get("allOf", ()))
    ]
    if "$ref" in flat:
        target = document.target(flat["$ref"], path)
        inner.append(Subschema(document.at(target), target))
    for place, some in _choices(flat, path):
        if place not in chosen:
            found.choices[place] = some
            inner += some if through else ()
    for each in inner:
        _add(document, each, chosen, found, through, depth + 1)


def _choices(flat: Schema, path: str) -> Iterator[tuple[str, list[Subschema]]]:
    """Yield the alternatives that a schema lists, with their places."""
    for keyword in ("anyOf", "oneOf"):
        if keyword in flat:
            place = member(path, keyword)
            yield place, [Subschema(each, member(place, i)) for i, each in enumerate(flat[keyword])]
    for name, each in flat.get("dependentSchemas", {}).items():
        place = member(path, "dependentSchemas", name)
        yield place, [Subschema(each, place), Subschema(True, place)]


def _add_values(flat: Schema, found: Facts) -> None:
    for values in ([flat["const"]] if "const" in flat else None, flat.get("enum")):
        if values is not None:
            kept = values if found.values is None else found.values
            found.values = [each for each in kept if any(same_value(each, one) for one in values)]
    for keyword in ("minimum", "exclusiveMinimum"):
        if type_of(flat.get(keyword)) in {"number", "integer"}:
            found.low = max(found.low, flat[keyword])
    for keyword in ("maximum", "exclusiveMaximum"):
        if type_of(flat.get(keyword)) in {"number", "integer"}:
            found.high = min(found.high, flat[keyword])


def _add_names(flat: Schema, path: str, found: Facts) -> None:
    found.required |= dict.fromkeys(flat.get("required", ()))
    for name, each in flat.get("properties", {}).items():
        place = member(path, "properties", name)
        found.properties.setdefault(name, []).append(Subschema(each, place))
    found.patterns |= dict.fromkeys(flat.get("patternProperties", ()))
    if flat.get("additionalProperties") is False and "patternProperties" not in flat:
        found.closed.append(set(flat.get("properties", ())))
    found.is_open |= any(flat.get(keyword, False) is not False for keyword in _OPENING)
