"""written_calls: calls that a model wrote as JSON in the words of its answer, where it forgot its own form.

Small models do. Where the user approves calls first, they can be taken for calls; a server must not.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from localspec.calls import Tool
from localspec.calls.policy import CallOffer
from localspec.chat.events import CallBegun, CallDelta, CallDone, Told
from localspec.messages import ToolCall

_FENCE = "```"
_ARGUMENTS = ("arguments", "parameters")
_KEYS = ('"name"', '"arguments"', '"parameters"')
_MOST = 8


def written_calls(
    answer: str, tools: Sequence[Tool], offer: CallOffer, new_id: Callable[[], str]
) -> Iterator[Told]:
    """Yield the calls at the end of an answer: an object with name and arguments, in a block of code or alone.

    Args:
        answer: all of its words.
        tools: what may be called. A call of anything else, with arguments that it does not know, or without one that
            it needs, is words; and so is what stands before it.
        offer: the first call that it does not allow, and all behind it, is words.
        new_id: gives the id of each call.
    """
    by_name = {each.name: each for each in tools}
    calls: list[tuple[str, str]] = []
    while len(calls) < _MOST:
        before, last = _last_block(answer.rstrip())
        call = _call(last, by_name)
        if call is None:
            break
        calls.insert(0, call)
        answer = before
    for name, arguments in calls[: offer.allowed([name for name, _ in calls])]:
        number = new_id()
        yield CallBegun(number, name)
        yield CallDelta(number, arguments)
        yield CallDone(ToolCall(number, name, arguments))


def words_end(answer: str) -> int:
    """Return how much of the beginning of an answer is words, whatever follows; from there on it may be calls."""
    if answer.lstrip().startswith("{") and _may_be_call(answer):
        return 0
    calls_at, at = None, 0
    while (begin := answer.find(_FENCE, at)) >= 0:
        close = answer.find(_FENCE, begin + len(_FENCE))
        _, _, inside = answer[begin : None if close < 0 else close].partition("\n")
        if not _may_be_call(inside):
            calls_at = None
        elif calls_at is None or answer[at:begin].strip():
            calls_at = begin
        if close < 0:
            return len(answer) if calls_at is None else calls_at
        at = close + len(_FENCE)
    words = answer[at:].rstrip("`")
    return at + len(words) if calls_at is None or words.strip() else calls_at


def _may_be_call(text: str) -> bool:
    """Return whether a text is the beginning of an object of a call."""
    text = text.lstrip()
    key = text[1:].lstrip()
    return text[:1] in {"", "{"} and any(each.startswith(key[: len(each)]) for each in _KEYS)


def _last_block(text: str) -> tuple[str, str]:
    """Return the last block of code, and what is before it; or all of a text that is an object."""
    if not text.endswith(_FENCE):
        return "", text if text.startswith("{") else ""
    begin = text.rfind(_FENCE, 0, -len(_FENCE))
    if begin < 0:
        return text, ""
    _, _, inside = text[begin : -len(_FENCE)].partition("\n")
    return text[:begin], inside


def _call(text: str, tools: dict[str, Tool]) -> tuple[str, str] | None:
    """Return the name of the function and the arguments as JSON, if that is what a text is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(name := value.pop("name", None), str):
        return None
    tool = tools.get(name)
    arguments: Any = next((value.pop(key) for key in _ARGUMENTS if key in value), {})
    if tool is None or value or not isinstance(arguments, dict):
        return None
    known: Any = tool.parameters.get("properties", {})
    needed: Any = tool.parameters.get("required", [])
    if not set(needed) <= arguments.keys() <= set(known):
        return None
    return tool.name, json.dumps(arguments, ensure_ascii=False)
