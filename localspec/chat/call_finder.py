"""Finds how a model writes calls: its template is rendered with calls in it, and what stands around their parts is the format.

Source: the idea is llama.cpp's, `docs/autoparser.md`; here nothing is classified: the texts are kept as they are.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from os.path import commonprefix
from typing import Any

from localspec.calls import (
    ID_SLOT,
    INDEX_SLOT,
    NAME_SLOT,
    CallFormat,
    TaggedArguments,
    Tool,
    ValueForm,
)
from localspec.chat.known_calls import known_format, written_also
from localspec.chat.template import ChatTemplate
from localspec.chat.thinking import KNOWN_TAGS
from localspec.errors import TemplateError
from localspec.messages import Message, TextPart, ToolCall

_NAMES = ("probe_one", "probe_two", "probe_three")
_IDS = ("callOne01", "callTwo02", "callThr03")  # Mistral's are nine letters and digits
_TEXTS = {"key_one": "value_one", "key_two": "value_two"}
_NUMBERS = {"key_one": 73173, "key_two": 94794}
_LISTS = {"key_one": [73173], "key_two": [94794]}
_ANSWER = "An answer in words."
_MARKER = re.compile(r"<[^<>\s]*>|\[[A-Z_]+\]|```\w*\n")
_OPENED = re.compile(r"<[^<>]*$|\[[A-Z_]*$")
_TURN_END = re.compile(r"[<\[\n]")
_DIGITS = re.compile(r"\d+")
_EMPTY_THOUGHTS = re.compile(
    "|".join(
        rf"\s*{re.escape(each.open)}\s*{re.escape(each.close)}\s*"
        for each in KNOWN_TAGS
        if each.close
    )
)
_QUOTES = frozenset("'\"")


class _UnclearError(Exception):
    """A rendered call does not have the parts that it was made of."""


def call_format(template: ChatTemplate) -> CallFormat | None:
    """Return how the model of a template writes calls; None where the template does not show it."""
    try:
        return _Probe(template).form()
    except (TemplateError, _UnclearError):
        return known_format(template.source)


def offers_tools(source: str | None) -> bool:
    """Return whether a model can be offered functions: its template, if it has one, reads them and shows how calls are written."""
    if source is None or "tools" not in source:
        return False
    try:
        return call_format(ChatTemplate(source, "", "")) is not None
    except TemplateError:
        return False


class _Probe:
    """Renders calls with one template."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        properties = {key: {"type": "string", "description": "A text."} for key in _TEXTS}
        schema = {"type": "object", "properties": properties, "required": []}
        self._tools = [Tool(name, schema, "A function.") for name in _NAMES]
        self._prompt = template.as_written([Message.user("hello")], tools=self._tools)
        self._one_by_one: bool | None = None  # whether arguments are no JSON object
        self._answer = self._rendered(TextPart(_ANSWER))
        if _ANSWER not in self._answer:
            raise _UnclearError

    def form(self) -> CallFormat:
        begin, *gaps, rest = self._gaps(_TEXTS)
        self._one_by_one = len(gaps) > 1
        begin = begin.lstrip("\n")
        if not begin.strip():
            raise _UnclearError
        end = self._without_turn_end(rest)
        then, following = self._several(gaps)
        tagged = self._tagged([then, *gaps[1:]], end) if self._one_by_one else None
        if tagged is not None:
            close = _common(gaps[2], end)
            end = end.removeprefix(close)
            following = (
                following[len(close) :] if following and following.startswith(close) else None
            )
        also = written_also(self._template.source)
        return CallFormat(begin, then, end, following, self._trigger(begin), tagged, also)

    def _rendered(self, *parts: TextPart | ToolCall) -> str:
        messages = [Message.user("hello"), Message("assistant", parts)]
        return self._template.as_written(messages, tools=self._tools, add_generation_prompt=False)

    def _gaps(self, *arguments: Mapping[str, Any]) -> list[str]:
        """Return the texts before, between and behind the parts of calls: names, and arguments or their keys and values."""
        calls = list(zip(_IDS, _NAMES, arguments, strict=False))
        text = self._rendered(*(ToolCall(id_, name, json.dumps(each)) for id_, name, each in calls))
        at = self._start(text)
        gaps: list[str] = []
        before = ""
        for _, name, each in calls:
            for begin, end in _parts(text, at, name, each):
                gaps.append(_slotted(text[at:begin], before))
                before, at = text[begin:end] if text[begin:end] in {name, *each} else before, end
        if self._one_by_one is not None:
            parts = sum(1 + (2 * len(each) if self._one_by_one else 1) for each in arguments)
            if len(gaps) != parts:
                raise _UnclearError
        return [*gaps, _slotted(text[at:], before)]

    def _gaps_if_clear(self, *arguments: Mapping[str, Any]) -> list[str] | None:
        try:
            return self._gaps(*arguments)
        except (TemplateError, _UnclearError):
            return None

    def _start(self, text: str) -> int:
        """Return where the assistant's turn begins to differ from a prompt, and from an answer in words."""
        prompted = len(_common(text, self._prompt))
        before = self._answer.partition(_ANSWER)[0]
        same = _common(text, before)
        if same == before or prompted < len(self._prompt):
            prompted = max(prompted * (prompted == len(self._prompt)), len(_OPENED.sub("", same)))
        empty = _EMPTY_THOUGHTS.match(text, prompted)
        return empty.end() if empty else prompted

    def _without_turn_end(self, rest: str) -> str:
        """Return what follows the last call without what ends every turn."""
        turn_end = self._answer.partition(_ANSWER)[2]
        same = _common_end(rest, turn_end)
        cut = _TURN_END.search(same)
        return (rest[: len(rest) - len(same) + cut.start()] if cut else rest).rstrip()

    def _several(self, gaps: Sequence[str]) -> tuple[str, str | None]:
        """Return what follows a name, and what stands between two calls."""
        several = (self._gaps_if_clear(*(_TEXTS,) * 3) or [])[1:-1]
        if not several:
            return gaps[0], None
        size = len(gaps) + 1
        then = _same(gaps[0], several[size])
        following = _same(several[size - 1], several[2 * size - 1])
        return then or gaps[0], following if then is not None else None

    def _tagged(self, gaps: Sequence[str], end: str) -> TaggedArguments:
        first, open_text, between, _ = gaps
        _, _, open_number, between_numbers, _, after = self._gaps(_NUMBERS)
        after = self._without_turn_end(after)
        string = ValueForm(open_text, _common(between, end))
        other = ValueForm(self._any_type(open_number), _common(between_numbers, after))
        following = between.removeprefix(string.close)
        if between_numbers.removeprefix(other.close) != following:
            raise _UnclearError
        quote = string.open.removeprefix(other.open)
        quoted = quote in _QUOTES and string.close == quote + other.close
        return TaggedArguments(
            first,
            other if quoted else string,
            other,
            following,
            self._none(end.removeprefix(string.close), numbered=INDEX_SLOT in first),
            quoted,
        )

    def _any_type(self, open_number: str) -> str:
        """Return what stands before a number, or a value of another type: Kimi K3 names the type."""
        lists = self._gaps_if_clear(_LISTS)
        if lists is None:
            return open_number
        open_list = lists[2]
        begin = _common(open_number, open_list)
        end = _common_end(open_number[len(begin) :], open_list[len(begin) :])
        return open_number if begin == open_number else f"{begin}{ID_SLOT}{end}"

    def _none(self, end: str, *, numbered: bool) -> str | None:
        """Return what stands behind a name, and before the end, of a call without arguments."""
        empty = self._gaps_if_clear({})
        if empty is None:
            return None
        after = self._without_turn_end(empty[1])
        after = _DIGITS.sub(INDEX_SLOT, after) if numbered else after
        return after.removesuffix(end) if after.endswith(end) else None

    def _trigger(self, begin: str) -> str:
        """Return the shortest beginning, of whole markers, that an answer in words does not have."""
        fixed = re.split(f"[{ID_SLOT}{INDEX_SLOT}{NAME_SLOT}]", begin.lstrip())[0]
        ends = [match.end() for match in _MARKER.finditer(fixed)]
        answer = self._answer[len(_common(self._answer, self._prompt)) :]
        return next((fixed[:end] for end in ends if fixed[:end] not in answer), fixed)


