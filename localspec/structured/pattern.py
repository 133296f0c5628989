r"""Patterns: the regular expressions of JSON schema, as grammar over the characters of a JSON string.

Only what regular languages have: look-around, back references, `\b` and flags are refused. Classes such as `\d` are
taken as ASCII, and `\D`, `\W`, `\S` as those characters that every dialect agrees are in them.
"""

import re

from localspec.structured.characters import LAST, Ranges, inverse, spelled, united
from localspec.structured.rules import Rules, choice

_MAX_DEPTH = 50
_MAX_TIMES = 100_000
_DIGIT: Ranges = ((0x30, 0x39),)
_WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_BLANK: Ranges = ((0x09, 0x0D), (0x20, 0x20))
_NO_BLANK: Ranges = ((0x21, 0x7E), (0xA1, 0x167F), (0x3001, 0xD7FF))
_LINE_ENDS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_CLASSES = {
    "d": _DIGIT,
    "w": _WORD,
    "s": _BLANK,
    "D": inverse(_DIGIT, 0x7F),
    "W": inverse(_WORD, 0x7F),
    "S": _NO_BLANK,
}
_CONTROLS = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D, "0": 0x00}
_COUNTS = re.compile(r"\{([0-9]{1,6})(,([0-9]{1,6})?)?\}")
_ANY_NUMBER: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
PRINTABLE = spelled(inverse(((0x00, 0x1F), (0x7F, 0x9F))))


class PatternError(Exception):
    """What of a pattern cannot be kept."""


