"""`oneOf`: alternatives are written where no text of one is valid under another, and are told apart where they can be."""

from typing import Any

import pytest

from localspec.errors import UsageError
from localspec.grammar import require_sound
from localspec.grammar.disjoint import Disjoint
from localspec.grammar.document import Document
from localspec.grammar.facts import Subschema
from localspec.options import ReplyOptions
from tests.grammar.answers import takes_value
from tests.grammar.judge import Judge


def objects(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


CAT, DOG = (objects(("kind",), kind={"const": kind}, age={}) for kind in ("cat", "dog"))
ANY_OF = {"anyOf": [CAT, {"type": "null"}]}


@pytest.mark.parametrize(
    ("written", "under", "apart"),
    [
        ({"type": "string"}, {"type": "integer"}, True),
        ({"type": "integer"}, {"type": "number"}, False),
        ({"type": "integer", "maximum": 1}, {"type": "number", "minimum": 1.5}, True),
        ({"maximum": 1}, {"minimum": 2}, False),  # of a text, neither says anything
        ({"enum": [1, 2]}, {"enum": [3, True]}, True),
        ({"const": 1}, {"enum": [1.0]}, False),
        ({"const": {"a": 1}}, objects(a={"type": "string"}), True),
        ({"const": {"a": 1}}, objects(("b",)), True),
        (CAT, DOG, True),
        (CAT, CAT, False),
        (CAT, {"type": "object"}, False),
        (objects(("a",), a={}), objects(("b",), b={}), True),  # neither names the other's
        (objects(("a",), a={}), {"required": ["b"]}, True),
        ({"allOf": [objects(("a",), a={}), {"additionalProperties": {}}]}, objects(("b",), b={}), False),
        ({**objects(("a",), a={}), "patternProperties": {"b": {}}}, objects(("b",), b={}), False),
        (objects(("a",), a={}), {"properties": {}, "additionalProperties": False}, True),
        (ANY_OF, {"type": "string"}, True),
        (ANY_OF, {"oneOf": [DOG, {"type": "integer"}]}, True),
        (ANY_OF, {"type": "null"}, False),
        ({"properties": {"x": {}}, "anyOf": [{"properties": {"b": {}}}, {}]}, objects(("b",), b={}), False),
        ({"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}, True),
        ({"allOf": [{"$ref": "#/$defs/cat"}, {"required": ["age"]}]}, {"$ref": "#/$defs/dog"}, True),
        ({"$ref": "#/$defs/loop"}, {"type": "string"}, False),
        (objects(("a",), a=CAT), objects(("a",), a=DOG), True),
        (False, {}, True),
    ],
)  # fmt: skip
def test_yes_is_said_only_where_no_text_is_valid_under_both(
    written: Any, under: Any, apart: bool
) -> None:
    definitions = {"cat": CAT, "dog": DOG, "loop": {"$ref": "#/$defs/loop"}}
    document = Document({"a": written, "b": under, "$defs": definitions})
    parts = ([Subschema(written, "/a")], [Subschema(under, "/b")])
    assert Disjoint(document).never_valid(*parts, closed=True) == apart


@pytest.mark.parametrize(
    ("schema", "taken", "refused"),
    [
        ({"oneOf": [CAT, DOG]}, [{"kind": "cat", "age": 3}, {"kind": "dog"}], [{"kind": "cow"}, {}]),
        # Told apart by what is left out.
        (
            {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            [{"a": 1}, {"b": 1, "c": 2}],
            [{"a": 1, "b": 2}, {"c": 1}, {}],
        ),
        (
            {"properties": {"a": {}}, "required": ["a"], "type": "object", "oneOf": [{"required": ["b"]}, {"required": ["c"]}, {"required": ["d"]}]},
            [{"a": 1, "b": 2}, {"a": 1, "d": 2}],
            [{"a": 1}, {"a": 1, "b": 1, "d": 2}],
        ),
        ({"oneOf": [CAT], "anyOf": [{"required": ["age"]}, {"required": ["name"]}]}, [{"kind": "cat", "age": 1}], [{"kind": "cat"}]),
    ],
)  # fmt: skip
def test_one_of_alternatives_holds(schema: Any, taken: list[Any], refused: list[Any]) -> None:
    judge = Judge(schema)
    assert [(takes_value(each, schema), judge.valid(each)) for each in taken] == [
        (True, True)
    ] * len(taken)
    assert [takes_value(each, schema) for each in refused] == [False] * len(refused)


@pytest.mark.parametrize(
    "alternatives",
    [
        [{"type": "integer"}, {"type": "number"}],
        [objects(("a",), a={}), objects(a={}, b={})],
        [{"required": ["a"]}, {"required": ["a", "b"]}],
        [{"required": ["a"]}, {"required": ["b"]}],  # a text is valid under both
        # Closed, the first has no b; but read as the standard reads it, b alone is valid under both.
        [objects(a={}), objects(("b",), b={})],
    ],
)
def test_what_may_be_valid_under_two_is_refused(alternatives: list[Any]) -> None:
    with pytest.raises(UsageError, match="/items: what is valid under one alternative"):
        require_sound(ReplyOptions(json_schema={"items": {"oneOf": alternatives}}))
