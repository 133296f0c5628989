"""Grammars and schemas drawn at random: nearly all of them are sound, which mutated texts rarely are."""

import json
from random import Random
from typing import Any

_LITERALS = ('"a"', '"ab"', '"{"', '", "', '"\\""', '"\\\\"', '"\\n"', '" "', '"true"', '"é"', '"東京"', '"\\U0001F600"', '""')  # fmt: skip
_CLASSES = ("[a-z]", "[0-9]", '[^"\\\\]', "[^\\n]", "[ \\t]", "[é-ü]", "[一-龥]", "[A-Za-z_]", "[\\U0001F600-\\U0001F64F]", ".")  # fmt: skip
_OFTEN = ("", "", "", "?", "*", "+", "{2}", "{0,3}", "{1,}")
_PATTERNS = ("^[a-z]{2,4}$", "^(x|y)+é?$", "^\\d{1,3}(\\.\\d)?$", "^[^a]*$")


def grammar(chance: Random) -> str:
    """Return a grammar; a rule refers to later ones, or to itself after something else. Nothing repeats what may be empty."""
    names = ["root", *(f"r{n}" for n in range(chance.randrange(5)))]
    rules: list[str] = []
    empty: dict[str, bool] = {}
    for place, name in reversed([*enumerate(names)]):
        choices = [_sequence(chance, empty, 2) for _ in range(chance.randint(1, 3))]
        texts = [text for text, _ in choices]
        if chance.random() < 0.3:
            texts.append(f'"({place}" {name} ")"')
        empty[name] = any(may for _, may in choices)
        rules.insert(0, f"{name} ::= {' | '.join(texts)}")
    return "\n".join(rules) + "\n"


def _sequence(chance: Random, later: dict[str, bool], depth: int) -> tuple[str, bool]:
    """Return a sequence, and whether it may be empty."""
    items = [_item(chance, later, depth) for _ in range(chance.randint(1, 4))]
    return " ".join(text for text, _ in items), all(may for _, may in items)


def _item(chance: Random, later: dict[str, bool], depth: int) -> tuple[str, bool]:
    dice = chance.random()
    if later and dice < 0.25:
        text = chance.choice([*later])
        empty = later[text]
    elif depth and dice < 0.4:
        choices = [_sequence(chance, later, depth - 1) for _ in range(chance.randint(1, 3))]
        text = f"({' | '.join(text for text, _ in choices)})"
        empty = any(may for _, may in choices)
    else:
        text = chance.choice(_LITERALS if dice < 0.7 else _CLASSES)
        empty = text == '""'
    often = "" if empty else chance.choice(_OFTEN)
    return text + often, empty or often[:1] in {"?", "*"} or often.startswith("{0")


def schema(chance: Random) -> str:
    """Return a JSON schema."""
    return json.dumps(_schema(chance, 2))


def _schema(chance: Random, depth: int) -> dict[str, Any]:
    kinds = ["string", "integer", "number", "enum", "boolean", *(["object", "array"] * depth)]
    match chance.choice(kinds):
        case "object":
            names = chance.sample(["a", "b c", "é", 'q"', "東", "d"], chance.randint(0, 4))
            return {
                "type": "object",
                "properties": {name: _schema(chance, depth - 1) for name in names},
                "required": [name for name in names if chance.random() < 0.6],
                "additionalProperties": chance.choice([False, False, True]),
            }
        case "array":
            least = chance.randrange(3)
            items = _schema(chance, depth - 1)
            return {"type": "array", "items": items, "minItems": least, "maxItems": least + 2}
        case "enum":
            return {"enum": chance.sample([1, "é", None, True, "東京", [1, {}], "a\n"], 3)}
        case "string":
            bounds = {"minLength": chance.randrange(3), "maxLength": 5}
            return {
                "type": "string",
                **chance.choice([bounds, {"pattern": chance.choice(_PATTERNS)}]),
            }
        case "integer":
            low = chance.randint(-200, 100)
            return {"type": "integer", "minimum": low, "maximum": low + chance.randrange(300)}
        case kind:
            return {"type": kind}
