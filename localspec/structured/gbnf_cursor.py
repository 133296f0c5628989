"""GbnfCursor: a place in the text of a grammar, and what can be read there; says where something is wrong.

Source: llama.cpp, `grammars/README.md` and `src/llama-grammar.cpp`.
"""

import re

from localspec.errors import UsageError
from localspec.structured.gbnf_rules import Text

MAX_REPETITIONS = 2000
_UNSPEAKABLE = re.compile("[\0\ud800-\udfff]")
_NAME = re.compile(r"[a-zA-Z0-9-]+")
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_COUNTS = re.compile(r"\{[ \t]*([0-9]{1,9})[ \t]*(,[ \t]*([0-9]{1,9})?[ \t]*)?\}")
_SIMPLE = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}
_HEX = {"x": 2, "u": 4, "U": 8}
_UNCLOSED_CLASS = "a [ that is never closed"


def place(text: str, at: int) -> str:
    """Return where in a text that is, for people."""
    before = text[:at]
    return f"line {before.count(chr(10)) + 1}, column {at - before.rfind(chr(10))}"


class GbnfCursor:
    """Goes through a text once, from its beginning to its end.

    Args:
        text: of a grammar.

    Attributes:
        at: the place of the next character.

    Raises:
        UsageError: no grammar can have that text; as every method does where something is wrong.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0
        unspeakable = _UNSPEAKABLE.search(text)
        if unspeakable is not None:
            raise self.error("a NUL or half a character", unspeakable.start())

    @property
    def ended(self) -> bool:
        """Whether nothing is left."""
        return self.at >= len(self._text)

    def peek(self) -> str:
        """Return the next character; "" at the end."""
        return self._text[self.at : self.at + 1]

    def skip(self, *, lines: bool) -> None:
        """Pass over white space and comments, ends of lines among them or not."""
        skipped = (_SPACE_AND_LINES if lines else _SPACE).match(self._text, self.at)
        assert skipped is not None, "matches nothing, too"  # noqa: S101
        self.at = skipped.end()

    def take(self, text: str) -> bool:
        """Pass over a text, if it is what comes next; say whether it is."""
        found = self._text.startswith(text, self.at)
        self.at += len(text) * found
        return found

    def name(self) -> str | None:
        """Take the name of a rule; None where none comes next."""
        found = _NAME.match(self._text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return found[0]

    def text(self) -> Text | None:
        """Take a literal, a class, or a point; None where none comes next."""
        opened = self.at
        character = self.peek()
        if character == '"':
            elements = self._literal()
        elif character == "[":
            elements = self._class()
        elif character == ".":
            self.at += 1
            elements = 1
        else:
            return None
        return Text(elements, self._text[opened : self.at])

    def counts(self) -> tuple[int, int | None]:
        """Take how often something is repeated, at least and at most; None is without limit."""
        at, character = self.at, self.peek()
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if character in simple:
            self.at += 1
            return simple[character]
        counts = _COUNTS.match(self._text, at)
        if counts is None:
            raise self.error("expected a count: {2}, {2,} or {2,5}")
        least = int(counts[1])
        most = least if counts[2] is None else int(counts[3]) if counts[3] else None
        if most is not None and most < least:
            raise self.error(f"at least {least} and at most {most} times")
        if max(least, most or 0) > MAX_REPETITIONS:
            raise self.error(f"more than {MAX_REPETITIONS} times, which llama.cpp does not count")
        self.at = counts.end()
        return least, most

    def error(self, what: str, at: int | None = None) -> UsageError:
        """Return the error about a place, this one unless told."""
        at = self.at if at is None else at
        found = self._text[at : at + 20].split("\n")[0]
        shown = f" at {found!r}" if found else ""
        return UsageError(f"the grammar is wrong in {place(self._text, at)}: {what}{shown}")

    def _literal(self) -> int:
        opened = self.at
        self.at += 1
        length = 0
        while self.peek() != '"':
            self._character(opened, "a quote that is never closed")
            length += 1
        self.at += 1
        return length

    def _class(self) -> int:
        opened = self.at
        self.at += 1
        if self.peek() == "^":
            self.at += 1
        elements = 0
        while self.peek() != "]":
            at = self.at
            low = self._character(opened, _UNCLOSED_CLASS)
            elements += 1
            if self.peek() == "-" and self._text[self.at + 1 : self.at + 2] != "]":
                self.at += 1
                high = self._character(opened, _UNCLOSED_CLASS)
                elements += 1
                if high < low:
                    raise self.error("a range whose end comes before its beginning", at)
        self.at += 1
        if not elements:
            raise self.error("a class without characters", opened)
        return elements

    def _character(self, opened: int, unclosed: str) -> int:
        text, at = self._text, self.at
        character = self.peek()
        if not character:
            raise self.error(unclosed, opened)
        if character != "\\":
            self.at += 1
            return ord(character)
        kind = text[at + 1 : at + 2]
        if kind in _SIMPLE and kind:
            self.at += 2
            return ord(_SIMPLE[kind])
        digits = text[at + 2 : at + 2 + _HEX.get(kind, 0)]
        if kind not in _HEX or not re.fullmatch(f"[0-9a-fA-F]{{{_HEX[kind]}}}", digits):
            raise self.error("an escape that is none")
        self.at += 2 + len(digits)
        return int(digits, 16)
