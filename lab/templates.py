"""Conversations of twelve shapes, as programs send them, in each of llama.cpp's chat templates: rendered, adapted or refused.

python -m lab.templates [-v]                       the table of docs/measurements/templates.md
python -m lab.templates --show TEMPLATE SHAPE      one prompt
"""

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.calls import Tool
from localspec.chat.template import ChatTemplate
from localspec.chat.template_values import THOUGHTS
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
    """Return a user's message."""
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, Any]:
    """Return a system prompt."""
    return {"role": "system", "content": text}


def result(of: str, text: str) -> dict[str, Any]:
    """Return the result of a call."""
    return {"role": "tool", "tool_call_id": of, "content": text}


def calling(*calls: tuple[str, str, str], **more: Any) -> dict[str, Any]:
    """Return a turn that calls: an id, a name and arguments each."""
    made = [
        {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, name, arguments in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": made, **more}


_ASK, _SYSTEM = user("How is it in Rome and in Oslo?"), system("Be brief.")
_WARM, _WIND = result("call_1", "31 degrees"), result("call_2", "12 knots")
_BOTH = calling(("call_1", "get_temperature", _ROME), ("call_2", "get_wind", _OSLO))
_ONE = calling(("call_1", "get_temperature", _ROME))
_TWO_WORDS = (
    ("How is it", "get_temperature", "Rome", "get_wind", "Oslo"),
    ("Rome", "31 degrees"),
    ("Oslo", "12 knots"),
    ("31 degrees", "12 knots"),
)
_SAID = ("Be brief.",)
_ONE_WORDS = ("How is it", "get_temperature", "Rome", "31 degrees")


@dataclass(frozen=True, slots=True)
class Shape:
    """A conversation.

    Args:
        name: of the shape.
        messages: as a client sends them.
        words: what has to be in the prompt; each group of them in its order, behind the question.
        tools: whether functions are offered.
        named: whether the template is the one for tools, beside another.
        optional: words that a template leaves out where its model knows no thoughts.
    """

    name: str
    messages: Sequence[dict[str, Any]]
    words: Sequence[Sequence[str]]
    tools: bool = True
    named: bool = False
    optional: Sequence[str] = ()


SHAPES = [
    Shape("results swapped", [_ASK, _BOTH, _WIND, _WARM], _TWO_WORDS),
    Shape("two calls", [_ASK, _BOTH, _WARM, _WIND], _TWO_WORDS),
    Shape(
        "cut arguments",
        [_SYSTEM, _ASK, calling(("call_1", "get_temperature", '{"city": "Ro')), result("call_1", "no JSON")],
        [_SAID, ("How is it", "get_temperature", "Ro", "no JSON")],
    ),
    Shape(
        "empty arguments",
        [_SYSTEM, _ASK, calling(("call_1", "get_time", "")), result("call_1", "noon")],
        [_SAID, ("How is it", "get_time", "noon")],
    ),
    Shape(
        "words and a call",
        [_SYSTEM, _ASK, {**_ONE, "content": "Let me look."}, _WARM],
        [_SAID, ("How is it", "Let me look.", "get_temperature", "Rome", "31 degrees")],
    ),
    Shape("user after tool", [_SYSTEM, _ASK, _ONE, _WARM, user("In Celsius?")], [_SAID, (*_ONE_WORDS, "In Celsius?")]),
    Shape("two users", [_SYSTEM, _ASK, user("Quickly, please.")], [_SAID, ("How is it", "Quickly, please.")]),
    Shape(
        "system in the middle",
        [_SYSTEM, _ASK, {"role": "assistant", "content": "Warm."}, system("Mind the wind."), user("And Oslo?")],
        [_SAID, ("How is it", "Warm.", "Mind the wind.", "And Oslo?")],
    ),
    Shape(
        "thoughts in history",
        [_SYSTEM, _ASK, {**_ONE, "reasoning": "I need the weather."}, _WARM],
        [_SAID, ("How is it", "I need the weather.", "get_temperature"), _ONE_WORDS],
        optional=("I need the weather.",),
    ),
    Shape("calls without tools", [_SYSTEM, _ASK, _ONE, _WARM], [_SAID, _ONE_WORDS], tools=False),
    Shape("a named template", [_SYSTEM, _ASK, _ONE, _WARM], [_SAID, _ONE_WORDS], named=True),
    Shape(
        "the next question",
        [_SYSTEM, _ASK, _ONE, _WARM, {"role": "assistant", "content": "It is hot."}, user("Thank you.")],
        [_SAID, (*_ONE_WORDS, "It is hot.", "Thank you.")],
    ),
]  # fmt: skip
_PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
"""Stands beside a template that is named."""
NAME = "this model"


@dataclass(frozen=True, slots=True)
class Cell:
    """What becomes of a conversation in a template.

    Args:
        text: the prompt; empty where it is refused.
        rules: what made it fit.
        lost: words that are not in the prompt, or not in their order.
        refusal: why there is none.
    """

    text: str = ""
    rules: Sequence[str] = ()
    lost: Sequence[str] = ()
    refusal: str = ""

    @property
    def outcome(self) -> str:
        """In a word."""
        if self.refusal:
            return "refused"
        if self.lost:
            return "lost"
        return "adapted" if self.rules else "rendered"


def cell(source: str, shape: Shape) -> Cell:
    """Return what becomes of a conversation."""
    tools = TOOLS if shape.tools and "tools" in source else []
    named = source if shape.named and tools else None
    template = ChatTemplate(_PLAIN if named else source, BOS, EOS, model=NAME, for_tools=named)
    said = [from_json(each) for each in shape.messages]
    try:
        text, rules = template.offering(tools=bool(tools)).fit(said, tools=tools)
    except TemplateError as error:
        return Cell(refusal=str(error))
    return Cell(text, rules, missing(text, shape, source))


def missing(text: str, shape: Shape, source: str) -> list[str]:
    """Return the words of a shape that are not in a prompt, or not in their order."""
    lost = list[str]()
    for words in shape.words:
        at = 0 if words == _SAID else text.rfind("How is it in Rome")
        for each in words:
            found = text.find(each, max(0, at))
            if found >= 0:
                at = found + len(each)
            elif each not in shape.optional or knows_thoughts(source):
                lost.append(each)
    return lost


def knows_thoughts(source: str) -> bool:
    """Return whether a template writes thoughts of a message that is not the last; Apriel 1.6 does not."""
    if "message.get('reasoning_content') and loop.last" in source:
        return False
    return bool(THOUGHTS.search(source)) or "reasoning_content" in source


def table(sources: Mapping[str, str]) -> dict[str, dict[str, Cell]]:
    """Return all cells, by template and shape."""
    return {
        name: {shape.name: cell(source, shape) for shape in SHAPES}
        for name, source in sources.items()
    }


def sources() -> dict[str, str]:
    """Return llama.cpp's templates by name."""
    return {name: path.read_text() for name, path in real_templates().items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-v", action="store_true", help="a line for each cell")
    parser.add_argument("--show", nargs=2, metavar=("TEMPLATE", "SHAPE"))
    parser.add_argument("--json", metavar="FILE", help="write conversations and prompts there")
    parser.add_argument(
        "--theirs", metavar="FILE", help="count the cells in which llama.cpp's prompt is the same"
    )
    given = parser.parse_args()
    if given.show:
        name, shape = given.show
        print(cell(sources()[name], next(each for each in SHAPES if each.name == shape)))
        return
    cells = table(sources())
    for shape in SHAPES:
        row = [each[shape.name] for each in cells.values()]
        outcomes = Counter(each.outcome for each in row)
        rules = Counter(rule for each in row for rule in each.rules)
        print(f"{shape.name:22} {dict(outcomes)} {dict(rules)}")
    print(
        f"{'all':22} {dict(Counter(each.outcome for row in cells.values() for each in row.values()))}"
    )
    if given.v:
        for name, by_shape in cells.items():
            for of, each in by_shape.items():
                print(
                    f"{name} / {of}: {each.outcome} {', '.join([*each.rules, *each.lost])}{each.refusal}"
                )
    if given.theirs:
        theirs = json.loads(Path(given.theirs).read_text())
        for shape in SHAPES:
            pairs = [(cells[name][shape.name].text, theirs[name][shape.name]) for name in cells]
            same = Counter(
                "refused" if "error" in b else "same" if a == b["prompt"] else "differs"
                for a, b in pairs
            )
            print(f"{shape.name:22} {dict(same)}")
    if given.json:
        prompts = {name: {of: each.text for of, each in row.items()} for name, row in cells.items()}
        tools = [each.to_json() for each in TOOLS]
        shapes = {
            each.name: {"messages": each.messages, "tools": tools if each.tools else []}
            for each in SHAPES
        }
        Path(given.json).write_text(json.dumps({"shapes": shapes, "prompts": prompts}))


if __name__ == "__main__":
    main()
