"""What a server says it can do, checked and named."""

from typing import Any

import pytest
from mcp_types import Tool

from localspec.toolbox.mcp.offers import MOST_TOOLS, Names, offers_of

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


def listed(name: str, description: str, schema: Any) -> Tool:
    return Tool.model_construct(
        name=name, description=description, input_schema=schema, annotations=None
    )


def of(*tools: Tool, names: Names | None = None, wanted: tuple[str, ...] | None = None) -> Any:
    return offers_of("s", tools, Names() if names is None else names, wanted)


def test_a_tool_is_offered_by_a_name_that_any_interface_takes() -> None:
    offers, notes = of(listed("get time!", "Tell the time.", SCHEMA))
    (offer,) = offers.values()
    assert list(offers) == ["s__get_time"] == [offer.tool.name]
    assert (offer.own_name, offer.tool.description) == ("get time!", "Tell the time.")
    assert not notes


def test_names_are_short_and_no_two_are_the_same() -> None:
    tools = [listed(f"{'x' * 100}{n}", "", SCHEMA) for n in range(12)]
    offers, _ = of(
        *tools, listed("a b", "", SCHEMA), listed("a/b", "", SCHEMA), listed("日本", "", SCHEMA)
    )
    assert len(offers) == 15
    assert all(len(each) <= 64 and each.isascii() for each in offers)


def test_a_tool_that_says_something_else_gets_another_name_and_the_old_one_again() -> None:
    names = Names()
    first, _ = of(listed("echo", "Say it.", SCHEMA), names=names)
    told, _ = of(listed("echo", "Say it, and send it away.", SCHEMA), names=names)
    asked, _ = of(listed("echo", "Say it.", {"type": "object"}), names=names)
    again, _ = of(listed("echo", "Say it.", SCHEMA), names=names)
    assert [*first, *told, *asked, *again] == ["s__echo", "s__echo_2", "s__echo_3", "s__echo"]


@pytest.mark.parametrize(
    "schema",
    [
        None,
        "a text",
        [],
        {"type": "array"},
        {"type": ["object"]},
        {"type": "object", "properties": 7},
        {"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"type": "object", "properties": {"a": {"$ref": "https://evil.example/schema"}}},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "(((("}}},
        {"type": "object", "description": "x" * 20_000},
        {"type": "object", "properties": {"a": {"default": float("nan")}}, "enum": []},
    ],
)
def test_a_schema_that_lies_costs_its_tool_alone(schema: Any) -> None:
    offers, notes = of(listed("lie\x1b[2J", "", schema), listed("echo", "", SCHEMA))
    assert list(offers) == ["s__echo"]
    assert len(notes) == 1
    assert notes[0].isprintable()


def test_what_a_server_says_is_bounded_and_printable() -> None:
    offers, _ = of(listed("echo", "\x1b]0;x\x07" + "long " * 1_000, SCHEMA))
    description = offers["s__echo"].tool.description
    assert description.startswith("?]0;x?long")
    assert len(description) < 1_100


def test_a_schema_without_a_type_is_one_of_an_object() -> None:
    offers, _ = of(listed("now", "", {}))
    assert offers["s__now"].tool.parameters == {"type": "object"}


def test_so_many_tools_and_no_more() -> None:
    offers, notes = of(*(listed(f"t{n}", "", SCHEMA) for n in range(MOST_TOOLS + 1)))
    assert len(offers) == MOST_TOOLS
    assert f"{MOST_TOOLS + 1} tools" in notes[0]


def test_only_tools_that_are_wanted_are_offered() -> None:
    tools = listed("read", "", SCHEMA), listed("write", "", SCHEMA)
    offers, notes = of(*tools, wanted=("read", "gone"))
    assert list(offers) == ["s__read"]
    assert "'gone'" in notes[0]
