"""Turns: what every template and every server takes: each call has arguments that are an object, and behind it its result.

Programs that send a conversation, and models that write calls, keep to neither: results come in the order in which
they were ready, and arguments may be empty or cut. Most templates join results to calls by order alone.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from localspec.messages import Message, Part, ToolCall, ToolResult

UNREADABLE = "unreadable"
"""Key of arguments that are no JSON object."""
_LOST = "this call was not carried out: the program ended before it"
_UNKNOWN = "the result of this call is not known"


def complete(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a conversation in which arguments are objects, and results follow their calls in the same order.

    A call without a result gets one that says so where another would be taken for it.
    """
    whole = [_with_objects(each) if each.role == "assistant" else each for each in messages]
    return _ordered(whole, "")


def with_results(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a conversation in which each call is followed by its result; one that was lost says so.

    A template need not render a call that nothing came of, and a program may end between the two.
    """
    return _ordered(messages, _LOST)


def _ordered(messages: Sequence[Message], lost: str) -> tuple[Message, ...]:
    done, at = list[Message](), 0
    while at < len(messages):
        message, at = messages[at], at + 1
        done.append(message)
        if message.role == "assistant" and (calls := message.calls):
            end = at
            while end < len(messages) and messages[end].role != "assistant":
                end += 1
            done += _answered(calls, messages[at:end], lost)
            at = end
    return tuple(done)


def _answered(calls: Sequence[ToolCall], later: Sequence[Message], lost: str) -> list[Message]:
    """Return what follows calls: a result of each, then the rest. Results that name no call belong to those without one, by order.

    Args:
        calls: of a turn.
        later: what follows it, up to the next turn of the assistant.
        lost: what a result says that is missing; empty leaves out those behind the last that is there.
    """
    if list(map(_id, later)) == [each.id for each in calls]:
        return [*later]
    results = [each for each in later if _result(each) is not None]
    own = list[Message | None]()
    for call in calls:
        found = next((each for each in results if _id(each) == call.id), None)
        own.append(found)
        results = [each for each in results if each is not found]
    rest = [each for each in later if _result(each) is None]
    for at, call in enumerate(calls):
        if own[at] is None and results:
            own[at] = _of_call(results.pop(0), call)
    known = max((at for at, each in enumerate(own) if each is not None), default=-1)
    last = len(calls) if lost else known + 1
    answers = zip(calls[:last], own[:last], strict=True)
    return [*(each or _missing(call, lost) for call, each in answers), *results, *rest]


def _missing(call: ToolCall, lost: str) -> Message:
    return Message("tool", (ToolResult(call.id, lost or _UNKNOWN, is_error=True),))


def _result(message: Message) -> ToolResult | None:
    for each in message.parts if message.role == "tool" else ():
        if isinstance(each, ToolResult):
            return each
    return None


def _id(message: Message) -> str | None:
    result = _result(message)
    return None if result is None else result.call_id


def _of_call(message: Message, call: ToolCall) -> Message:
    parts = (
        msgspec.structs.replace(each, call_id=call.id) if isinstance(each, ToolResult) else each
        for each in message.parts
    )
    return replace(message, parts=tuple(parts))


def _with_objects(message: Message) -> Message:
    parts = tuple(map(_with_object, message.parts))
    return message if parts == message.parts else replace(message, parts=parts)


def _with_object(part: Part) -> Part:
    """Return a call with arguments that are an object: none where there are none, and what cannot be read under a key."""
    if not isinstance(part, ToolCall) or arguments_of(part.arguments) is not None:
        return part
    nothing = part.arguments.strip() in {"", "null"}
    arguments = "{}" if nothing else json.dumps({UNREADABLE: part.arguments}, ensure_ascii=False)
    return ToolCall(part.id, part.name, arguments)


def arguments_of(text: str) -> dict[str, Any] | None:
    """Return arguments that are a JSON object; None where they are none."""
    value: Any = None
    with suppress(ValueError, RecursionError):
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError):  # NaN, or a break in the text
            value = json.loads(text)
    return value if isinstance(value, dict) else None
