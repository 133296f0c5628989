r"""Readings of a text: with its escapes as what they stand for, and as they are written.

What of a text is JSON or code is unknown, and it may be both in one: so a rule may match either reading. An escape is one unit of the text, and is never cut in
two. Backslashes in a row count as one, since a text may be quoted in a text that is quoted. What takes no place on a screen is read or left out: invisible
characters, and the colours of a terminal (control sequences of ECMA-48).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import regex

_CONTROL = r"(?:\x1b|\u241b|\^\[|\\{1,8}(?:u001[bB]|x1[bB]|0?33|[eE]))"
_SEQUENCE = r"(?:\[[0-?]{0,40}[ -/]{0,2})"
# Unicode's Default_Ignorable_Code_Point: soft hyphen, zero-width characters, marks of direction, variation selectors.
_SPECIAL = regex.compile(
    rf"""(?P<colour>{_CONTROL}{_SEQUENCE}[@-~])|(?P<escape>\\{{1,8}}(?:u[0-9a-fA-F]{{4}}|x[0-9a-fA-F]{{2}}|["'/bfnrt])?)|\p{{Default_Ignorable_Code_Point}}+"""
)
_OPEN = regex.compile(
    rf"(?:\x1b|\u241b|\^(?:\[)?)\Z|(?<!\\)(?:\\{{8}})*\K\\{{1,8}}(?:u[0-9a-fA-F]{{0,3}}|x[0-9a-fA-F]?|0?3{{0,2}}|[eE]|u001[bB]|x1[bB])?\Z|{_CONTROL}{_SEQUENCE}\Z"
)
_BEGINS = regex.compile(r"[\\\x1b\u241b^]")
_MOST_OPEN = 64
_BACKSLASH = "\\"
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class Reading(NamedTuple):
    """A text as it is read.

    Args:
        text: what is read.
        starts: for each of its characters where its unit begins in the text as it came, and the end of that.
        ends: where each unit ends.
    """

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    def place(self, at: int) -> int:
        """Return where the first unit at or behind a place stands in what is read."""
        return bisect_left(self.starts, at)

    def behind(self, at: int) -> int:
        """Return where the unit at a place ends, and the next begins."""
        return self.starts[bisect_right(self.starts, at)]

    def text_before(self, at: int, size: int) -> str:
        """Return so much of what stands before a place."""
        place = self.place(at)
        return self.text[max(place - size, 0) : place]


def open_end(text: str) -> int:
    """Return where the end of a text begins that may still become an escape."""
    end = text[-_MOST_OPEN:]
    if not _BEGINS.search(end):
        return len(text)
    match = _OPEN.search(text)
    return match.start() if match else len(text)


def readings(text: str, before: tuple[str, str]) -> list[Reading]:
    """Return how a text may be read: by meaning, and as it is written if that differs.

    Args:
        text: what comes next.
        before: what stood before it, in both readings.
    """
    meaning, written = before
    if meaning == written and not _SPECIAL.search(text):
        size = len(meaning)
        return [
            Reading(meaning + text, range(-size, len(text) + 1), range(1 - size, len(text) + 1))
        ]
    specials = [(*_unit(match), *match.span()) for match in _SPECIAL.finditer(text)]
    return [_reading(text, [(e[n], *e[2:]) for e in specials], before[n]) for n in (0, 1)]


def _unit(match: "regex.Match[str]") -> tuple[str, str]:
    """Return what a unit means, and how it is written."""
    if match["colour"]:  # as written, a word ends with it; a NUL stands for that end
        bare = match[0].lstrip("\\")
        return "", f"{_BACKSLASH * (bare != match[0])}{bare}\0"
    if not match["escape"]:
        return "", match[0]
    letters = match[0].lstrip("\\")
    if len(letters) > 1:
        char = chr(int(letters[1:], 16))
        unseen = _SPECIAL.fullmatch(char) and char != "\\"
        return ("", char) if unseen else (char, f"\\{letters}")
    return _CONTROLS.get(letters, letters) or "\\", f"\\{letters}"


def _reading(text: str, specials: Sequence[tuple[str, int, int]], before: str) -> Reading:
    """Return a text with its special units spelled like this."""
    parts, at = [before], 0
    starts, ends = [*range(-len(before), 0)], [*range(1 - len(before), 1)]
    for spelled, start, end in (*specials, ("", len(text), len(text))):
        parts += text[at:start], spelled
        starts += range(at, start)
        starts += [start] * len(spelled)
        ends += range(at + 1, start + 1)
        ends += [end] * len(spelled)
        at = end
    return Reading("".join(parts), [*starts, len(text)], ends)
