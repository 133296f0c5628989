"""Schemas that contain themselves: every text is valid, and what can never end is refused or left out."""

import json
from itertools import product
from typing import Any

import pytest

from localspec.errors import UsageError
from localspec.grammar import require_sound
from localspec.options import ReplyOptions
from tests.grammar.answers import takes_value, texts
from tests.grammar.judge import Judge


def node(*, required: list[str], **properties: Any) -> dict[str, Any]:
    own = {"type": "object", "properties": properties, "required": required}
    return {"$ref": "#/$defs/node", "$defs": {"node": own}}


CHILD = {"$ref": "#/$defs/node"}
NESTING: dict[str, dict[str, Any]] = {
    "list": node(required=["value"], value={"type": "integer"}, next=CHILD),
    "nullable": node(required=["next"], next={"anyOf": [CHILD, {"type": "null"}]}),
    "with a default": node(required=[], next={"allOf": [CHILD], "default": None}),
    "tuple": node(required=[], pair={"type": "array", "prefixItems": [{"type": "null"}, CHILD]}),
    "others": node(required=[], map={"type": "object", "additionalProperties": CHILD}),
    "anything": {"type": "object", "properties": {"a": {}, "b": True}, "required": ["a"]},
    "root": {"properties": {"next": {"$ref": "#"}}},
    "one of itself": {"oneOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]},
    "no value of any beside one of itself": {
        "type": "object",
        "properties": {"value": {"type": "integer"}, "list": {"$ref": "#/$defs/list"}},
        "$defs": {"list": {"type": "array", "items": {
            "type": "array", "oneOf": [{"type": "null"}, {"$ref": "#/$defs/list"}], "anyOf": [{"type": "integer"}, {"const": "x"}],
        }}},
    },
    "mutual": {
        "$ref": "#/$defs/expression",
        "$defs": {
            "expression": {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/sum"}]},
            "sum": {"type": "object", "required": ["terms"], "properties": {
                "terms": {"type": "array", "items": {"$ref": "#/$defs/expression"}, "minItems": 1, "maxItems": 3},
            }},
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("name", NESTING)
def test_every_text_is_valid(name: str) -> None:
    judge = Judge(NESTING[name])
    found = texts(40, json_schema=NESTING[name])
    assert len(set(found)) > 3
    for text in found:
        assert judge.valid(json.loads(text)), text


def test_what_has_to_contain_itself_is_refused() -> None:
    loop = {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}
    for schema in (
        {"$ref": "#"}, {"$ref": "#/$defs/a", "$defs": loop}, node(required=["next"], next=CHILD),
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    ):  # fmt: skip
        with pytest.raises(UsageError, match="can never end"):
            require_sound(ReplyOptions(json_schema=schema))


def test_what_can_contain_nothing_but_itself_is_written_without_it() -> None:
    schema = node(required=[], kind={"const": "leaf"}, inner={"$ref": "#/$defs/loop"})
    schema["$defs"]["loop"] = {"$ref": "#/$defs/loop"}
    found = {json.dumps(json.loads(text)) for text in texts(30, json_schema=schema)}
    assert found == {"{}", '{"kind": "leaf"}'}


def test_a_tree_has_all_its_shapes() -> None:
    leaf = {"type": "null"}
    pair = {"type": "array", "prefixItems": [CHILD, CHILD], "items": False, "minItems": 2}
    schema = {**CHILD, "$defs": {"node": {"anyOf": [leaf, pair]}}}
    shapes: list[Any] = [None]
    for _ in range(2):
        shapes = [None, *(list(both) for both in product(shapes, repeat=2))]
    assert all(takes_value(shape, schema) for shape in shapes)
