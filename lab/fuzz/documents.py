"""Mutation of JSON as what it is: random bytes hardly get past its parser."""

import json
from random import Random
from typing import Any

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 1e308, 2**31, 2**63, -(2**63), 10**40, "", "a", "0" * 64, "../x", "/", "\0", "\x1b[2J", "\ud800",
    "é" * 300, "nan", [], {}, [[]], [None], {"": {}}, [0] * 300,
)  # fmt: skip


def changed(data: bytes, chance: Random) -> bytes | None:
    """Return an input in which a document was changed in some places; None where it has none."""
    start, end = data.find(b"{"), data.rfind(b"}") + 1
    line = data.find(b"\n", start, end)  # of several documents, one in a line, it is the first
    for stop in (end, line):
        try:
            document = json.loads(data[start:stop]) if 0 <= start < stop else None
        except (ValueError, RecursionError):
            continue
        if document is not None:
            for _ in range(chance.randint(1, 3)):
                document = _changed(document, chance)
            made = json.dumps(document, ensure_ascii=chance.random() < 0.7)
            return data[:start] + made.encode(errors="replace") + data[stop:]
    return None


def _changed(value: Any, chance: Random) -> Any:
    """Return a document that differs in one place."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.15:
        return _other(value, chance)
    places = list(value) if isinstance(value, dict) else range(len(value))
    place = chance.choice(places)
    made: Any = value.copy()
    match chance.randrange(5):
        case 0:
            del made[place]
        case 1 if isinstance(made, dict):
            made[chance.choice([*places, "x", place + " ", ""])] = made.pop(place)
        case 1:
            made.insert(place, made[chance.choice(places)])
        case _:
            made[place] = _changed(made[place], chance)
    return made


def _other(value: Any, chance: Random) -> Any:
    """Return something in place of a value."""
    match chance.randrange(4):
        case 0:
            return [value] if chance.random() < 0.5 else {"a": value}
        case 1 if type(value) is int:
            return value + chance.choice([-1, 1, 2**31, -(2**63)])
        case 1 if isinstance(value, str):
            at = chance.randint(0, len(value))
            return (
                value[:at] + chance.choice(["", "\n", "é", "..", "\ud83d", "a" * 200]) + value[at:]
            )
        case _:
            return chance.choice(_VALUES)
