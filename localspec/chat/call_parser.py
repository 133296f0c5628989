"""CallParser: what a model writes becomes text and calls, while it is written.

What does not parse is text, and no text is lost: a call begins with its whole head, up to its arguments, and with the
name of a function that the model may call. A call that breaks off behind that has the arguments that it has; one that a
limit cuts before that, behind its trigger, is no text.
"""

import json
import re
from collections.abc import Callable, Generator, Sequence
from enum import Enum, auto
from typing import NamedTuple

from localspec.calls import (
    ID_SLOT,
    INDEX_SLOT,
    NAME_SLOT,
    CallFormat,
    TaggedArguments,
    Tool,
    ValueForm,
)
from localspec.chat.call_values import ValueNesting, is_text, json_of
from localspec.chat.events import CallBegun, CallDelta, CallDone, Text, Told
from localspec.messages import ToolCall

_NAME, _KEY = "\ue003", "\ue004"
"""Slots for the name of a function, and for the key of an argument."""

_SLOTS = {
    ID_SLOT: re.compile(r"[\w.:-]{0,64}", re.ASCII),
    INDEX_SLOT: re.compile(r"\d{0,9}", re.ASCII),
    _NAME: re.compile(r"[\w.-]{0,128}", re.ASCII),
    _KEY: re.compile(r"[\w.$-]{0,128}"),
}
_MOST_SPACE = 64
_MARKS = frozenset('{}[]:,"')
"""White space beside them is up to the model, as it is in JSON."""


class _Found(Enum):
    """What a text says of a pattern: it begins with it, it does not, or more of it has to come."""

    WHOLE = auto()
    NONE = auto()
    MORE = auto()


class _Match(NamedTuple):
    """How a pattern was found: whether, where it ends, and what stands in its first slot `_NAME` or `_KEY`."""

    found: _Found
    end: int = 0
    slot: str = ""


_NONE, _MORE = _Match(_Found.NONE), _Match(_Found.MORE)


