"""`oneOf`: alternatives are written where no text of one is valid under another, and are told apart where they can be."""

from typing import Any

import pytest

from localspec.errors import UsageError
from localspec.grammar import require_sound
from localspec.options import ReplyOptions
from tests.grammar.answers import takes_value
from tests.grammar.judge import Judge


def objects(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


CAT, DOG = (objects(("kind",), kind={"const": kind}, age={}) for kind in ("cat", "dog"))


@pytest.mark.parametrize(
    ("schema", "taken", "refused"),
    [
        ({"oneOf": [CAT, DOG]}, [{"kind": "cat", "age": 3}, {"kind": "dog"}], [{"kind": "cow"}, {}]),
        # llguidance looks at the alternatives themselves, not behind references.
        (
            {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}], "$defs": {"cat": CAT, "dog": DOG}},
            [{"kind": "cat", "age": 3}, {"kind": "dog"}],
            [{"kind": "cow"}, {"kind": "cat", "b": 1}],
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
        # Closed, the first has no b; but read as the standard reads it, b alone is valid under both.
        [objects(a={}), objects(("b",), b={})],
    ],
)
def test_what_may_be_valid_under_two_is_refused(alternatives: list[Any]) -> None:
    with pytest.raises(UsageError, match="/items: oneOf: what is valid under one alternative"):
        require_sound(ReplyOptions(json_schema={"items": {"oneOf": alternatives}}))
