"""Schemas by chance: nested, merged, and within themselves, in ways that nobody writes by hand."""

from collections.abc import Callable
from random import Random
from typing import Any

Schema = dict[str, Any] | bool
_NAMES = ("a", "b", "c", "d")


def random_schema(seed: int) -> dict[str, Any]:
    """Return a schema with definitions, which may refer to each other and to themselves."""
    chance = Random(seed)
    names = ("p", "q", "s")[: chance.randint(1, 3)]
    write = _Writer(chance, names)
    schema = write.any(3)
    whole = schema if isinstance(schema, dict) else {"anyOf": [schema]}
    return {**whole, "$defs": {name: write.any(2) for name in names}}


class _Writer:
    def __init__(self, chance: Random, names: tuple[str, ...]) -> None:
        self._chance = chance
        self._names = names

    def any(self, depth: int) -> Schema:
        kinds: list[tuple[Callable[[int], Schema], int]] = [(self._simple, 5)]
        if depth > 0:
            kinds += [(self._object, 5), (self._array, 3), (self._union, 3), (self._reference, 3)]
            kinds.append((self._all_of, 2))
        (kind,) = self._chance.choices([each for each, _ in kinds], [often for _, often in kinds])
        return kind(depth)

    def _may(self, chance: float) -> bool:
        return self._chance.random() < chance

    def _simple(self, _depth: int) -> Schema:
        draw, number = self._chance.choice, self._chance.randint
        values = [1, 0, "a", "b", None, True, False, {"b": 1}, {"b": True}, [1], [True], 1.0]
        simple: list[Schema] = [
            {"type": "integer", draw(("minimum", "exclusiveMinimum")): number(-5, 5)},
            {"type": "integer", "minimum": 0, "maximum": 30, "multipleOf": number(1, 4)},
            {"type": "number", draw(("maximum", "exclusiveMaximum")): number(-5, 5) / 2},
            {"type": "string", "maxLength": number(0, 5), "minLength": number(0, 1)},
            {"type": "string", "pattern": draw(("^a+$", "b", "^[x-z]{2,3}$"))},
            {"type": "string", "format": draw(("date", "uuid", "ipv4"))},
            {"enum": self._chance.sample(values, number(1, 4))},
            {"const": draw(values)},
            {"type": self._chance.sample(["null", "boolean", "integer", "number", "string"], 2)},
            {"minimum": 1, "minLength": 1},
            {"$ref": f"#/$defs/{draw(self._names)}"},
            True,
            {},
        ]
        return draw(simple)

    def _object(self, depth: int) -> Schema:
        chance, may = self._chance, self._may
        properties = {n: self.any(depth - 1) for n in chance.sample(_NAMES, chance.randint(0, 3))}
        required = chance.sample(list(properties), chance.randint(0, len(properties)))
        schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
        if may(0.4):
            schema["additionalProperties"] = chance.choice([False, True, self.any(depth - 1)])
        if may(0.15):
            schema["minProperties"] = 1
        if may(0.15):
            schema["maxProperties"] = chance.randint(1, 4)
        if may(0.1):
            required.append("e")
        if may(0.15):
            schema["allOf"] = [self.any(1)]
        if may(0.1):
            del schema["type"]
        return schema

    def _array(self, depth: int) -> Schema:
        chance, may = self._chance, self._may
        schema: dict[str, Any] = {"type": "array"}
        if may(0.7):
            schema["items"] = self.any(depth - 1)
        if may(0.3):
            schema["minItems"] = chance.randint(0, 2)
        if may(0.3):
            schema["maxItems"] = chance.randint(1, 3)
        if may(0.3):
            schema["prefixItems"] = [self.any(depth - 1) for _ in range(chance.randint(1, 2))]
        if may(0.05):
            schema["uniqueItems"] = True
        if may(0.15):
            schema["allOf"] = [self.any(1)]
        return schema

    def _union(self, depth: int) -> Schema:
        parts = [self.any(depth - 1) for _ in range(self._chance.randint(1, 3))]
        beside: dict[str, Any] = {"required": ["a"]} if self._may(0.1) else {}
        return {self._chance.choice(("anyOf", "anyOf", "oneOf")): parts, **beside}

    def _all_of(self, depth: int) -> Schema:
        return {"allOf": [self.any(depth - 1) for _ in range(self._chance.randint(1, 2))]}

    def _reference(self, _depth: int) -> Schema:
        schema: dict[str, Any] = {"$ref": f"#/$defs/{self._chance.choice(self._names)}"}
        neighbours: list[dict[str, Any]] = [
            {"required": ["a"]}, {"maxProperties": 3}, {"type": "object"}, {"default": 1}
        ]  # fmt: skip
        return schema | self._chance.choice(neighbours) if self._may(0.3) else schema
