"""Reads the texts of a format in what a model has written so far, of which more may come. Knows no parser."""

import re
from dataclasses import dataclass
from enum import Enum, auto

from localspec.calls import ID_SLOT, INDEX_SLOT, NAME_SLOT

NAME, KEY = "\ue003", "\ue004"
"""Slots for the name of a function, and for the key of an argument."""

_SLOTS = {
    ID_SLOT: re.compile(r"[\w.:-]{0,64}", re.ASCII),
    INDEX_SLOT: re.compile(r"\d{0,9}", re.ASCII),
    NAME: re.compile(r"[\w.-]{0,128}", re.ASCII),
    KEY: re.compile(r"[\w.$-]{0,128}"),
}
_MOST_SPACE = 64
_MARKS = frozenset('{}[]:,"')
"""White space beside them is up to the model, as it is in JSON."""


class Found(Enum):
    """What a text says of a pattern: it begins with it, it does not, or more of it has to come."""

    WHOLE = auto()
    NONE = auto()
    MORE = auto()


@dataclass(frozen=True, slots=True)
class Match:
    """How a pattern was found.

    Args:
        found: whether it was.
        end: where it ends.
        slot: what stands in its first slot `NAME` or `KEY`.
    """

    found: Found
    end: int = 0
    slot: str = ""


_NONE, _MORE = Match(Found.NONE), Match(Found.MORE)


def match(pattern: str, text: str, at: int, *, loose: bool) -> Match:
    """Say whether a text has a pattern at some place.

    Args:
        pattern: text with slots.
        text: what is written so far.
        at: where the pattern has to begin.
        loose: white space need not be as in the pattern.
    """
    slot, before = "", ""
    for each in pattern:
        if each in _SLOTS:
            read = _SLOTS[each].match(text, at)
            assert read is not None, "it may be empty"  # noqa: S101
            expected, at = read[0], read.end()
            if at == len(text):
                return _MORE
            if not expected:
                return _NONE
            slot = slot or (expected if each in (NAME, KEY) else "")
        else:
            expected = slot if each == NAME_SLOT else each
            if loose and each.isspace():
                at, expected = _after_space(text, at), ""
            elif loose and before and (each in _MARKS or before in _MARKS):
                at = _after_space(text, at)
            if not text.startswith(expected, at):
                return _MORE if expected.startswith(text[at:]) else _NONE
            at += len(expected)
        before = each
    return Match(Found.WHOLE, at, slot)


def _after_space(text: str, at: int) -> int:
    end = at
    while end < len(text) and end - at < _MOST_SPACE and text[end].isspace():
        end += 1
    return end