def _parts(
    text: str, at: int, name: str, arguments: Mapping[str, Any]
) -> Iterator[tuple[int, int]]:
    """Yield where the parts of a call are in a text: its name, and the object of its arguments or each key and value."""
    begin = _find(text, name, at)
    yield begin, begin + len(name)
    at = begin + len(name)
    whole = _object(text, at, arguments) if arguments else None
    if whole is not None:
        yield whole
        return
    for part in (str(each) for pair in arguments.items() for each in pair):
        begin = _find(text, part, at)
        at = begin + len(part)
        yield begin, at


def _object(text: str, at: int, value: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return where the first JSON object is that equals `value`."""
    for match in re.compile(r"\{").finditer(text, at):
        with suppress(json.JSONDecodeError):
            parsed, end = json.JSONDecoder().raw_decode(text, match.start())
            if parsed == value:
                return match.start(), end
    return None


def _find(text: str, part: str, at: int) -> int:
    if part not in text[at:]:
        raise _UnclearError
    return text.index(part, at)


def _common(one: str, other: str) -> str:
    return commonprefix((one, other))  # noqa: RUF071  # of texts, not of paths


def _common_end(one: str, other: str) -> str:
    return _common(one[::-1], other[::-1])[::-1]


def _slotted(gap: str, before: str) -> str:
    """Return a text with slots: for ids, and for the name or key that came last."""
    for id_ in _IDS:
        gap = gap.replace(id_, ID_SLOT)
    return gap.replace(before, NAME_SLOT) if before else gap


def _same(one: str, other: str) -> str | None:
    """Return the text that stands in both places, numbers aside."""
    if one == other:
        return one
    one, other = _DIGITS.sub(INDEX_SLOT, one), _DIGITS.sub(INDEX_SLOT, other)
    return one if one == other else None