class Pattern:
    """A regular expression, read once.

    Args:
        source: as the schema writes it.
        rules: gets the rules for it.

    Attributes:
        body: what a string that matches looks like, without its quotes.
        lengths: fewest and most characters of one; None is without limit.

    Raises:
        PatternError: it is malformed, or more than a grammar can say.
    """

    def __init__(self, source: str, rules: Rules) -> None:
        self._source = source
        self._rules = rules
        self._at = 0
        self._anything = rules.add(f"{rules.add(PRINTABLE)}*")
        self.body, self.lengths = self._alternatives(depth=0)
        if self._at < len(source):
            raise PatternError(f"unbalanced ) in {source!r}")

    def _alternatives(self, depth: int) -> tuple[str, tuple[int, int | None]]:
        found = [self._sequence(depth)]
        while self._peek() == "|":
            self._at += 1
            found.append(self._sequence(depth))
        bodies = [body or '""' for body, _ in found]
        most = [longest for _, (_, longest) in found]
        shortest = min(least for _, (least, _) in found)
        longest = None if None in most else max(each for each in most if each is not None)
        return choice(bodies), (shortest, longest)

    def _sequence(self, depth: int) -> tuple[str, tuple[int, int | None]]:
        parts: list[str] = []
        least, most = 0, 0 if depth else None
        if self._peek() == "^":
            if depth:
                raise PatternError("^ within parentheses")
            self._at += 1
            most = 0
        elif not depth:
            parts.append(self._anything)
        while (character := self._peek()) and character not in "|)$":
            body, (shortest, longest) = self._repeated(depth)
            parts.append(body)
            least += shortest
            most = None if most is None or longest is None else most + longest
        if self._peek() == "$":
            self._at += 1
            if depth or (self._peek() and self._peek() != "|"):
                raise PatternError("$ in the midst of it")
        elif not depth:
            parts.append(self._anything)
            most = None
        return " ".join(part for part in parts if part), (least, most)

    def _repeated(self, depth: int) -> tuple[str, tuple[int, int | None]]:
        body, (shortest, longest) = self._atom(depth)
        counts = self._times()
        if counts is None:
            return body, (shortest, longest)
        least, most = counts
        if (
            self._peek() == "?"
        ):  # which match is preferred is not a question of whether there is one
            self._at += 1
        if self._peek() and self._peek() in "*+":
            raise PatternError("a repetition of a repetition")
        if shortest == 0 and (least, most) != (0, 1):
            raise PatternError("a repetition of what may be empty")
        item = self._rules.add(body)
        if max(least, most or 0) > _MAX_TIMES:
            raise PatternError(f"more than {_MAX_TIMES} repetitions")
        lengths = (shortest * least, None if longest is None or most is None else longest * most)
        return self._rules.times(item, least, most), lengths

    def _times(self) -> tuple[int, int | None] | None:
        character = self._peek()
        if character in _ANY_NUMBER and character:
            self._at += 1
            return _ANY_NUMBER[character]
        counts = _COUNTS.match(self._source, self._at)
        if counts is None:
            return None
        self._at = counts.end()
        least = int(counts[1])
        most = least if counts[2] is None else int(counts[3]) if counts[3] else None
        if most is not None and most < least:
            raise PatternError(f"{counts[0]}, at least {least} and at most {most} times")
        return least, most

    def _atom(self, depth: int) -> tuple[str, tuple[int, int | None]]:
        character = self._peek()
        if character == "(":
            return self._group(depth + 1)
        if character == "[":
            return self._one(self._class())
        self._at += 1
        if character == ".":
            return self._one(inverse(_LINE_ENDS))
        if character == "\\":
            return self._one(self._escape(in_class=False))
        if character in "*+?{}" and character != "}":
            raise PatternError(f"{character} with nothing to repeat")
        return self._one(((ord(character), ord(character)),))

    def _one(self, ranges: Ranges) -> tuple[str, tuple[int, int | None]]:
        body = spelled(united(ranges))
        if not body:
            raise PatternError("a class without characters")
        return (self._rules.add(body) if " | " in body else body), (1, 1)

    def _group(self, depth: int) -> tuple[str, tuple[int, int | None]]:
        if depth > _MAX_DEPTH:
            raise PatternError(f"more than {_MAX_DEPTH} parentheses within each other")
        self._at += 1
        if self._source.startswith("?:", self._at):
            self._at += 2
        elif named := re.compile(r"\?P?<[A-Za-z_]\w*>").match(self._source, self._at):
            self._at = named.end()
        elif self._peek() == "?":
            raise PatternError(f"({self._source[self._at : self._at + 2]}, which looks around")
        body, lengths = self._alternatives(depth)
        if self._peek() != ")":
            raise PatternError("a ( that is never closed")
        self._at += 1
        return self._rules.add(body), lengths

    def _class(self) -> Ranges:
        self._at += 1
        negated = self._peek() == "^"
        self._at += negated
        parts: list[tuple[int, int]] = []
        broad = False
        while (character := self._peek()) != "]":
            if not character:
                raise PatternError("a [ that is never closed")
            low = self._member()
            broad = broad or len(low) > 1 or low[0][0] != low[0][1]
            if self._peek() == "-" and self._source[self._at + 1 : self._at + 2] not in {"]", ""}:
                self._at += 1
                high = self._member()
                if len(low) > 1 or len(high) > 1 or high[0][0] != high[0][1] or high < low:
                    raise PatternError("a range in [ ] that is none")
                low = ((low[0][0], high[0][1]),)
            parts += low
        self._at += 1
        if not negated:
            return united(parts)
        # Dialects disagree about letters beyond ASCII, so what a class like \d leaves out stays in ASCII.
        return inverse(parts, 0x7F if broad else LAST)

    def _member(self) -> Ranges:
        character = self._peek()
        if not character:
            raise PatternError("a [ that is never closed")
        self._at += 1
        if character == "\\":
            return self._escape(in_class=True)
        return ((ord(character), ord(character)),)

    def _escape(self, *, in_class: bool) -> Ranges:
        kind = self._peek()
        self._at += 1
        if kind in _CLASSES and kind:
            return _CLASSES[kind]
        if kind in _CONTROLS and kind:
            return ((_CONTROLS[kind], _CONTROLS[kind]),)
        if kind == "b" and in_class:
            return ((0x08, 0x08),)
        if kind and kind in "xu":
            return self._coded({"x": 2, "u": 4}[kind])
        if not kind or kind.isalnum():
            raise PatternError(f"\\{kind}")
        return ((ord(kind), ord(kind)),)

    def _coded(self, digits: int) -> Ranges:
        code = self._source[self._at : self._at + digits]
        if not re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", code):
            raise PatternError("an escape that is none")
        self._at += digits
        return ((int(code, 16), int(code, 16)),)

    def _peek(self) -> str:
        return self._source[self._at : self._at + 1]
