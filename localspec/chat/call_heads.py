"""Where a call begins in a text: its format's beginning, the name of an offered function, and what shows its arguments."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import regex

from localspec.calls import ID_SLOT, INDEX_SLOT, NAME_SLOT, CallFormat
from localspec.calls.openings import openings

NAME, KEY = "\ue003", "\ue004"
"""Slots for the name of a function, and for the key of an argument."""
_SLOTS = {
    ID_SLOT: r"(?a:[\w.:-]{1,64}+)",
    INDEX_SLOT: r"(?a:\d{1,9}+)",
    NAME: r"(?a:[\w.-]{1,128}+)",
    KEY: r"[\w.$-]{1,128}+",
}
_SPACE = r"\s{0,64}+"
_MARKS = frozenset('{}[]:,"')
"""White space beside them is up to the model, as it is in JSON."""
_MOST_MARKER_CHARS = 24
_NEVER = "(?!)"
_WORD = re.compile(r"[\w.-]*")


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a call.

    Args:
        form: the format in which it is written.
        name: of the function.
        has_arguments: whether arguments follow.
        size: characters up to these.
    """

    form: CallFormat
    name: str
    has_arguments: bool
    size: int


class HeadFinder:
    """Finds heads of calls in one format.

    Args:
        form: how calls are written.
        names: of the functions that may be called.
        loose: leave white space of JSON to the model.
    """

    def __init__(self, form: CallFormat, names: Collection[str], *, loose: bool) -> None:
        self.form = form
        self._names = frozenset(names)
        self._loose = loose and form.tagged is None
        self._tails = list(_tails(form))
        self._behind = {tail[:1] for _, tail, _ in self._tails}

    def match(
        self, text: str, at: int, before: str, *, final: bool, cut: bool = False
    ) -> Head | bool | None:
        """Return the head at a place; False where there is none, None where there may be one with more text.

        Args:
            text: of the answer.
            at: the place.
            before: what stands before the name.
            final: whether the text has ended.
            cut: whether a limit ended it: what has begun may have become a call.
        """
        more = False
        for has_arguments, tail, inner in self._tails:
            match = partial_match(f"{before}{NAME}{tail}", text, at, loose=self._loose)
            more |= match is not None and match.partial
            if match is not None and not match.partial and match["slot"] in self._names:
                head = partial_match(f"{before}{NAME}{inner}", text, at, loose=self._loose)
                size = head.end() - at if head else 0
                return Head(self.form, match["slot"], has_arguments, size)
        return None if more and (cut or not final) else False

    def begins_line(self) -> bool:
        """Return whether nothing marks the beginning of a call but a line's."""
        return not self.form.begin

    def may_follow(self, text: str, at: int) -> bool:
        """Return whether a name that is called may be at a place, or its beginning at the end of a text."""
        word = _WORD.match(text, at)
        name = word[0] if word else ""
        if at + len(name) < len(text):
            may_follow = text[at + len(name)] in self._behind or not self._behind.isdisjoint(_SLOTS)
            return may_follow and name in self._names
        return any(each.startswith(name) for each in self._names)


class Places:
    """Where in a text one of some markers begins, or may with more text; found by an expression, since nearly no text has one.

    Args:
        markers: none of them empty.
        names: those that count where a line begins.

    Attributes:
        search: matches a text that may have a place, but for its beginning where that begins a line.
        at_line: matches what begins a line there.
    """

    def __init__(self, markers: Collection[str], names: Collection[str] = ()) -> None:
        begun = _begun({each[:_MOST_MARKER_CHARS] for each in markers})
        lines = _begun({each[:_MOST_MARKER_CHARS] for each in names}) if names else _NEVER
        self.at_line = re.compile(lines).match
        self.search = re.compile(rf"{begun}|\n(?={lines})" if names else begun).search

    def find(self, text: str, at: int, *, at_line: bool) -> int:
        """Return the first such place in a text from a place on, -1 where there is none; `at_line` says that the text begins a line."""
        if at_line and not at and self.at_line(text):
            return 0
        place = self.search(text, at)
        return -1 if place is None else place.start() + (text[place.start()] == "\n")


def _begun(texts: Collection[str]) -> str:
    """Return an expression for texts, and for the beginnings of them that end the text that is searched."""
    begins = sorted({each[0] for each in texts})
    rests = [{each[1:] for each in texts if each[0] == begin} for begin in begins]
    return "|".join(
        re.escape(begin) + ("" if "" in rest else rf"(?:\Z|{_begun(rest)})")
        for begin, rest in zip(begins, rests, strict=True)
    )


class CallsInThoughts:
    """Finds the first call in thoughts that never closed, in a text that grows.

    Args:
        form: how the model writes calls.
        names: of the functions that may be called.
    """

    def __init__(self, form: CallFormat, names: Collection[str]) -> None:
        self._finders = [HeadFinder(each, names, loose=False) for each in openings(form)]
        marked = [each.form.trigger for each in self._finders if not each.begins_line()]
        self._places = Places(marked, names if len(marked) < len(self._finders) else ())

    def find(self, text: str, *, at_line: bool, final: bool) -> tuple[int, bool]:
        """Return up to where a text has no call, and whether one begins there.

        Args:
            text: of the thoughts, from where the last answer of this ended.
            at_line: whether it begins a line.
            final: whether no more of it comes.
        """
        at = -1
        while (at := self._places.find(text, at + 1, at_line=at_line)) >= 0:
            for finder in self._finders:
                if finder.begins_line() and not (
                    _begins_line(text, at, at_line) and finder.may_follow(text, at)
                ):
                    continue
                head = finder.match(text, at, finder.form.begin.lstrip(), final=final)
                if head is not False:
                    return at, head is not None
        return len(text), False


def _begins_line(text: str, at: int, at_line: bool) -> bool:
    return text[at - 1] == "\n" if at else at_line


def partial_match(pattern: str, text: str, at: int, *, loose: bool) -> "regex.Match[str] | None":
    """Return the match of a text with slots at a place, whole, or of its beginning at the end of the text."""
    compiled = _compiled(pattern, loose)
    return compiled.match(text, at) or compiled.match(text, at, partial=True)


def _tails(form: CallFormat) -> Sequence[tuple[bool, str, str]]:
    """Return what may stand behind a name: whether arguments follow, the text that shows it, and how much of it belongs to the head."""
    tagged = form.tagged
    if tagged is None:
        return [(True, f"{then}{{", then) for then in (form.then, *form.also)]
    opens = {tagged.string.open, tagged.other.open}
    tails = [(True, f"{tagged.first}{KEY}{each}", tagged.first) for each in opens]
    if tagged.none is not None:
        ends = (form.end, *([] if form.next is None else [form.next]))
        none = tagged.none
        tails += [(False, f"{none}{end}", none) for end in ends if none or end]
    return tails


@lru_cache(256)
def _compiled(pattern: str, loose: bool) -> "regex.Pattern[str]":
    """Return a text with slots as an expression, the first name or key as `slot`; `loose` leaves white space to the model."""
    expression, before, has_slot = "", "", False
    for each in pattern:
        if each in _SLOTS:
            part = _SLOTS[each]
            if each in {NAME, KEY} and not has_slot:
                part, has_slot = f"(?P<slot>{part})", True
        elif loose and each.isspace():
            part = _SPACE
        else:
            part = "(?P=slot)" if each == NAME_SLOT else regex.escape(each)
            if loose and before and (each in _MARKS or before in _MARKS):
                part = _SPACE + part
        expression, before = expression + part, each
    return regex.compile(expression)
