r"""Patterns with a longest possible match: a subset of regular expressions becomes positions and what follows them.

Literals, `.`, classes, `\d \w \s`, groups, `|`, and the quantifiers `?`, `{n}` and `{m,n}`; `(?i)` at the beginning ignores case. What
has no end (`*`, `+`, `{m,}`) is refused, and so is a pattern that matches nothing at all. Source: Glushkov 1961, the position automaton.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from localspec.errors import UsageError

_LAST = 0x10FFFF
_MOST_POSITIONS = 2048
_CLASSES: dict[str, tuple[tuple[int, int], ...]] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 13), (32, 32), (0xA0, 0xA0)),
}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r"}


class CharClass:
    """A set of characters, as ranges of code points that do not touch."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[tuple[int, int]], *, negated: bool = False) -> None:
        joined: list[tuple[int, int]] = []
        for low, high in sorted(ranges):
            if joined and low <= joined[-1][1] + 1:
                joined[-1] = joined[-1][0], max(joined[-1][1], high)
            else:
                joined.append((low, high))
        if negated:
            edges = [-1, *(edge for each in joined for edge in each), _LAST + 1]
            gaps = zip(edges[::2], edges[1::2], strict=True)
            joined = [(low + 1, high - 1) for low, high in gaps if low + 1 < high]
        self._starts = [low for low, _ in joined]
        self._ends = [high for _, high in joined]

    def __contains__(self, char: str) -> bool:
        at = bisect_right(self._starts, ord(char)) - 1 if char else -1
        return at >= 0 and ord(char) <= self._ends[at]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The first and the last code point of each range."""
        return list(zip(self._starts, self._ends, strict=True))


@dataclass(frozen=True, slots=True)
class Positions:
    """A pattern as an automaton: in every step it stands at positions, each of which has read one character.

    Args:
        classes: what each position reads.
        first: positions that a match begins with.
        last: positions that it may end with.
        follow: for each position those that may be next.
        empty: whether nothing at all matches, too.
    """

    classes: tuple[CharClass, ...]
    first: frozenset[int]
    last: frozenset[int]
    follow: tuple[frozenset[int], ...]
    empty: bool


@dataclass(slots=True)
class _Part:
    """A part of a pattern, whose positions are in the list of all."""

    first: set[int]
    last: set[int]
    empty: bool


def chars(text: str) -> CharClass:
    """Return the class that is written like this between brackets.

    Raises:
        UsageError: it is no class.
    """
    return _Reader(f"[{text}]").one_class()


def positions(pattern: str) -> Positions:
    """Return the automaton of a pattern.

    Raises:
        UsageError: it is not well formed, has no longest match, or is too large.
    """
    return _Reader(pattern).read()


def concatenated(one: Positions, other: Positions) -> Positions:
    """Return the automaton of one pattern behind another; positions of the second come after those of the first."""
    shift = len(one.classes)
    first, last = ({at + shift for at in each} for each in (other.first, other.last))
    follow = [each | first if at in one.last else each for at, each in enumerate(one.follow)]
    follow += [frozenset(at + shift for at in each) for each in other.follow]
    return Positions(
        (*one.classes, *other.classes),
        one.first | first if one.empty else one.first,
        one.last | last if other.empty else frozenset(last),
        tuple(map(frozenset, follow)),
        one.empty and other.empty,
    )


def longest(found: Positions) -> int:
    """Return how many characters the longest match has; what follows a position always stands behind it."""
    sizes = [0] * len(found.classes)
    for at in reversed(range(len(sizes))):
        sizes[at] = 1 + max((sizes[each] for each in found.follow[at]), default=0)
    return max((sizes[each] for each in found.first), default=0)


class _Reader:
    """Reads one pattern; parts that are repeated are read again for each copy."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._any_case = pattern.startswith("(?i)")
        self._at = 4 if self._any_case else 0
        self._classes: list[CharClass] = []
        self._follow: list[set[int]] = []

    def read(self) -> Positions:
        part = self._either()
        if self._at < len(self._pattern):
            raise self._wrong("a bracket is closed that was not opened")
        follow = tuple(map(frozenset, self._follow))
        first, last = frozenset(part.first), frozenset(part.last)
        return Positions(tuple(self._classes), first, last, follow, part.empty)

    def one_class(self) -> CharClass:
        self._at = 1
        return self._class()

    def _either(self) -> _Part:
        part = self._row()
        while self._takes("|"):
            other = self._row()
            part.first |= other.first
            part.last |= other.last
            part.empty = part.empty or other.empty
        return part

    def _row(self) -> _Part:
        whole = _Part(set(), set(), empty=True)
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            start = self._at
            self._join(whole, self._repeated(start))
        return whole

    def _repeated(self, start: int) -> _Part:
        part = self._atom()
        least, most, behind = self._counts()
        if most == 0:
            raise self._wrong("{0} repeats nothing")
        copies = [part]
        for _ in range(most - 1):
            self._at = start
            copies.append(self._atom())
        self._at = behind
        # Those that may be missing stand inside each other: x(x(x)?)?
        whole = _Part(set(), set(), empty=True)
        for number in reversed(range(most)):
            inner, whole = whole, copies[number]
            self._join(whole, inner)
            if number >= least:
                whole.empty = True
        return whole

    def _join(self, whole: _Part, part: _Part) -> None:
        """Have a part follow what is there."""
        for at in whole.last:
            self._follow[at] |= part.first
        if whole.empty:
            whole.first |= part.first
        whole.last = whole.last | part.last if part.empty else set(part.last)
        whole.empty = whole.empty and part.empty

    def _counts(self) -> tuple[int, int, int]:
        """Return how often what was read may stand there, and where the pattern goes on."""
        sign = self._pattern[self._at : self._at + 1]
        if sign in {"*", "+"}:
            raise self._wrong(f"{sign} has no longest match: say how many, such as {{1,40}}")
        if sign == "?":
            self._at += 1
            return 0, 1, self._at
        if sign != "{":
            return 1, 1, self._at
        end = self._pattern.find("}", self._at)
        low, comma, high = self._pattern[self._at + 1 : end].partition(",")
        if end < 0 or not (low.isdecimal() and (high if comma else low).isdecimal()):
            raise self._wrong("write {n} or {m,n}, with a number after the comma; \\{ is the sign")
        least, most = int(low), int(high or low)
        if not least <= most <= _MOST_POSITIONS:
            raise self._wrong(f"{{{low}{comma}{high}}} is no range up to {_MOST_POSITIONS}")
        self._at = end + 1
        return least, most, self._at

    def _atom(self) -> _Part:
        if self._takes("("):
            if self._takes("?") and not self._takes(":"):
                raise self._wrong(
                    "of groups there are ( ) and (?: ) only, and (?i) at the beginning"
                )
            part = self._either()
            if not self._takes(")"):
                raise self._wrong("a bracket is not closed")
            return part
        if len(self._classes) >= _MOST_POSITIONS:
            raise self._wrong(f"it reads more than {_MOST_POSITIONS} characters: shorten it")
        self._classes.append(self._one())
        self._follow.append(set())
        at = len(self._classes) - 1
        return _Part({at}, {at}, empty=False)

    def _one(self) -> CharClass:
        """Read what stands for one character."""
        char = self._next()
        if char == "[":
            return self._class()
        if char == ".":
            return CharClass([(10, 10)], negated=True)
        if char in "?*+{":
            raise self._wrong(f"{char} repeats nothing; \\{char} is the sign")
        return self._cased(self._escaped() if char == "\\" else [(ord(char), ord(char))])

    def _class(self) -> CharClass:
        negated, ranges = self._takes("^"), list[tuple[int, int]]()
        while not self._takes("]"):
            char = self._next()
            found = self._escaped() if char == "\\" else [(ord(char), ord(char))]
            between = self._pattern[self._at : self._at + 2]
            if len(found) == 1 and between[:1] == "-" and between not in {"-", "-]"}:
                self._at += 1
                char = self._next()
                high = self._escaped() if char == "\\" else [(ord(char), ord(char))]
                if len(high) != 1 or high[0][0] < found[0][0]:
                    raise self._wrong("a range of a class is upside down")
                found = [(found[0][0], high[0][1])]
            ranges += found
        return self._cased(ranges, negated=negated)

    def _escaped(self) -> list[tuple[int, int]]:
        char = self._next()
        if char in _CLASSES:
            return [*_CLASSES[char]]
        if char.lower() in _CLASSES:
            return CharClass(_CLASSES[char.lower()], negated=True).ranges
        if char.isalnum() and char not in _CONTROLS:
            raise self._wrong(f"\\{char} is not known here")
        char = _CONTROLS.get(char, char)
        return [(ord(char), ord(char))]

    def _cased(self, ranges: list[tuple[int, int]], *, negated: bool = False) -> CharClass:
        if self._any_case:
            for low, high in [*ranges]:
                for start, other in ((65, 97), (97, 65)):
                    begin, end = max(low, start), min(high, start + 25)
                    if begin <= end:
                        ranges.append((begin - start + other, end - start + other))
        return CharClass(ranges, negated=negated)

    def _takes(self, char: str) -> bool:
        found = self._pattern[self._at : self._at + 1] == char
        self._at += found
        return found

    def _next(self) -> str:
        if self._at >= len(self._pattern):
            raise self._wrong("it ends in the middle")
        self._at += 1
        return self._pattern[self._at - 1]

    def _wrong(self, reason: str) -> UsageError:
        return UsageError(f"pattern {self._pattern[:60]!r} at {self._at}: {reason}")
