"""Tools as they are: each pattern is kept, or its argument alone is loosened; no tool has an effect on another."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from localspec.calls import CallFormat, Tool
from localspec.calls.policy import CallPolicy, OfferedCalls
from localspec.errors import UsageError
from localspec.grammar import Grammars
from localspec.grammar.automaton import GrammarAutomaton
from localspec.grammar.loosening import kept_calls
from tests.chat.test_calls import FORMS as CALL_FORMS
from tests.chat.test_calls import HERMES_FORM, XML_FORM
from tests.grammar.answers import ByteVocabulary, passes
from tests.grammar.tool_patterns import FORMS, PUBLIC

GRAMMARS = Grammars(ByteVocabulary())
PATTERNS = (*FORMS, *PUBLIC)


def calls_of(form: CallFormat, *tools: Tool) -> GrammarAutomaton:
    offer = CallPolicy().offer([each.name for each in tools], [])
    return GRAMMARS.of_calls(OfferedCalls(form, tools, offer))


def tool(name: str, properties: dict[str, Any], *, strict: bool = False, **more: Any) -> Tool:
    schema = {"type": "object", "properties": properties, "required": [*properties], **more}
    return Tool(name, schema, strict=strict)


def call(form: CallFormat, name: str, **arguments: Any) -> str:
    if form is HERMES_FORM:
        text = json.dumps(arguments, ensure_ascii=False)
        return f'<tool_call>\n{{"name": "{name}", "arguments": {text}}}\n</tool_call>'
    pairs = "".join(
        f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>\n"
        for key, value in arguments.items()
    )
    return f"<tool_call>\n<function={name}>\n{pairs}</function>\n</tool_call>"


def test_there_are_enough_and_they_mean_what_they_say() -> None:
    assert (len(FORMS), len(PUBLIC), len({each[0] for each in PATTERNS})) == (43, 30, 73)
    for pattern, right, wrong in PATTERNS:
        if wrong is not None and r"\p{" not in pattern:
            known = re.compile(re.sub(r"\(\?<(?=[a-z])", "(?P<", pattern))
            assert known.search(right), pattern
            assert not known.search(wrong), pattern


@pytest.mark.parametrize("form", [XML_FORM, HERMES_FORM], ids=["tagged", "json"])
@pytest.mark.parametrize(("pattern", "right", "wrong"), PATTERNS, ids=[each[0] for each in PATTERNS])  # fmt: skip
def test_a_pattern_is_kept_or_its_argument_alone_is_loosened(
    pattern: str, right: str, wrong: str | None, form: CallFormat
) -> None:
    both = {"a": {"type": "string", "pattern": pattern}, "b": {"enum": [1, 2]}}
    bad = tool("bad", both)
    calls = calls_of(form, bad, tool("good", {"c": {"enum": [3]}}))
    assert passes(calls, call(form, "bad", a=right, b=1))
    assert passes(calls, call(form, "good", c=3))
    assert not passes(calls, call(form, "bad", a=right, b=3)), "the other argument is bound"
    assert not passes(calls, call(form, "good", c=4))
    if wrong is not None:
        assert not passes(calls, call(form, "bad", a=wrong, b=1))
        return
    assert passes(calls, call(form, "bad", a="whatever else", b=1))
    with pytest.raises(UsageError, match="tool bad: "):
        calls_of(form, tool("bad", both, strict=True))


@pytest.mark.parametrize("form", CALL_FORMS)
def test_all_of_them_are_tools_of_one_request(form: CallFormat) -> None:
    tools = [tool(f"f{at}", {"a": {"type": "string", "pattern": each[0]}}) for at, each in enumerate(PATTERNS)]  # fmt: skip
    calls = calls_of(form, *tools)
    if form in {XML_FORM, HERMES_FORM}:
        for at, (_, right, wrong) in enumerate(PATTERNS):
            assert passes(calls, call(form, f"f{at}", a=right))
            assert wrong is None or not passes(calls, call(form, f"f{at}", a=wrong))


def test_lengths_hold_beside_a_pattern_in_a_text_without_quotes() -> None:
    calls = calls_of(XML_FORM, tool("f", {"a": {"type": "string", "pattern": "^a+$", "minLength": 2, "maxLength": 3}}))  # fmt: skip
    taken = [passes(calls, call(XML_FORM, "f", a="a" * length)) for length in range(1, 5)]
    assert taken == [False, True, True, False]


@pytest.mark.parametrize("form", CALL_FORMS)
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "string"}}, "required": None}, {"properties": None, "required": None}, {"properties": {}, "$defs": None},
        {"type": "object", "properties": {"a": {"type": ["array", "null"], "items": None, "enum": None}}},
        {"properties": {"a": {"type": "string", "required": True, "enum": None}}}, {"properties": {"a": None, "b": True, "c": 7}},
    ],
)  # fmt: skip
def test_null_where_a_list_or_an_object_may_stand_is_nothing(
    form: CallFormat, schema: dict[str, Any]
) -> None:
    calls_of(form, Tool("f", schema), tool("good", {"c": {"enum": [3]}}))


@pytest.mark.parametrize("form", [XML_FORM, HERMES_FORM], ids=["tagged", "json"])
@pytest.mark.parametrize(
    ("argument", "right"),
    [
        ({"type": "integer", "multipleOf": 1 << 60}, 5), ({"type": "array", "items": {"type": "string", "pattern": "(?=a)"}, "uniqueItems": True}, ["x"]),
        ({"type": "object", "if": {}}, {"x": 1}), ({"type": "boolean", "not": {"const": True}}, True), ({"$ref": "#/nowhere"}, {"x": [1]}), ({"type": "any"}, "x"),
        ({"enum": [1 << 64]}, 3),
    ],
)  # fmt: skip
def test_an_argument_that_cannot_be_kept_may_be_anything_of_its_type(
    form: CallFormat, argument: dict[str, Any], right: Any
) -> None:
    calls = calls_of(form, tool("f", {"a": argument, "b": {"enum": ["x"]}}))
    value = json.dumps(right) if form is XML_FORM else right
    assert passes(calls, call(form, "f", a=value, b='"x"' if form is XML_FORM else "x"))
    if isinstance(argument.get("type"), str) and argument["type"] != "any":
        assert not passes(calls, call(form, "f", a="null" if form is XML_FORM else None, b="x"))


def test_what_cannot_be_compiled_together_is_loosened_from_the_largest_on() -> None:
    """A grammar of two bounded arguments is too large here: it has a rule that is not there."""
    tools = [tool(f"f{at}", {"a": {"enum": ["x" * (50 - at)]}}) for at in range(6)]

    def grammar(some: Sequence[Tool]) -> str:
        bound = [each for each in some if "enum" in each.parameters["properties"]["a"]]
        names = json.dumps(f"{[each.name for each in bound]}{bound}")
        return f"start: {names if len(bound) < 3 else 'too_large'}"

    assert kept_calls(grammar, tools).startswith("start: \"['f4', 'f5']")
    strict = [replace(each, strict=True) for each in tools]
    with pytest.raises(UsageError, match="the calls of these tools cannot be enforced"):
        kept_calls(grammar, strict)
    assert kept_calls(grammar, [*strict[:2], *tools[2:]]).startswith("start: \"['f0', 'f1']")
