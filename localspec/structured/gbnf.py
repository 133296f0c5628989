"""GBNF: the text of a grammar becomes rules, or an error that says where it is wrong.

llama.cpp reads the same notation, but prints what it dislikes past everybody's stderr, loops on `{3,2}`,
takes `{0,5000}` for no limit at all, and overflows its stack on deep nesting. So nothing reaches it that
was not read here first. References to tokens (`<…>`) are left out: a grammar here speaks of text alone.

Source: llama.cpp, `grammars/README.md` and `src/llama-grammar.cpp`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from localspec.errors import UsageError

MAX_CHARS = 1 << 20
MAX_REPETITIONS = 2000
_MAX_DEPTH = 100
_MAX_STACKED = 5
_UNSPEAKABLE = re.compile("[\0\ud800-\udfff]")
_NAME = re.compile(r"[a-zA-Z0-9-]+")
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_COUNTS = re.compile(r"\{[ \t]*([0-9]{1,9})[ \t]*(,[ \t]*([0-9]{1,9})?[ \t]*)?\}")
_SIMPLE = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}
_HEX = {"x": 2, "u": 4, "U": 8}


@dataclass(frozen=True, slots=True)
class Text:
    """Characters that are written as they are, or one out of a class.

    Args:
        elements: how many llama.cpp keeps for it; 0 for an empty literal.
    """

    elements: int


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of a rule, and where it stands in the text."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Group:
    """Alternatives in parentheses."""

    alternatives: "Alternatives"


@dataclass(frozen=True, slots=True)
class Repetition:
    """An item, at least and at most so many times; None is without limit. `at` is where it says so."""

    item: "Item"
    least: int
    most: int | None
    at: int


Item = Text | Reference | Group | Repetition
Alternatives = tuple[tuple[Item, ...], ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """What a name stands for, and where it is defined."""

    alternatives: Alternatives
    at: int


def read_gbnf(text: str) -> dict[str, Rule]:
    """Return the rules of a grammar by name.

    Raises:
        UsageError: it is no GBNF, with line and column.
    """
    if len(text) > MAX_CHARS:
        raise UsageError(
            f"the grammar has {len(text)} characters, more than {MAX_CHARS}: shorten it"
        )
    return _Reader(text).rules()


def place(text: str, at: int) -> str:
    """Return where in a text that is, for people."""
    before = text[:at]
    return f"line {before.count(chr(10)) + 1}, column {at - before.rfind(chr(10))}"


class _Reader:
    """Reads a grammar once, from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        # llama.cpp counts the symbols that it makes up, too, and refuses to repeat too many of them.
        self._named: set[str] = set()
        self._made_up = 0

    @property
    def _symbols(self) -> int:
        return len(self._named) + self._made_up

    def rules(self) -> dict[str, Rule]:
        unspeakable = _UNSPEAKABLE.search(self._text)
        if unspeakable is not None:
            raise self._error("a NUL or half a character", unspeakable.start())
        rules: dict[str, Rule] = {}
        self._skip(_SPACE_AND_LINES)
        while self._at < len(self._text):
            at = self._at
            name = self._name()
            if name in rules:
                raise self._error(f"the rule {name} is defined a second time", at)
            rules[name] = Rule(self._definition(), at)
        return rules

    def _definition(self) -> Alternatives:
        self._skip(_SPACE)
        if not self._text.startswith("::=", self._at):
            raise self._error("expected ::=")
        self._at += 3
        self._skip(_SPACE_AND_LINES)
        alternatives = self._alternatives(depth=0)
        if self._at < len(self._text) and self._text[self._at] not in "\r\n":
            raise self._error("expected the end of the line")
        self._skip(_SPACE_AND_LINES)
        return alternatives

    def _alternatives(self, depth: int) -> Alternatives:
        found = [self._sequence(depth)]
        while self._peek() == "|":
            self._at += 1
            self._skip(_SPACE_AND_LINES)
            found.append(self._sequence(depth))
        return tuple(found)

    def _sequence(self, depth: int) -> tuple[Item, ...]:
        space = _SPACE_AND_LINES if depth else _SPACE
        items: list[Item] = []
        weight, stacked = 1, 0
        while True:
            character, at, symbols = self._peek(), self._at, self._symbols
            if character and character in "*+?{":
                if not items or items[-1] == Text(0):
                    raise self._error(f"nothing stands before {character} to be repeated")
                least, most = self._counts()
                weight, stacked = weight * max(1, most or least), stacked + 1
                if stacked > _MAX_STACKED:
                    raise self._error("a repetition of a repetition of a repetition", at)
                if weight > MAX_REPETITIONS:
                    raise self._error(
                        f"repetitions within each other make more than {MAX_REPETITIONS}; give what is "
                        "repeated a rule of its own",
                        at,
                    )
                self._made_up += 1 if most is None else most - least
                items[-1] = Repetition(items[-1], least, most, at)
            elif (item := self._item(character, depth)) is not None:
                items.append(item)
                weight = max(1, self._symbols - symbols) if isinstance(item, Group) else 1
                stacked = 0
            else:
                return tuple(items)
            self._skip(space)

    def _item(self, character: str, depth: int) -> Item | None:
        at = self._at
        if character == '"':
            return self._literal()
        if character == "[":
            return self._class()
        if character == ".":
            self._at += 1
            return Text(1)
        if character == "(":
            return self._group(depth + 1)
        if character and character in "<!":
            raise self._error(
                "references to tokens are not taken: write the text that is meant in quotes"
            )
        if _NAME.match(self._text, at):
            return Reference(self._name(), at)
        return None

    def _group(self, depth: int) -> Group:
        if depth > _MAX_DEPTH:
            raise self._error(f"more than {_MAX_DEPTH} parentheses within each other")
        self._at += 1
        self._made_up += 1
        self._skip(_SPACE_AND_LINES)
        group = Group(self._alternatives(depth))
        if self._peek() != ")":
            raise self._error("expected )")
        self._at += 1
        return group

    def _literal(self) -> Text:
        opened = self._at
        self._at += 1
        length = 0
        while self._peek() != '"':
            self._character(opened, "a quote that is never closed")
            length += 1
        self._at += 1
        return Text(length)

    def _class(self) -> Text:
        opened = self._at
        self._at += 1
        if self._peek() == "^":
            self._at += 1
        elements = 0
        while self._peek() != "]":
            at = self._at
            low = self._character(opened, "a [ that is never closed")
            elements += 1
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                high = self._character(opened, "a [ that is never closed")
                elements += 1
                if high < low:
                    raise self._error("a range whose end comes before its beginning", at)
        self._at += 1
        if not elements:
            raise self._error("a class without characters", opened)
        return Text(elements)

    def _character(self, opened: int, unclosed: str) -> int:
        text, at = self._text, self._at
        character = self._peek()
        if not character:
            raise self._error(unclosed, opened)
        if character != "\\":
            self._at += 1
            return ord(character)
        kind = text[at + 1 : at + 2]
        if kind in _SIMPLE and kind:
            self._at += 2
            return ord(_SIMPLE[kind])
        digits = text[at + 2 : at + 2 + _HEX.get(kind, 0)]
        if kind not in _HEX or not re.fullmatch(f"[0-9a-fA-F]{{{_HEX[kind]}}}", digits):
            raise self._error("an escape that is none")
        self._at += 2 + len(digits)
        return int(digits, 16)

    def _counts(self) -> tuple[int, int | None]:
        at, character = self._at, self._peek()
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if character in simple:
            self._at += 1
            return simple[character]
        counts = _COUNTS.match(self._text, at)
        if counts is None:
            raise self._error("expected a count: {2}, {2,} or {2,5}")
        least = int(counts[1])
        most = least if counts[2] is None else int(counts[3]) if counts[3] else None
        if most is not None and most < least:
            raise self._error(f"at least {least} and at most {most} times")
        if max(least, most or 0) > MAX_REPETITIONS:
            raise self._error(f"more than {MAX_REPETITIONS} times, which llama.cpp does not count")
        self._at = counts.end()
        return least, most

    def _name(self) -> str:
        name = _NAME.match(self._text, self._at)
        if name is None:
            raise self._error("expected the name of a rule")
        self._at = name.end()
        self._named.add(name[0])
        return name[0]

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, space: re.Pattern[str]) -> None:
        skipped = space.match(self._text, self._at)
        assert skipped is not None, "matches nothing, too"  # noqa: S101
        self._at = skipped.end()

    def _error(self, what: str, at: int | None = None) -> UsageError:
        at = self._at if at is None else at
        found = self._text[at : at + 20].split("\n")[0]
        shown = f" at {found!r}" if found else ""
        return UsageError(f"the grammar is wrong in {place(self._text, at)}: {what}{shown}")


def items_of(alternatives: Alternatives) -> Sequence[Item]:
    """Return the items of all alternatives, one after the other."""
    return [item for sequence in alternatives for item in sequence]
