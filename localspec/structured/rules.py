"""Rules: a grammar in the making, its rules named and written once each."""

import json
import math

from localspec.errors import UsageError

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_MAX_RULES = 20_000
_CHUNK = 32


class Rules:
    """Collects rules of GBNF; two of the same body are one."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def add(self, body: str) -> str:
        """Return the name of a rule of this body."""
        name = self._names.get(body)
        if name is None:
            name = self.reserve()
            self.define(name, body)
        return name

    def reserve(self) -> str:
        """Return a fresh name, to be defined later."""
        if len(self._bodies) >= _MAX_RULES:
            raise UsageError(f"the JSON schema makes more than {_MAX_RULES} rules: simplify it")
        name = f"r{len(self._bodies)}"
        self._bodies[name] = ""
        return name

    def define(self, name: str, body: str) -> None:
        """Say what a reserved name stands for."""
        self._bodies[name] = body
        self._names.setdefault(body, name)

    def gbnf(self, root: str) -> str:
        """Return the grammar whose answer is the rule `root`."""
        lines = [f"{name} ::= {body}" for name, body in self._bodies.items()]
        return "\n".join([f"root ::= {root}", *lines]) + "\n"

    def times(self, item: str, least: int, most: int | None) -> str:
        """Return the repetition of a rule, by its name; long ones are made of chunks, so that they stay small."""
        if most is None:
            return f"{self._exactly(item, least)} {item}*".strip()
        return f"{self._exactly(item, least)} {self._up_to(item, most - least)}".strip()

    def _exactly(self, item: str, count: int) -> str:
        if count <= _CHUNK:
            return f"{item}{{{count}}}" if count else ""
        chunk = self.add(f"{item}{{{_CHUNK}}}")
        chunks, rest = divmod(count, _CHUNK)
        return f"{self._exactly(chunk, chunks)} {self._exactly(item, rest)}".strip()

    def _up_to(self, item: str, count: int) -> str:
        if count <= 2 * _CHUNK:
            return f"{item}{{0,{count}}}" if count else ""
        size = math.isqrt(count)
        chunks, rest = divmod(count, size)
        chunk = self.add(self._exactly(item, size))
        # Any number up to `count`: all chunks but one, and what is left of that one and the rest.
        return f"{self._up_to(chunk, chunks - 1)} {self._up_to(item, size + rest)}"


def quoted(text: str) -> str:
    """Return the literal of GBNF that stands for a text."""
    escaped = "".join(
        _ESCAPES.get(character) or (f"\\x{ord(character):02x}" if character < " " else character)
        for character in text
    )
    return f'"{escaped}"'


def json_literal(value: object) -> str:
    """Return the literal of GBNF that stands for a value, as JSON spells it."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates, which no UTF-8 spells
        text = json.dumps(value)
    return quoted(text)


def choice(alternatives: list[str]) -> str:
    """Return the body of a rule that is one of these."""
    return " | ".join(dict.fromkeys(alternatives))
