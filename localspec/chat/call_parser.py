"""CallParser: what a model writes becomes text and calls, while it is written.

What does not parse is text, and no text is lost: a call begins with its whole head, up to its arguments, and with the
name of a function that the model may call. A call that breaks off behind that has the arguments that it has; one that a
limit cuts before that, behind its trigger, is no text. A call may lack its first marker, see `calls/openings.py`; a
closing one that is left over at the end of an answer is no text, either.
"""

import ast
import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence

import regex

from localspec.calls import NAME_SLOT, CallFormat, TaggedArguments, Tool
from localspec.calls.openings import closings, without_opener
from localspec.chat.call_heads import KEY, Head, HeadFinder, Places, partial_match
from localspec.chat.events import CallBegun, CallDelta, CallDone, Delta, Text
from localspec.chat.thinking import overlap
from localspec.messages import ToolCall

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
        broken_off: whether the end of the answer is no text: a limit cut a call before its name was whole, or a closing
            marker is left over.
    """

    def __init__(self, form: CallFormat, tools: Sequence[Tool], new_id: Callable[[], str]) -> None:
        self._form = self._usual = form
        self._tools = {each.name: each for each in tools}
        self._new_id = new_id
        self._finder = HeadFinder(form, self._tools, loose=True)
        bare = without_opener(form)
        self._bare = None if bare is None else HeadFinder(bare, self._tools, loose=False)
        self._left_over = _left_over(form)
        first = "" if form.tagged is None else form.tagged.first.lstrip()
        openers = (form.trigger, "" if bare is None else bare.begin, first)
        self._openers = tuple(each for each in openers if each.startswith(form.trigger[0]))
        self._begun = {each[: at + 1] for each in self._openers for at in range(len(each))}
        in_lines = self._bare is not None and self._bare.begins_line()
        self._places = Places((*self._openers, *closings(form)), self._tools if in_lines else ())
        self._opened = False  # whether one of these stands in the text
        self._at_line = True
        self._held = ""
        self._final = self._cut = False
        self.broken_off = False
        self._out: list[Delta] = []
        self._id = self._name = self._key = self._arguments = ""
        self._ahead: Head | None = None  # the last head that was found
        self._between = True  # calls, that is in no call
        self._idle = True  # nothing is held there
        self._steps = self._read()

    def feed(self, text: str) -> list[Delta]:
        """Take the next text of the answer and return what it makes certain."""
        places = self._places
        if self._idle and not (places.search(text) or (self._at_line and places.at_line(text))):
            if not text:
                return []
            self._at_line = text[-1] == "\n"
            return [Text(text)]
        self._held += text
        next(self._steps, None)
        self._idle = self._between and not self._held
        out, self._out = self._out, []
        return out

    def flush(self, *, cut: bool = False) -> list[Delta]:
        """Return what was held back, at the end of the answer; `cut` says that a limit ended it."""
        self._final, self._cut, self._idle = True, cut, False
        return self.feed("")

    # The steps below yield where more text has to come. Of a pattern at a place, `True` says that it is there, `False` that it is
    # not, and `None` that it may be with more text.

    def _read(self) -> Generator[None, None, None]:
        at = 0
        while True:
            place = self._places.find(self._held, at, at_line=self._at_line)
            begins = self._begins(place) if place >= 0 else False
            left_over = begins is False and place >= 0 and self._is_left_over(place)
            if place >= 0 and begins is False and not left_over:
                self._opened |= self._held.startswith(self._openers, place)
                at = place + 1
                continue
            if text := self._take(len(self._held) if place < 0 else place):
                self._out.append(Text(text))
            at = 0
            if begins:
                self._between = False
                while begins:
                    begins = yield from self._call()
                self._form, self._between = self._usual, True
            elif self._final:
                self.broken_off = begins is None or left_over
                self._held = ""
                return
            else:
                yield

    def _begins(self, at: int) -> bool | None:
        """Return whether a first call begins at a place: with the trigger as it is, for that is what binds a call."""
        if not self._final and self._held[at:] in self._begun:
            return None
        begins: bool | None = False
        if self._held.startswith(self._usual.trigger, at):
            begins = self._head(self._finder, self._usual.begin.lstrip(), at)
        return begins or _any([begins, self._begins_bare(at)])

    def _begins_bare(self, at: int) -> bool | None:
        """Return whether a call without its first marker begins at a place."""
        finder, held = self._bare, self._held
        if finder is None or not held.startswith(finder.form.begin, at):
            return False
        if finder.begins_line():
            begins_line = held[at - 1] == "\n" if at else self._at_line
            if not begins_line or not finder.may_follow(held, at):
                return False
        begins = self._head(finder, finder.form.begin, at)
        return False if begins is None and self._final else begins

    def _head(self, finder: HeadFinder, before: str, at: int) -> bool | None:
        """Return whether the head of a call is at a place, and keep it."""
        head = finder.match(self._held, at, before, final=self._final, cut=self._cut)
        if isinstance(head, Head):
            self._ahead = head
            return True
        return head

    def _is_left_over(self, at: int) -> bool:
        """Return whether a closing marker may be left over at a place: of no call, with nothing behind it."""
        if self._left_over is None or self._opened:
            return False
        match = self._left_over.fullmatch(self._held, at, partial=True)
        return match is not None and not (match.partial and self._final)

    def _call(self) -> Steps:
        """Read a call from its head on; return whether the head of another follows."""
        head = self._ahead
        assert head is not None, "it was found"  # noqa: S101
        self._take(head.size)
        self._form = form = head.form
        name = head.name
        self._id, self._name, self._arguments = self._new_id(), name, ""
        self._out.append(CallBegun(self._id, name))
        if form.tagged is None:
            whole = yield from self._object()
        elif not head.has_arguments:
            self._add("{}")
            whole = True
        else:
            whole = yield from self._pairs(form.tagged)
        if not whole:
            return False
        self._out.append(CallDone(ToolCall(self._id, name, self._arguments)))
        while True:
            follows = self._follows(0)
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
            opened = [(each, self._match(f"{KEY}{each.open}", 0)) for each in forms]
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
        ends = _any([*places, self._follows(at)])
        return True if ends is None and self._final else ends

    def _follows(self, at: int) -> bool | None:
        """Return whether the head of another call is at a place."""
        form = self._form
        finder = self._finder if form is self._usual else self._bare
        if form.next is None or finder is None:
            return False
        return self._head(finder, self._named(form.next), at)

    def _goes_on(self, tagged: TaggedArguments, at: int) -> bool | None:
        """Return whether another argument is at a place."""
        opens = {tagged.string.open, tagged.other.open}
        return _any([self._is_at(f"{self._next(tagged)}{KEY}{each}", at) for each in opens])

    def _next(self, tagged: TaggedArguments) -> str:
        """Return what stands between the last argument and another."""
        return tagged.next.replace(NAME_SLOT, self._key)

    def _named(self, pattern: str) -> str:
        """Return what stands behind the arguments of a call, with the name of its function."""
        return pattern.replace(NAME_SLOT, self._name)

    def _match(self, pattern: str, at: int) -> "regex.Match[str] | None":
        return partial_match(pattern, self._held, at, loose=self._form.tagged is None)

    def _is_at(self, pattern: str, at: int) -> bool | None:
        match = self._match(pattern, at)
        return False if match is None else not match.partial or None

    def _take(self, size: int) -> str:
        taken, self._held = self._held[:size], self._held[size:]
        if taken:
            self._at_line = taken.endswith("\n")
        return taken

    def _add(self, text: str) -> None:
        """Add to the arguments."""
        if text:
            self._arguments += text
            self._out.append(CallDelta(self._id, text))


def _any(places: Sequence[bool | None]) -> bool | None:
    """Return whether one of several is there; None where that may be with more text."""
    return True if True in places else None if None in places else False


def _left_over(form: CallFormat) -> "regex.Pattern[str] | None":
    """Return what matches closing markers at the end of a text; None where a format has none."""
    texts = "|".join(map(regex.escape, closings(form)))
    return regex.compile(rf"(?:(?:{texts})\s*)+") if texts else None


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
