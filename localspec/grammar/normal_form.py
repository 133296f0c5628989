"""Normal form: a JSON schema as llguidance keeps it, to the letter of the standard and in localspec's own way.

Every instance of the normal form is one of the schema. Not the other way round: properties that a schema does not name
are written only where it says what they are, a schema that contains itself is followed so many levels deep, and what a
mask cannot keep is refused by name and place.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from localspec.grammar.disjoint import Disjoint
from localspec.grammar.document import Document
from localspec.grammar.facts import Subschema, facts
from localspec.grammar.keywords import (
    IN_PLACE,
    Schema,
    applies,
    canonical,
    is_alone,
    member,
    schema_error,
    spoken_types,
    subschemas,
)
from localspec.grammar.nesting import LEVELS, Nesting
from localspec.grammar.values import different, plain_pattern, said_of_values

_MAX_DEPTH = 50
_MAX_PARTS = 60_000


@dataclass(frozen=True, slots=True)
class NormalForm:
    """A schema in normal form.

    Args:
        schema: it; what it refers to is under its `$defs`.
        places: JSON pointers into the schema that it was made of, by the `id` of a part of it.
    """

    schema: dict[str, Any]
    places: dict[int, str]


def normal_form(schema: object) -> NormalForm:
    """Return the normal form of a schema.

    Args:
        schema: as `json.loads` gives it.

    Raises:
        UsageError: it is no schema, can never end, or says what a mask cannot keep, with the place.
    """
    try:
        return _Writer(schema).normal_form()
    except RecursionError:
        raise schema_error("", "it is nested too deeply") from None


@dataclass(frozen=True, slots=True)
class _Context:
    """Where something is written.

    Args:
        target: pointer to the part of the document that is written.
        level: of nesting.
        whole: whether this alone says what a value is; else it is one of several schemas that say it together.
        depth: of schemas within schemas.
    """

    target: str
    level: int
    whole: bool
    depth: int = 0

    def below(self, *, whole: bool = True) -> "_Context":
        return _Context(self.target, self.level, self.whole and whole, self.depth + 1)


class _Writer:
    def __init__(self, schema: object) -> None:
        self._document = Document(schema)
        self._nesting = Nesting(self._document)
        self._disjoint = Disjoint(self._document)
        self._definitions: dict[str, Any] = {}
        self._names: dict[_Context, str] = {}
        self._todo: list[_Context] = []
        self._places: dict[int, str] = {}

    def normal_form(self) -> NormalForm:
        if not self._nesting.ends:
            raise schema_error("", "it can never end: it has to contain itself")
        root = self._written(self._document.at(""), "", _Context("", 1, whole=True))
        if root is False:
            raise schema_error("", "it allows nothing")
        while self._todo:
            context = self._todo.pop()
            part = self._document.at(context.target)
            name = self._names[context]
            self._definitions[name] = self._written(part, context.target, context)
        return NormalForm({**root, "$defs": self._definitions}, self._places)

    def _written(self, schema: object, path: str, context: _Context) -> Any:
        """Return the normal form of a part: an object, or True or False."""
        if context.depth > _MAX_DEPTH or len(self._places) > _MAX_PARTS:
            raise schema_error(path, "it is nested too deeply, or says too much")
        flat = canonical(schema, path)
        if not flat:
            return self._anything(1) if context.whole else True
        if flat.get("enum") == []:
            return False
        found = said_of_values(flat, path)
        self._add_parts(found, flat, path, context)
        if context.whole and not applies(flat):
            self._close(found, flat)
        also = [*self._in_place(found, flat, path, context), *self._dependent(flat, path, context)]
        if flat.get("uniqueItems") is True and flat.get("maxItems") not in {0, 1}:
            also.append(different(flat, path))
        if applies(flat) and not is_alone(flat):
            also += self._left(flat, path, context)
        places = {keyword: place for place, keyword in enumerate(flat)}
        places.setdefault("anyOf", places.get("oneOf", -1))
        # The first keyword to name a property says where it comes.
        found = dict(sorted(found.items(), key=lambda item: places.get(item[0], -1)))
        if also:
            found = {"allOf": [found, *also]}
        self._places[id(found)] = path
        return found

    def _add_parts(self, found: dict[str, Any], flat: Schema, path: str, context: _Context) -> None:
        """Add what a schema says of properties and items."""
        required, least = found.get("required", ()), found.get("minProperties", 0)
        # Of two properties by the same name one is lost, so only the first one that is not named counts for sure.
        if least > len(required) + 1:
            raise schema_error(
                path, f"minProperties {least} cannot be enforced: require properties by name"
            )
        # A name that only one of two readers of a pattern matches may not be taken for one of the others.
        others = flat.get("additionalProperties", not context.whole or applies(flat))
        for place, each in subschemas(flat):
            keyword, *name = map(str, place)
            if keyword in IN_PLACE or keyword == "dependentSchemas":
                continue
            if keyword.startswith("unevaluated"):
                # Beside other schemas of the same value, what is left is only known with them.
                keyword = {"P": "additionalProperties", "I": "items"}[keyword[11]]
                if applies(flat) or keyword in flat:
                    continue
            written = self._written(each, member(path, *place), context.below())
            if not name:
                found[keyword] = written
            elif keyword == "prefixItems":
                found.setdefault(keyword, []).append(written)
            else:
                key = name[0]
                if keyword == "patternProperties":
                    key = plain_pattern(key, path, clear=others is not False)
                found.setdefault(keyword, {})[key] = written

    def _close(self, found: dict[str, Any], flat: Schema) -> None:
        """Add what a schema leaves open, where nothing else is said of the value."""
        if "const" in flat or "enum" in flat:
            return
        types = found.setdefault("type", list(spoken_types(flat)))
        if "array" in types:
            found.setdefault("items", self._anything(1))
        if "object" in types and "additionalProperties" not in found:
            named = "properties" in found or "patternProperties" in found
            for name in found.get("required", ()) if named else ():
                found.setdefault("properties", {}).setdefault(name, self._anything(1))
            found["additionalProperties"] = False if named else self._anything(1)

    def _in_place(
        self, found: dict[str, Any], flat: Schema, path: str, context: _Context
    ) -> Iterator[Any]:
        """Add what other schemas say of the same value; yield what finds no place there."""
        inner = context.below(whole=is_alone(flat))
        for keyword in IN_PLACE:
            if keyword not in flat:
                continue
            place = member(path, keyword)
            if keyword == "$ref":
                said = self._reference(self._document.target(flat["$ref"], path), inner)
            else:
                parts = [Subschema(each, member(place, i)) for i, each in enumerate(flat[keyword])]
                if keyword == "oneOf":
                    said = self._one_of(parts, flat, path, inner)
                else:
                    said = {keyword: [self._written(*part, inner) for part in parts]}
            if found.keys().isdisjoint(said):
                found |= said
            else:
                yield said

    def _one_of(
        self, parts: list[Subschema], flat: Schema, path: str, context: _Context
    ) -> dict[str, Any]:
        """Return alternatives: as such where what is written for one is never valid under another."""
        beside = {keyword: value for keyword, value in flat.items() if keyword != "oneOf"}
        absent = self._absent(parts, [Subschema(beside, path)], closed=context.whole)
        if absent is None:
            # llguidance may know more of them together; then it has to read what the standard reads.
            plain = context.below(whole=False)
            return {"oneOf": [self._written(*part, plain) for part in parts]}
        found = []
        for part, names in zip(parts, absent, strict=True):
            written = self._written(*part, context)
            without = {"properties": dict.fromkeys(names, False)}
            found.append({"allOf": [written, without]} if names else written)
        return {"anyOf": found}

    def _absent(
        self, parts: list[Subschema], base: list[Subschema], *, closed: bool
    ) -> list[list[str]] | None:
        """Return the properties without which no alternative is valid under another, of each; None if there is no way."""
        found: list[list[str]] = []
        known = [facts(self._document, [*base, part]) for part in parts]
        for part, mine in zip(parts, known, strict=True):
            names: list[str] = []
            for other, theirs in zip(parts, known, strict=True):
                if part is other or self._disjoint.never_valid(
                    [*base, part], [*base, other], closed=closed
                ):
                    continue
                asked = [name for name in theirs.required if name not in mine.required]
                if mine.types != {"object"} or not asked:
                    return None
                if not set(asked) & set(names):
                    names.append(asked[0])
            found.append(names)
        return found

    def _dependent(self, flat: Schema, path: str, context: _Context) -> Iterator[Any]:
        """Yield what `dependentRequired` and `dependentSchemas` say: a property is not there, or more holds."""
        needed = [
            (name, {"required": each}) for name, each in flat.get("dependentRequired", {}).items()
        ]
        for name, each in flat.get("dependentSchemas", {}).items():
            place = member(path, "dependentSchemas", name)
            needed.append((name, self._written(each, place, context.below(whole=False))))
        for name, more in needed:
            always = name in flat.get("required", ())
            yield more if always else {"anyOf": [{"properties": {name: False}}, more]}

    def _left(self, flat: Schema, path: str, context: _Context) -> Iterator[Any]:
        """Yield what is said of types, properties and items of which none of several schemas speaks."""
        beside = {keyword: value for keyword, value in flat.items() if keyword not in _LATE}
        known = facts(self._document, [Subschema(beside, path)], through=True)
        rest = {}
        for keyword in _LATE:
            rest[keyword] = flat.get(keyword, True)
            if rest[keyword] is not True and known.choices:
                raise schema_error(
                    path, f"{keyword} beside alternatives cannot be enforced: remove it"
                )
            if rest[keyword] is not True:
                rest[keyword] = self._written(flat[keyword], member(path, keyword), context.below())
        names, patterns = [*known.properties], [*known.patterns]
        if rest[_LATE[0]] is not True and not known.is_open:
            yield _closed(names, patterns, rest[_LATE[0]], path)
        elif context.whole and not known.is_open and (names or patterns):
            yield _closed([*names, *known.required], patterns, False, path)
        if rest[_LATE[1]] is not True and not known.all_items:
            firsts = {"prefixItems": [True] * known.firsts} if known.firsts else {}
            yield {**firsts, "items": rest[_LATE[1]]}
        if context.whole and known.types is None and known.values is None and known.spoken:
            yield {"type": list(known.spoken)}

    def _reference(self, target: str, context: _Context) -> Any:
        level = self._nesting.level(context.target, context.level, target)
        if level is None:
            return {"enum": []}
        key = _Context(target, level, context.whole)
        if key not in self._names:
            self._names[key] = f"part-{len(self._names)}"
            self._todo.append(key)
        return {"$ref": f"#/$defs/{self._names[key]}"}

    def _anything(self, level: int) -> Any:
        """Return a reference to any JSON, which nests so deep and no deeper."""
        name = f"anything-{level}"
        if name not in self._definitions:
            inner = level < LEVELS and self._anything(level + 1)
            nested: list[Any] = [{"type": "object", "additionalProperties": inner}]
            nested.append({"type": "array", "items": inner})
            simple = {"type": ["string", "number", "boolean", "null"]}
            self._definitions[name] = {"anyOf": [*nested, simple]}
        return {"$ref": f"#/$defs/{name}"}


_LATE = ("unevaluatedProperties", "unevaluatedItems")


def _closed(names: list[str], patterns: list[str], rest: Any, path: str) -> dict[str, Any]:
    """Return that other properties than some are as `rest` says."""
    found: dict[str, Any] = {"properties": dict.fromkeys(names, True), "additionalProperties": rest}
    if patterns:
        found["patternProperties"] = {plain_pattern(each, path): True for each in patterns}
    return found
