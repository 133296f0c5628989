"""What contains itself nests so deep and no deeper, and every text stays valid."""

import json
from itertools import product
from typing import Any

import pytest

from localspec.errors import UsageError
from localspec.grammar import require_sound
from localspec.grammar.document import Document
from localspec.grammar.nesting import LEVELS, Nesting
from localspec.options import ReplyOptions
from tests.grammar.answers import takes_value, texts
from tests.grammar.judge import Judge
from tests.grammar.schemas import ASKED


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
    "root": {"properties": {"next": {"$ref": "#"}}},
    "one of itself": {"oneOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]},
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
}


@pytest.mark.parametrize("name", NESTING)
def test_every_text_is_valid(name: str) -> None:
    judge = Judge(NESTING[name])
    found = texts(40, json_schema=NESTING[name])
    assert len(set(found)) > 3
    for text in found:
        assert judge.valid(json.loads(text)), text


def chain(depth: int, name: str, **beside: Any) -> dict[str, Any]:
    value: dict[str, Any] = dict(beside)
    for _ in range(depth - 1):
        value = {**beside, name: value}
    return value


@pytest.mark.parametrize("depth", range(1, LEVELS + 3))
def test_values_nest_as_deep_as_there_are_levels_and_no_deeper(depth: int) -> None:
    # The root refers to the first one, which is on the first level itself.
    for name, beside in (("list", {"value": 1}), ("with a default", {}), ("and more", {"n": True})):
        assert takes_value(chain(depth, "next", **beside), NESTING[name]) == (depth <= LEVELS)


@pytest.mark.parametrize("depth", range(1, LEVELS + 3))
def test_any_json_nests_no_deeper(depth: int) -> None:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    assert takes_value(value, {}) == (depth < LEVELS)


def test_a_tree_has_all_its_shapes_down_to_the_last_level() -> None:
    leaf = {"type": "null"}
    pair = {"type": "array", "prefixItems": [CHILD, CHILD], "items": False, "minItems": 2}
    schema = {**CHILD, "$defs": {"node": {"anyOf": [leaf, pair]}}}
    shapes: list[Any] = [None]
    for _ in range(2):
        shapes = [None, *(list(both) for both in product(shapes, repeat=2))]
    assert all(takes_value(shape, schema) for shape in shapes)


def test_where_a_level_is_the_last_a_part_keeps_what_it_cannot_do_without() -> None:
    schema = node(required=["kind"], kind={"const": "leaf"}, inner={"$ref": "#/$defs/wrap"})
    schema["$defs"]["wrap"] = {"type": "object", "properties": {"node": CHILD}, "required": ["node"]}  # fmt: skip
    value: dict[str, Any] = {"kind": "leaf"}
    for _ in range(LEVELS - 1):
        value = {"kind": "leaf", "inner": {"node": value}}
    assert takes_value(value, schema)
    assert not takes_value({"kind": "leaf", "inner": {"node": value}}, schema)


def test_what_can_contain_nothing_but_itself_is_written_without_it() -> None:
    schema = node(required=[], kind={"const": "leaf"}, inner={**CHILD, "required": ["inner"]})
    found = {json.dumps(json.loads(text)) for text in texts(30, json_schema=schema)}
    assert found == {"{}", '{"kind": "leaf"}'}


def test_what_has_to_contain_itself_is_refused() -> None:
    with pytest.raises(UsageError, match="can never end"):
        require_sound(ReplyOptions(json_schema=node(required=["next"], next=CHILD)))


@pytest.mark.parametrize("asked", ASKED, ids=[each.name for each in ASKED])
def test_only_what_contains_itself_is_written_for_levels(asked: Any) -> None:
    text = json.dumps(asked.schema)
    nesting = Nesting(Document(asked.schema))
    back = [
        part for part in ("", "/$defs/node", "/$defs/comment") if nesting.level(part, 1, part) == 2
    ]
    assert bool(back) == (asked.name in {"tree", "comments"} and "$ref" in text)


def test_a_large_schema_has_fewer_levels() -> None:
    many = {f"p{i}": {"$ref": "#"} for i in range(2_000)}
    nesting = Nesting(Document({"properties": many}))
    assert [nesting.level("", level, "") for level in (1, 2, 3, 4)] == [2, 3, None, None]
