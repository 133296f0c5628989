"""Whatever a schema says: what its grammar lets through is valid, or the schema is refused on one line."""

import json
from typing import Any

import jsonschema
import pytest

from localspec.errors import UsageError
from localspec.structured.answer_grammar import schema_grammar
from tests.structured.random_schemas import random_schema
from tests.structured.random_text import random_texts

_LONG = 20_000


def texts_of(schema: dict[str, Any], count: int) -> list[str] | None:
    """Return texts of the grammar of a schema; None where it is refused."""
    try:
        gbnf = schema_grammar(json.dumps(schema))
    except UsageError as error:
        assert str(error).isprintable()  # noqa: PT017 - some of them are taken
        return None
    return [text for text in random_texts(gbnf, count) if len(text) < _LONG]


def test_every_text_of_a_random_schema_is_valid() -> None:
    taken = 0
    for seed in range(250):
        schema = random_schema(seed)
        texts = texts_of(schema, 6)
        taken += texts is not None
        for text in texts or ():
            jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    assert taken > 100


@pytest.mark.parametrize(
    "schema",
    [
        # What one part says of all items, it says of those that another part names first.
        {"allOf": [{"items": {"type": "integer"}}, {"prefixItems": [{"type": ["null", "integer"]}, True], "minItems": 2}]},
        {"allOf": [{"prefixItems": [{"type": "integer"}], "items": False}, {"prefixItems": [True, True]}]},
        # What is left for `unevaluated…` is what its own schema leaves, not what stands around it.
        {"type": "array", "unevaluatedItems": False},
        {"type": "array", "unevaluatedItems": {"type": "integer"}},
        {"type": "array", "unevaluatedItems": {"type": "integer"}, "allOf": [{"prefixItems": [{"type": "null"}]}], "minItems": 2},
        {"allOf": [{"unevaluatedItems": {"type": "integer"}}, {"items": {"type": "number"}, "minItems": 1}]},
        {"allOf": [{"properties": {"a": {}}, "unevaluatedProperties": False}, {"properties": {"a": {"type": "null"}, "b": {}}}]},
        {"allOf": [{"properties": {"a": {}}}], "properties": {"b": {}}, "required": ["a", "b"], "unevaluatedProperties": False},
    ],
)  # fmt: skip
def test_what_parts_say_of_each_other_is_kept(schema: dict[str, Any]) -> None:
    texts = texts_of(schema, 60)
    assert texts
    for text in texts:
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))
