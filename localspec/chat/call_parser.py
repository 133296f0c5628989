"""CallParser: what a model writes becomes text and calls, while it is written.

What does not parse is text, and no text is lost: a call begins with its whole head, up to its arguments, and with the
name of a function that the model may call. A call that breaks off behind that has the arguments that it has; one that a
limit cuts before that, behind its trigger, is no text.
"""

import ast
import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import lru_cache

import regex

from localspec.calls import (
    ID_SLOT,
    INDEX_SLOT,
    NAME_SLOT,
    CallFormat,
    TaggedArguments,
    Tool,
)
from localspec.chat.events import CallBegun, CallDelta, CallDone, Delta, Text
from localspec.chat.thinking import overlap
from localspec.messages import ToolCall

_NAME, _KEY = "\ue003", "\ue004"
"""Slots for the name of a function, and for the key of an argument."""
_SLOTS = {
    ID_SLOT: r"(?a:[\w.:-]{1,64}+)",
    INDEX_SLOT: r"(?a:\d{1,9}+)",
    _NAME: r"(?a:[\w.-]{1,128}+)",
    _KEY: r"[\w.$-]{1,128}+",
}
_SPACE = r"\s{0,64}+"
_MARKS = frozenset('{}[]:,"')
"""White space beside them is up to the model, as it is in JSON."""
_MOST_PYTHON = 1 << 16
_NONE = re.compile(r"\bNone\b")
_QUOTED = re.compile(r"(['\"])(.*)\1", re.DOTALL)
_BARE_KEY = re.compile(r"([{,]\s*)([A-Za-z_][\w.-]*)\s*:")
Steps = Generator[None, None, bool]


