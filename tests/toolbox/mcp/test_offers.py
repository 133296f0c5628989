"""What a server says it can do, checked and named."""

from typing import TYPE_CHECKING, Any

import pytest

from localspec.toolbox.mcp.offers import MOST_TOOLS, Names, offers_of
from tests.support.told import KINDS, told, told_compiler

if TYPE_CHECKING:
    from mcp_types import Tool

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


def listed(name: str, description: str = "", schema: Any = SCHEMA) -> "Tool":
    from mcp_types import Tool  # noqa: PLC0415 - a second for every process that collects

    return Tool.model_construct(
        name=name, description=description, input_schema=schema, annotations=None
    )


def of(*tools: "Tool", names: Names | None = None, wanted: tuple[str, ...] | None = None) -> Any:
    return offers_of("s", tools, Names() if names is None else names, wanted)


def test_names_suit_any_interface_and_no_two_are_the_same() -> None:
    offers, notes = of(listed("get time!", "Tell the time."))
    (offer,) = offers.values()
    assert list(offers) == ["s__get_time"] == [offer.tool.name]
    assert (offer.own_name, offer.tool.description) == ("get time!", "Tell the time.")
    assert not notes
    names = [*(f"{'x' * 100}{n}" for n in range(12)), "a b", "a/b", "日本"]
    offers, _ = of(*map(listed, names))
    assert len(offers) == 15
    assert [*of(listed(" echo "), *[listed("echo")] * 2)[0]] == ["s__echo", "s__echo_2"]
    assert all(len(each) <= 64 and each.isascii() for each in offers)


def test_a_tool_that_changes_gets_another_name_and_the_old_one_again() -> None:
    names, wanted = Names(), list[str]()
    for text, schema in (("Say it.", SCHEMA), ("Send it.", SCHEMA), ("Say it.", {"type": "object"}), ("Say it.", SCHEMA)):  # fmt: skip
        wanted += of(listed("echo", text, schema), names=names)[0]
    assert wanted == ["s__echo", "s__echo_2", "s__echo_3", "s__echo"]


@pytest.mark.parametrize(
    "schema",
    [
        None, "a text", [], {"type": "array"}, {"type": ["object"]}, {"type": "object", "properties": 7},
        {"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"type": "object", "description": "x" * 20_000},
        {"type": "object", "properties": {"a": {"default": float("nan")}}, "enum": []}, {"type": "object", "properties": None, "enum": []},
    ],
)  # fmt: skip
def test_a_schema_that_lies_costs_its_tool_alone(schema: Any) -> None:
    offers, notes = of(listed("lie\x1b[2J", "", schema), listed("echo"))
    assert list(offers) == ["s__echo"]
    assert len(notes) == 1
    assert notes[0].isprintable()


def test_what_is_offered_is_bounded_and_printable() -> None:
    offers, _ = of(listed("echo", "\x1b]0;x\x07" + "long " * 1_000), listed("now", "", {}))
    description = offers["s__echo"].tool.description
    assert description.startswith("?]0;x?long")
    assert len(description) < 1_100
    assert offers["s__now"].tool.parameters == {"type": "object"}
    offers, notes = of(*(listed(f"t{n}") for n in range(MOST_TOOLS + 1)))
    assert len(offers) == MOST_TOOLS
    assert f"{MOST_TOOLS + 1} tools" in notes[0]
    offers, notes = of(listed("read"), listed("write"), wanted=("read", "gone"))
    assert list(offers) == ["s__read"]
    assert "'gone'" in notes[0]


@pytest.mark.parametrize(
    "argument", [{"$ref": "https://evil.example/schema"}, {"type": "string", "pattern": "(((("}, {"type": "string", "pattern": "^(?!a)"}, {"not": {"type": "null"}}]
)  # fmt: skip
def test_a_tool_whose_argument_cannot_be_kept_is_offered(argument: Any) -> None:
    schema = {"type": "object", "properties": {"a": argument}}
    offers, notes = of(listed("send", "", schema), listed("echo"))
    assert (list(offers), notes) == (["s__send", "s__echo"], [])
    assert offers["s__send"].tool.parameters == schema
    assert not offers["s__send"].tool.strict


@pytest.mark.parametrize("what", KINDS)
def test_a_schema_that_ends_its_compiler_costs_its_tool_alone(what: str) -> None:
    with told_compiler():
        offers, notes = of(listed("lie", "", {"type": "object", "properties": {"a": told(what)}}), listed("echo"))  # fmt: skip
    assert list(offers) == ["s__echo"]
    assert len(notes) == 1
    assert "its tool 'lie' is left out: " in notes[0]