class CallParser:
    """Tells calls from text.

    Args:
        form: how the model writes calls.
        tools: what it may call; another name is text.
        new_id: gives the id of each call. Those that a model writes are not taken: some count from 0 in every answer.

    Attributes:
        broken_off: whether a limit cut a call before its name was whole.
    """

    def __init__(self, form: CallFormat, tools: Sequence[Tool], new_id: Callable[[], str]) -> None:
        self._form = form
        self._tools = {each.name: each for each in tools}
        self._new_id = new_id
        self._loose = form.tagged is None
        self._tails = list(_tails(form))
        self._held = ""
        self._final = self._cut = False
        self.broken_off = False
        self._told: list[Told] = []
        self._id = self._name = self._arguments = ""
        self._has_arguments = False
        self._steps = self._read()

    def feed(self, text: str) -> list[Told]:
        """Take the next text of the answer and return what it makes certain."""
        self._held += text
        next(self._steps, None)
        told, self._told = self._told, []
        return told

    def flush(self, *, cut: bool = False) -> list[Told]:
        """Return what was held back, at the end of the answer; `cut` says that a limit ended it."""
        self._final, self._cut = True, cut
        return self.feed("")

    def _read(self) -> Generator[None, None, None]:
        while (yield from self._head_after_text()):
            going_on = True
            while going_on:
                going_on = yield from self._call()

    def _head_after_text(self) -> Generator[None, None, bool]:
        """Tell text up to a call and pass its head; return whether there is one."""
        begin, at = self._form.begin.lstrip(), 0
        while True:
            at = self._held.find(begin[0], at)
            found = _Found.NONE if at < 0 else self._begins(at)
            if at >= 0 and found is _Found.NONE:
                at += 1
                continue
            self._tell_text(len(self._held) if at < 0 else at)
            at = 0
            if found is _Found.MORE and self._final:
                self._take(len(self._held))
                self.broken_off = True
            if found is _Found.WHOLE:
                self._head(begin, 0, passes=True)
                return True
            if self._final:
                return False
            yield

    def _begins(self, at: int) -> _Found:
        """Say whether a first call begins at a place: with the trigger as it is, for that is what binds a call."""
        trigger = self._form.trigger
        if not self._held.startswith(trigger, at):
            more = trigger.startswith(self._held[at:]) and not self._final
            return _Found.MORE if more else _Found.NONE
        return self._head(self._form.begin.lstrip(), at)

    def _head(self, prefix: str, at: int, *, passes: bool = False) -> _Found:
        """Say whether a call begins at a place; `passes` takes its head, which is there, up to its arguments."""
        more = False
        for has_arguments, tail, taken in self._tails:
            found = self._match(f"{prefix}{_NAME}{tail}", at)
            if found.found is _Found.WHOLE and found.slot in self._tools:
                if passes:
                    self._name, self._has_arguments = found.slot, has_arguments
                    self._take(self._match(f"{prefix}{_NAME}{taken}", at).end)
                return _Found.WHOLE
            more |= found.found is _Found.MORE
        return _Found.MORE if more and (self._cut or not self._final) else _Found.NONE

    def _call(self) -> Generator[None, None, bool]:
        """Tell a call behind its head; return whether the head of another was passed."""
        self._id, self._arguments = self._new_id(), ""
        self._told.append(CallBegun(self._id, self._name))
        tagged = self._form.tagged
        if tagged is None:
            whole = yield from self._object()
        elif not self._has_arguments:
            self._tell("{}")
            whole = True
        else:
            whole = yield from self._pairs(tagged)
        if not whole:
            return False
        self._told.append(CallDone(ToolCall(self._id, self._name, self._arguments)))
        while True:
            following = self._form.next
            found = _Found.NONE if following is None else self._head(following, 0)
            if found is _Found.WHOLE and following is not None:
                self._head(following, 0, passes=True)
                return True
            end = self._match(self._form.end, 0)
            if found is _Found.NONE and (end.found is not _Found.MORE or self._final):
                # An end that the model broke off is no text.
                self._take(end.end if end.found is not _Found.MORE else len(self._held))
                return False
            yield

    def _object(self) -> Generator[None, None, bool]:
        """Tell a JSON object; return whether it ended."""
        depth, in_text, escaped = 0, False, False
        while True:
            for at, each in enumerate(self._held):
                if in_text:
                    in_text = escaped or each != '"'
                    escaped = not escaped and each == "\\"
                elif each == '"':
                    in_text = True
                elif each in "{[":
                    depth += 1
                elif each in "}]":
                    depth -= 1
                    if not depth:
                        self._tell(self._take(at + 1))
                        return True
            self._tell(self._take(len(self._held)))
            if self._final:
                return False
            yield

    def _pairs(self, tagged: TaggedArguments) -> Generator[None, None, bool]:
        """Tell arguments that are written one by one; return whether the last one ended."""
        # The longer one may begin with the other.
        forms = sorted({tagged.string, tagged.other}, key=lambda each: -len(each.open))
        before = "{"
        while True:
            opened = [self._match(f"{_KEY}{each.open}", 0) for each in forms]
            first = next(
                (at for at, each in enumerate(opened) if each.found is not _Found.NONE), None
            )
            if first is None or (opened[first].found is _Found.MORE and self._final):
                return False
            if opened[first].found is _Found.MORE:
                yield
                continue
            key = opened[first].slot
            self._take(opened[first].end)
            self._tell(f"{before}{json.dumps(key, ensure_ascii=False)}: ")
            form = ValueForm(forms[first].open, forms[first].close.replace(NAME_SLOT, key))
            if not tagged.quoted and (
                is_text(self._tools[self._name], key)
                if tagged.string == tagged.other
                else forms[first] == tagged.string
            ):
                whole = yield from self._text(form.close)
            else:
                whole = yield from self._value(form.close, tagged)
            if not whole:
                return False
            if self._goes_on(tagged, 0) is not _Found.WHOLE:
                self._tell("}")
                return True
            self._take(len(tagged.next))
            before = ", "

    def _text(self, close: str) -> Generator[None, None, bool]:
        """Tell a text that stands there as it is; return whether it ended."""
        self._tell('"')
        while True:
            at = self._held.find(close)
            if at < 0:
                whole = len(self._held)
                keep = 0 if self._final else min(whole, len(close) - 1)
                while keep and not close.startswith(self._held[whole - keep :]):
                    keep -= 1
                self._tell_escaped(whole - keep)
            else:
                ends = self._ends(at + len(close))
                self._tell_escaped(at if ends is not _Found.NONE else at + 1)
                if ends is _Found.WHOLE:
                    self._take(len(close))
                    self._tell('"')
                    return True
                if ends is _Found.NONE:
                    continue
            if self._final:
                return False
            yield

    def _value(self, close: str, tagged: TaggedArguments) -> Generator[None, None, bool]:
        """Tell another value once it ended; return whether it did."""
        mark = "" if tagged.string == tagged.other else tagged.string.close
        nesting = None if close else ValueNesting(mark)
        at = 0
        while True:
            while at < len(self._held):
                if (nesting is None or not nesting.inside) and self._held.startswith(close, at):
                    ends = self._ends(at + len(close))
                    if ends is _Found.WHOLE:
                        self._tell(json_of(self._take(at).strip(), "" if close else mark))
                        self._take(len(close))
                        return True
                    if ends is _Found.MORE:
                        break
                elif not self._final and close.startswith(self._held[at:]):
                    break
                size = 1 if nesting is None else nesting.step(self._held, at)
                if not size:
                    break
                at += size
            if self._final:
                return False
            yield

    def _ends(self, at: int) -> _Found:
        """Say whether what may follow a value stands at a place."""
        tagged = self._form.tagged
        assert tagged is not None, "asked within values"  # noqa: S101
        found = [self._goes_on(tagged, at), self._match(self._form.end, at).found]
        if self._form.next is not None:
            found.append(self._head(self._form.next, at))
        if _Found.WHOLE in found:
            return _Found.WHOLE
        if _Found.MORE in found:
            return _Found.WHOLE if self._final else _Found.MORE
        return _Found.NONE

    def _goes_on(self, tagged: TaggedArguments, at: int) -> _Found:
        """Say whether another argument stands at a place."""
        found = [
            self._match(f"{tagged.next}{_KEY}{each.open}", at).found
            for each in (tagged.string, tagged.other)
        ]
        return next((each for each in (_Found.WHOLE, _Found.MORE) if each in found), _Found.NONE)

    def _match(self, pattern: str, at: int) -> _Match:
        return _match(pattern, self._held, at, loose=self._loose)

    def _take(self, size: int) -> str:
        taken, self._held = self._held[:size], self._held[size:]
        return taken

    def _tell(self, text: str) -> None:
        if text:
            self._arguments += text
            self._told.append(CallDelta(self._id, text))

    def _tell_escaped(self, size: int) -> None:
        self._tell(json.dumps(self._take(size), ensure_ascii=False)[1:-1])

    def _tell_text(self, size: int) -> None:
        if size:
            self._told.append(Text(self._take(size)))


def _tails(form: CallFormat) -> Generator[tuple[bool, str, str], None, None]:
    """Yield what may stand behind a name: whether arguments follow, the text that shows it, and how much of it belongs to the head."""
    tagged = form.tagged
    if tagged is None:
        for then in (form.then, *form.also):
            yield True, f"{then}{{", then
        return
    for each in {tagged.string.open, tagged.other.open}:
        yield True, f"{tagged.first}{_KEY}{each}", tagged.first
    if tagged.none is not None:
        yield False, f"{tagged.none}{form.end}", tagged.none
        if form.next is not None:
            yield False, f"{tagged.none}{form.next}", tagged.none


def _match(pattern: str, text: str, at: int, *, loose: bool) -> _Match:
    """Say whether a text has a pattern, text with slots, at some place; `loose` leaves white space to the model."""
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
            slot = slot or (expected if each in (_NAME, _KEY) else "")
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
    return _Match(_Found.WHOLE, at, slot)


def _after_space(text: str, at: int) -> int:
    end = at
    while end < len(text) and end - at < _MOST_SPACE and text[end].isspace():
        end += 1
    return end