class CallParser:
    """Separates calls from text.

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
        self._tails = list(_tails(form))
        self._held = ""
        self._final = self._cut = False
        self.broken_off = False
        self._out: list[Delta] = []
        self._id = self._name = self._key = self._arguments = ""
        # Of the last head: name, whether it has arguments, and its size.
        self._ahead = ("", False, 0)
        self._steps = self._read()

    def feed(self, text: str) -> list[Delta]:
        """Take the next text of the answer and return what it makes certain."""
        self._held += text
        next(self._steps, None)
        out, self._out = self._out, []
        return out

    def flush(self, *, cut: bool = False) -> list[Delta]:
        """Return what was held back, at the end of the answer; `cut` says that a limit ended it."""
        self._final, self._cut = True, cut
        return self.feed("")

    # The steps below yield where more text has to come. Of a pattern at a place, `True` says that it is there, `False` that it is
    # not, and `None` that it may be with more text.

    def _read(self) -> Generator[None, None, None]:
        begin, at = self._form.begin.lstrip(), 0
        while True:
            at = self._held.find(begin[0], at)
            begins = self._begins(at) if at >= 0 else False
            if at >= 0 and begins is False:
                at += 1
                continue
            if text := self._take(len(self._held) if at < 0 else at):
                self._out.append(Text(text))
            at = 0
            if begins:
                while begins:
                    self._take(self._ahead[2])
                    begins = yield from self._call(*self._ahead[:2])
            elif self._final:
                self.broken_off = begins is None
                self._held = ""
                return
            else:
                yield

    def _begins(self, at: int) -> bool | None:
        """Return whether a first call begins at a place: with the trigger as it is, for that is what binds a call."""
        trigger = self._form.trigger
        if not self._held.startswith(trigger, at):
            return None if trigger.startswith(self._held[at:]) and not self._final else False
        return self._head(self._form.begin.lstrip(), at)

    def _head(self, prefix: str, at: int) -> bool | None:
        """Return whether the head of a call is at a place: up to its arguments, with the name of a function."""
        more = False
        for has_arguments, tail, inner in self._tails:
            match = self._match(f"{prefix}{_NAME}{tail}", at)
            more |= match is not None and match.partial
            if match is not None and not match.partial and match["slot"] in self._tools:
                head = self._match(f"{prefix}{_NAME}{inner}", at)
                self._ahead = match["slot"], has_arguments, head.end() - at if head else 0
                return True
        return None if more and (self._cut or not self._final) else False

    def _call(self, name: str, has_arguments: bool) -> Steps:
        """Read a call behind its head; return whether the head of another follows."""
        form = self._form
        self._id, self._name, self._arguments = self._new_id(), name, ""
        self._out.append(CallBegun(self._id, name))
        if form.tagged is None:
            whole = yield from self._object()
        elif not has_arguments:
            self._add("{}")
            whole = True
        else:
            whole = yield from self._pairs(form.tagged)
        if not whole:
            return False
        self._out.append(CallDone(ToolCall(self._id, name, self._arguments)))
        while True:
            follows = form.next is not None and self._head(self._named(form.next), 0)
            end = self._match(self._named(form.end), 0)
            if follows:
                return True
            if follows is False and (end is None or not end.partial or self._final):
                # An end that the model broke off is no text.
                self._take(0 if end is None else len(self._held) if end.partial else end.end())
                return False
            yield

    def _object(self) -> Steps:
        """Read a JSON object; return whether it ended."""
        depth, in_text, escaped = 0, False, False
        while True:
            for at, each in enumerate(self._held):
                if in_text:
                    in_text = escaped or each != '"'
                    escaped = not escaped and each == "\\"
                    continue
                in_text = each == '"'
                depth += (each in "{[") - (each in "}]")
                if not depth and each in "}]":
                    self._add(self._take(at + 1))
                    return True
            self._add(self._take(len(self._held)))
            if self._final:
                return False
            yield

    def _pairs(self, tagged: TaggedArguments) -> Steps:
        """Read arguments that are written one by one; return whether the last one ended."""
        # The longer one may begin with the other.
        forms = sorted({tagged.string, tagged.other}, key=lambda each: -len(each.open))
        before = "{"
        while True:
            opened = [(each, self._match(f"{_KEY}{each.open}", 0)) for each in forms]
            form, match = next((each for each in opened if each[1]), (tagged.other, None))
            if match is None or (match.partial and self._final):
                return False
            if match.partial:
                yield
                continue
            self._key = match["slot"]
            self._take(match.end())
            self._add(f"{before}{json.dumps(self._key, ensure_ascii=False)}: ")
            close = form.close.replace(NAME_SLOT, self._key)
            is_text = form == tagged.string
            if tagged.string == tagged.other:
                is_text = _is_text(self._tools[self._name], self._key)
            if is_text and not tagged.quoted:
                whole = yield from self._text(close)
            else:
                whole = yield from self._value(close, tagged)
            if not whole:
                return False
            following = self._goes_on(tagged, 0) and self._match(self._next(tagged), 0)
            if not following:
                self._add("}")
                return True
            self._take(following.end())
            before = ", "

    def _text(self, close: str) -> Steps:
        """Read a text that stands there as it is; return whether it ended."""
        self._add('"')
        while True:
            at, ends = self._held.find(close), None
            if at < 0:
                at = len(self._held) - (0 if self._final else overlap(self._held, close))
            else:
                ends = self._ends(at + len(close))
                at += ends is False
            self._add(json.dumps(self._take(at), ensure_ascii=False)[1:-1])
            if ends:
                self._take(len(close))
                self._add('"')
                return True
            if ends is None and self._final:
                return False
            if ends is None:
                yield

    def _value(self, close: str, tagged: TaggedArguments) -> Steps:
        """Read another value once it ended; return whether it did."""
        mark = "" if close or tagged.string == tagged.other else tagged.string.close
        nesting = None if close else _Nesting(mark)
        at = 0
        while True:
            while at < len(self._held):
                is_open = nesting is not None and nesting.is_open()
                may_end = not is_open and self._held.startswith(close, at)
                ends = may_end and self._ends(at + len(close))
                if ends:
                    self._add(_json_of(self._take(at).strip(), mark))
                    self._take(len(close))
                    return True
                if ends is None or (close.startswith(self._held[at:]) and not self._final):
                    break
                size = 1 if nesting is None else nesting.step(self._held, at)
                if not size:
                    break
                at += size
            if self._final:
                return False
            yield

    def _ends(self, at: int) -> bool | None:
        """Return whether what may follow a value is at a place."""
        form = self._form
        assert form.tagged is not None, "values are tagged"  # noqa: S101
        places = [self._goes_on(form.tagged, at), self._is_at(self._named(form.end), at)]
        places += [] if form.next is None else [self._head(self._named(form.next), at)]
        ends = _any(places)
        return True if ends is None and self._final else ends

    def _goes_on(self, tagged: TaggedArguments, at: int) -> bool | None:
        """Return whether another argument is at a place."""
        opens = {tagged.string.open, tagged.other.open}
        return _any([self._is_at(f"{self._next(tagged)}{_KEY}{each}", at) for each in opens])

    def _next(self, tagged: TaggedArguments) -> str:
        """Return what stands between the last argument and another."""
        return tagged.next.replace(NAME_SLOT, self._key)

    def _named(self, pattern: str) -> str:
        """Return what stands behind the arguments of a call, with the name of its function."""
        return pattern.replace(NAME_SLOT, self._name)

    def _match(self, pattern: str, at: int) -> "regex.Match[str] | None":
        compiled = _compiled(pattern, self._form.tagged is None)
        return compiled.match(self._held, at) or compiled.match(self._held, at, partial=True)

    def _is_at(self, pattern: str, at: int) -> bool | None:
        match = self._match(pattern, at)
        return False if match is None else not match.partial or None

    def _take(self, size: int) -> str:
        taken, self._held = self._held[:size], self._held[size:]
        return taken

    def _add(self, text: str) -> None:
        """Add to the arguments."""
        if text:
            self._arguments += text
            self._out.append(CallDelta(self._id, text))


def _any(places: Sequence[bool | None]) -> bool | None:
    """Return whether one of several is there; None where that may be with more text."""
    return True if True in places else None if None in places else False


def _tails(form: CallFormat) -> Iterator[tuple[bool, str, str]]:
    """Yield what may stand behind a name: whether arguments follow, the text that shows it, and how much of it belongs to the head."""
    tagged = form.tagged
    if tagged is None:
        for then in (form.then, *form.also):
            yield True, f"{then}{{", then
        return
    for each in {tagged.string.open, tagged.other.open}:
        yield True, f"{tagged.first}{_KEY}{each}", tagged.first
    if tagged.none is not None:
        for behind in (form.end, *([] if form.next is None else [form.next])):
            if tagged.none or behind:
                yield False, f"{tagged.none}{behind}", tagged.none


@lru_cache(256)
def _compiled(pattern: str, loose: bool) -> "regex.Pattern[str]":
    """Return a text with slots as an expression, the first name or key as `slot`; `loose` leaves white space to the model."""
    expression, before, has_slot = "", "", False
    for each in pattern:
        if each in _SLOTS:
            part = _SLOTS[each]
            if each in {_NAME, _KEY} and not has_slot:
                part, has_slot = f"(?P<slot>{part})", True
        elif loose and each.isspace():
            part = _SPACE
        else:
            part = "(?P=slot)" if each == NAME_SLOT else regex.escape(each)
            if loose and before and (each in _MARKS or before in _MARKS):
                part = _SPACE + part
        expression, before = expression + part, each
    return regex.compile(expression)


class _Nesting:
    """Whether quotes or brackets are open in a value that nothing marks the end of.

    Args:
        mark: a quote of several characters, as Gemma has it; empty where there is none.
    """

    def __init__(self, mark: str) -> None:
        self._quotes = tuple(filter(None, (mark, '"', "'")))
        self._quote = ""
        self._depth = 0

    def is_open(self) -> bool:
        return bool(self._quote) or self._depth > 0

    def step(self, text: str, at: int) -> int:
        """Go on at a place; return how many characters belong together there, 0 where more of them have to come."""
        if text[at] == "\\" and len(self._quote) == 1:
            return 2 if at + 1 < len(text) else 0
        quotes = (self._quote,) if self._quote else self._quotes
        quote = next((each for each in quotes if text.startswith(each, at)), "")
        if quote:
            self._quote = "" if self._quote else quote
            return len(quote)
        if any(each.startswith(text[at : at + len(each)]) for each in quotes):
            return 0  # a beginning of it, at the end of the text
        if not self._quote:
            self._depth += (text[at] in "{[(") - (text[at] in "}])")
        return 1


def _is_text(tool: Tool, key: str) -> bool:
    """Return whether an argument can be nothing but a text."""
    properties = tool.parameters.get("properties")
    schema = properties.get(key) if isinstance(properties, Mapping) else None
    return isinstance(schema, Mapping) and schema.get("type") == "string"


def _json_of(text: str, mark: str) -> str:
    """Return a value as JSON, be it JSON, Python, or Gemma's own way; what cannot be read as one is a text.

    Args:
        text: what the model wrote.
        mark: stands around texts within it, as Gemma has it; empty where quotes do.
    """
    for read in (json.loads, _python, lambda value: json.loads(_unmarked(value, mark)), _inner):
        try:
            return json.dumps(read(text), ensure_ascii=False, allow_nan=False)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return json.dumps(text, ensure_ascii=False)


def _python(text: str) -> object:
    if len(text) > _MOST_PYTHON:  # its parser is not made for what strangers write
        raise ValueError(len(text))
    return ast.literal_eval(text)


def _unmarked(text: str, mark: str) -> str:
    """Return JSON: texts in quotes, and keys as well."""
    if not mark:
        raise ValueError(text)
    parts = text.split(mark)
    return "".join(
        json.dumps(part) if number % 2 else _NONE.sub("null", _BARE_KEY.sub(r'\1"\2":', part))
        for number, part in enumerate(parts)
    )


def _inner(text: str) -> str:
    """Return a text in quotes that is neither JSON nor Python: a line ends in it, say."""
    quoted = _QUOTED.fullmatch(text)
    if quoted is None:
        raise ValueError(text)
    return quoted[2]
