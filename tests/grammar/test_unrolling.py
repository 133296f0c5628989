"""What contains itself nests so deep and no deeper, every text stays valid, and none that is shallower is lost."""

import json
from itertools import product
from typing import Any

import jsonschema
import pytest

from localspec.errors import UsageError
from localspec.structured.answer_grammar import schema_grammar
from localspec.structured.gbnf import read_gbnf
from localspec.structured.soundness import require_sound
from localspec.structured.unrolling import LEVELS, unrolled
from tests.structured.grammars import GRAMMARS
from tests.structured.random_text import all_texts, random_texts
from tests.structured.schemas import ASKED


def test_a_chain_is_as_long_as_there_are_levels() -> None:
    gbnf = 'root ::= "(" root? ")"\n'
    for levels in (1, 2, 5):
        assert all_texts(unrolled(gbnf, levels)) == {
            "(" * n + ")" * n for n in range(1, levels + 1)
        }


def test_a_tree_has_all_its_shapes_down_to_the_last_level() -> None:
    wanted = {"x"}
    for _ in range(3):
        wanted = {"x"} | {f"({a}{b})" for a, b in product(wanted, repeat=2)}
    gbnf = 'root ::= node\nnode ::= "x" | "(" node node ")"\n'
    assert all_texts(unrolled(gbnf, 4)) == wanted


def test_rules_that_contain_each_other_count_once_a_way_round() -> None:
    gbnf = 'root ::= "a" other\nother ::= "b" root | "c"\n'
    assert all_texts(unrolled(gbnf, 3)) == {"ac", "abac", "ababac"}


def test_what_does_not_end_is_left_out_where_it_need_not_be() -> None:
    gbnf = 'root ::= "a" endless? ("b" | endless)\nendless ::= "c" endless\n'
    assert all_texts(unrolled(gbnf)) == {"ab"}


@pytest.mark.parametrize("gbnf", [GRAMMARS[2], GRAMMARS[4], GRAMMARS[5]])
def test_a_grammar_that_does_not_contain_itself_is_taken_as_it_is(gbnf: str) -> None:
    assert unrolled(gbnf) is gbnf


@pytest.mark.parametrize("gbnf", GRAMMARS)
def test_what_comes_of_a_sound_grammar_is_sound(gbnf: str) -> None:
    assert unrolled(require_sound(unrolled(gbnf))) == unrolled(gbnf)


def test_a_large_grammar_has_fewer_levels() -> None:
    rules = [f'r{i} ::= "a{i}" r{i + 1} | "b"' for i in range(400)]
    gbnf = "\n".join(["root ::= r0", *rules, "r400 ::= r0"])
    assert 800 < len(read_gbnf(unrolled(gbnf))) <= 1_500


def node(*, required: list[str], **properties: Any) -> dict[str, Any]:
    found = {"type": "object", "properties": properties, "required": required}
    return {"$ref": "#/$defs/node", "$defs": {"node": found}}


CHILD = {"$ref": "#/$defs/node"}
NESTING: dict[str, dict[str, Any]] = {
    "list": node(required=["value"], value={"type": "integer"}, next=CHILD),
    "nullable": node(required=["next"], next={"anyOf": [CHILD, {"type": "null"}]}),
    "with a default": node(required=[], next={"allOf": [CHILD], "default": None}),
    "and more": node(required=[], n={"type": "boolean"}, next={**CHILD, "required": ["n"]}),
    "tuple": node(required=[], pair={"type": "array", "prefixItems": [{"type": "null"}, CHILD]}),
    "others": node(required=[], map={"type": "object", "additionalProperties": CHILD}),
    "anything": {"type": "object", "properties": {"a": {}, "b": True}, "required": ["a"]},
    "mutual": {
        "$ref": "#/$defs/expression",
        "$defs": {
            "expression": {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/sum"}]},
            "sum": {
                "type": "object",
                "properties": {
                    "terms": {
                        "type": "array",
                        "items": {"$ref": "#/$defs/expression"},
                        "minItems": 1,
                        "maxItems": 3,
                    }
                },
                "required": ["terms"],
            },
        },
    },
    **{each.name: each.schema for each in ASKED},
}


@pytest.mark.parametrize("name", NESTING)
def test_every_text_is_valid(name: str) -> None:
    schema = NESTING[name]
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    gbnf = schema_grammar(json.dumps(schema))
    for text in random_texts(gbnf, 40):
        validator.validate(json.loads(text))


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth, inner), default=0)


@pytest.mark.parametrize("name", ["list", "nullable", "with a default", "and more"])
def test_values_nest_as_deep_as_there_are_levels_and_no_deeper(name: str) -> None:
    gbnf = schema_grammar(json.dumps(NESTING[name]))
    depths = {depth(json.loads(text)) for text in random_texts(gbnf, 2_000)}
    assert max(depths) in {LEVELS, LEVELS + 1}


def test_any_json_nests_no_deeper() -> None:
    gbnf = schema_grammar("{}")
    depths = {depth(json.loads(text)) for text in random_texts(gbnf, 500)}
    assert 2 < max(depths) <= LEVELS + 1


def test_what_has_to_contain_itself_is_refused() -> None:
    with pytest.raises(UsageError, match="can never end"):
        schema_grammar(json.dumps(node(required=["next"], next=CHILD)))


def test_what_can_contain_nothing_but_itself_is_written_without_it() -> None:
    schema = node(required=[], kind={"const": "leaf"}, inner={**CHILD, "required": ["inner"]})
    gbnf = schema_grammar(json.dumps(schema))
    found = {json.dumps(json.loads(text)) for text in random_texts(gbnf, 50)}
    assert found == {"{}", '{"kind": "leaf"}'}
