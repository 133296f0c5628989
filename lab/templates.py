"""Conversations of twelve shapes, as programs send them, in each of llama.cpp's chat templates: rendered, adapted or refused.

python -m lab.templates [-v]                       the table of docs/measurements/templates.md
python -m lab.templates --show TEMPLATE SHAPE      one prompt
"""

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localspec.calls import Tool
from localspec.chat.template import ChatTemplate
from localspec.errors import TemplateError
from localspec.messages import from_json
from tests.vocabularies import real_templates

BOS, EOS = "<s>", "</s>"
_CITY = {"city": {"type": "string", "description": "Where."}}
_HERE: dict[str, Any] = {"type": "object", "properties": _CITY, "required": ["city"]}
_NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS = [
    Tool("get_temperature", _HERE, "How warm it is."),
    Tool("get_wind", _HERE, "How windy it is."),
    Tool("get_time", _NOTHING, "How late it is."),
]
_ROME, _OSLO = '{"city": "Rome"}', '{"city": "Oslo"}'


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def result(of: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": of, "content": text}


def calling(*calls: tuple[str, str, str], **more: Any) -> dict[str, Any]:
    made = [
        {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, name, arguments in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": made, **more}


_ASK, _SYSTEM = user("How is it in Rome and in Oslo?"), system("Be brief.")
_WARM, _WIND = result("call_1", "31 degrees"), result("call_2", "12 knots")
_BOTH = calling(("call_1", "get_temperature", _ROME), ("call_2", "get_wind", _OSLO))
_ONE = calling(("call_1", "get_temperature", _ROME))
_TWO_WORDS = ("How is it", "get_temperature", "Rome", "get_wind", "Oslo", "31 degrees", "12 knots")
_ONE_WORDS = ("Be brief.", "How is it", "get_temperature", "Rome", "31 degrees")


@dataclass(frozen=True, slots=True)
class Shape:
    """A conversation.

    Args:
        name: of the shape.
        messages: as a client sends them.
        words: what has to be in the prompt, in order; of those in brackets, their order does not count.
        tools: whether functions are offered.
        named: whether the template is the one for tools, beside another.
        optional: words that a template may leave out by its own rule.
    """

    name: str
    messages: Sequence[dict[str, Any]]
    words: Sequence[str]
    tools: bool = True
    named: bool = False
    optional: Sequence[str] = ()


SHAPES = [
    Shape("results swapped", [_ASK, _BOTH, _WIND, _WARM], _TWO_WORDS),
    Shape("two calls", [_ASK, _BOTH, _WARM, _WIND], _TWO_WORDS),
    Shape(
        "cut arguments",
        [_SYSTEM, _ASK, calling(("call_1", "get_temperature", '{"city": "Ro')), result("call_1", "no JSON")],
        ("Be brief.", "How is it", "get_temperature", "Ro", "no JSON"),
    ),
    Shape(
        "empty arguments",
        [_SYSTEM, _ASK, calling(("call_1", "get_time", "")), result("call_1", "noon")],
        ("Be brief.", "How is it", "get_time", "noon"),
    ),
    Shape(
        "words and a call",
        [_SYSTEM, _ASK, {**_ONE, "content": "Let me look."}, _WARM],
        ("Be brief.", "How is it", "Let me look.", "get_temperature", "Rome", "31 degrees"),
    ),
    Shape("user after tool", [_SYSTEM, _ASK, _ONE, _WARM, user("In Celsius?")], (*_ONE_WORDS, "In Celsius?")),
    Shape("two users", [_SYSTEM, _ASK, user("Quickly, please.")], ("Be brief.", "How is it", "Quickly, please.")),
    Shape(
        "system in the middle",
        [_SYSTEM, _ASK, {"role": "assistant", "content": "Warm."}, system("Mind the wind."), user("And Oslo?")],
        ("Be brief.", "How is it", "Warm.", "Mind the wind.", "And Oslo?"),
    ),
    Shape(
        "thoughts in history",
        [_SYSTEM, _ASK, {**_ONE, "reasoning": "I need the weather."}, _WARM],
        ("Be brief.", "How is it", "I need the weather.", "get_temperature", "Rome", "31 degrees"),
        optional=("I need the weather.",),
    ),
    Shape("calls without tools", [_SYSTEM, _ASK, _ONE, _WARM], _ONE_WORDS, tools=False),
    Shape("a named template", [_SYSTEM, _ASK, _ONE, _WARM], _ONE_WORDS, named=True),
    Shape(
        "the next question",
        [_SYSTEM, _ASK, _ONE, _WARM, {"role": "assistant", "content": "It is hot."}, user("Thank you.")],
        (*_ONE_WORDS, "It is hot.", "Thank you."),
    ),
]  # fmt: skip
