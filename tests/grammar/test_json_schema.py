"""JSON schemas become sound grammars, or are refused by the keyword that cannot be kept."""

import json
from typing import Any

import pytest

from localspec.errors import UsageError
from localspec.structured.answer_grammar import schema_grammar
from tests.structured.schemas import ASKED


@pytest.mark.parametrize("asked", ASKED, ids=[each.name for each in ASKED])
def test_schemas_of_the_real_world_have_a_grammar(asked: Any) -> None:
    assert schema_grammar(json.dumps(asked.schema)).startswith("root ::= ")


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"not": {}}, "cannot keep 'not'"),
        ({"type": "object", "patternProperties": {"^x": {}}}, "'patternProperties'"),
        ({"type": "array", "contains": {}}, "'contains'"),
        ({"if": {}, "then": {}}, "'if'"),
        ({"properties": {"a": {"properties": {"b/c": {"not": {}}}}}}, "/properties/a/properties/b~1c"),
        ({"type": "strin"}, "type is 'strin'"),
        ({"type": []}, "type is '[]'"),
        ({"enum": []}, "no value is valid here"),
        (False, "no value is valid here"),
        ({"type": "string", "enum": [1]}, "no value is valid here"),
        ({"enum": ["a"], "minLength": 3}, "minLength beside enum"),
        ({"type": "string", "format": "iri"}, "format 'iri' cannot be kept: known are date"),
        ({"type": "string", "format": "date", "maxLength": 5}, "format date beside"),
        ({"type": "string", "minLength": 5, "maxLength": 4}, "leave no string"),
        ({"type": "string", "minLength": -1}, "minLength is -1"),
        ({"type": "string", "maxLength": 1e300}, "counts up to"),
        ({"type": "string", "pattern": "(?=a)b"}, "looks around"),
        ({"type": "string", "pattern": "a\\b"}, "has \\b"),
        ({"type": "string", "pattern": "(a)\\1"}, "has \\1"),
        ({"type": "string", "pattern": "(a"}, "never closed"),
        ({"type": "string", "pattern": "a)"}, "unbalanced )"),
        ({"type": "string", "pattern": "[z-a]"}, "a range in [ ] that is none"),
        ({"type": "string", "pattern": "(a*)*"}, "a repetition of what may be empty"),
        ({"type": "string", "pattern": "a{2000000}"}, "has"),
        ({"type": "string", "pattern": "^a+$", "maxLength": 5}, "allows other lengths"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "leave no number"),
        ({"type": "integer", "exclusiveMinimum": 2, "exclusiveMaximum": 3}, "leave no number"),
        ({"type": "number", "exclusiveMinimum": 2, "maximum": 2}, "leave no number"),
        ({"type": "number", "exclusiveMinimum": True}, "exclusiveMinimum is True"),
        ({"type": "number", "multipleOf": 0.01}, "multipleOf 0.01 cannot be kept"),
        ({"type": "integer", "multipleOf": 7}, "multipleOf 7 cannot be kept"),
        ({"type": "number", "maximum": 1e200}, "writes no such number"),
        ({"type": "array", "minItems": 3, "maxItems": 2}, "leave no array"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems cannot be kept"),
        ({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 3}, "2 different items"),
        ({"type": "array", "prefixItems": [{}], "items": False, "minItems": 2}, "1 items to be had"),
        ({"type": "object", "properties": {"a": {}}, "required": ["b"], "additionalProperties": False}, "'b' is required"),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "/properties/a"),
        ({"type": "object", "minProperties": 2}, "minProperties 2"),
        ({"type": "object", "required": "a"}, "required takes a list"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "may be valid under 1, too"),
        ({"anyOf": []}, "anyOf takes a list"),
        ({"$ref": "#/$defs/a"}, "points to nothing"),
        ({"$ref": "https://example.com/x.json"}, "points out of the schema"),
        ({"$ref": "#"}, "refers to itself"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "refers to itself"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]}}}, "can never end"),
        ({"allOf": [{"type": "string", "pattern": "a"}, {"pattern": "b"}]}, "'pattern' is said twice"),
        ({"allOf": [{"type": "string"}, {"type": ["null", "object"]}]}, "allows no type"),
        ([1], "is no schema"),
        ("x", "is no schema"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_named_with_its_place(schema: Any, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        schema_grammar(json.dumps(schema))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 420


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"\x1b[2J\ud800": {"not": {}}}},
        {"maxItems": "\x1b[2J\ud800"},
        {"$ref": "#/\x1b[2J\n"},
        {"required": ["\x1b[2J"], "additionalProperties": False},
        {"properties": {"x" * 10_000: {"not": {}}}},
    ],
)
def test_an_error_is_a_short_line_that_a_terminal_shows_and_does_not_obey(schema: Any) -> None:
    with pytest.raises(UsageError) as caught:
        schema_grammar(json.dumps(schema))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("keyword", ["const", "enum"])
@pytest.mark.parametrize(("one", "other"), [(False, 0), (True, 1), ([True], [1]), ({"a": 0}, {"a": False})])  # fmt: skip
def test_true_is_not_one_however_deep(keyword: str, one: Any, other: Any) -> None:
    for parts in ((one, other), (other, one)):
        values = [{keyword: [each] if keyword == "enum" else each} for each in parts]
        with pytest.raises(UsageError, match=r"no value is valid|said twice"):
            schema_grammar(json.dumps({"allOf": values}))


@pytest.mark.parametrize(
    ("keyword", "value"),
    [("properties", None), ("properties", 5), ("required", 5), ("enum", None), ("type", 5), ("minLength", "a")],
)  # fmt: skip
def test_what_is_said_twice_and_once_wrongly_is_named(keyword: str, value: Any) -> None:
    right = {"properties": {"a": {}}, "required": ["a"], "enum": ["a"], "type": "string"}
    schema = {"allOf": [{keyword: right.get(keyword, 5)}, {keyword: value}]}
    with pytest.raises(UsageError, match=keyword):
        schema_grammar(json.dumps(schema))


@pytest.mark.parametrize(
    "text",
    ["{", '{"type": NaN}', "[" * 100_000, "nul", '{"a": "' + "x" * (1 << 20) + '"}', ""],
    ids=["cut", "nan", "deep", "typo", "long", "empty"],
)
def test_what_is_no_json_is_said_so(text: str) -> None:
    with pytest.raises(UsageError, match="the JSON schema") as caught:
        schema_grammar(text)
    assert "\n" not in str(caught.value)


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 90_000, "maxLength": 100_000},
        {"type": "array", "items": {"type": "array", "maxItems": 100_000}, "maxItems": 100_000},
        {"type": "string", "pattern": "^((a{900}){900}){900}$"},
        {"properties": {f"p{i}": {"type": "string"} for i in range(900)}},
        {"properties": {f"p{i}": {"type": "string"} for i in range(2_000)}},
        {"enum": [f"value {i}" for i in range(1_900)]},
        {"enum": list(range(100_000))},
        deep(50),
        deep(900),
        {"anyOf": [{"const": i} for i in range(5_000)]},
        {"$defs": {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)} | {"d40": {"type": "null"}}, "$ref": "#/$defs/d0"},
        {"allOf": [{"anyOf": [{"minLength": i} for i in range(20)]}] * 5},
    ],
)  # fmt: skip
def test_huge_schemas_are_end_in_a_grammar_or_an_error(schema: dict[str, Any]) -> None:
    try:
        schema_grammar(json.dumps(schema))
    except UsageError as error:
        assert "\n" not in str(error)  # noqa: PT017 - some of them are taken


def test_what_is_no_keyword_says_nothing() -> None:
    plain = {"type": "integer"}
    annotated = {**plain, "title": "t", "description": "d", "default": 3, "examples": [1], "x-own": {"not": 1}, "$comment": "c"}  # fmt: skip
    assert schema_grammar(json.dumps(annotated)) == schema_grammar(json.dumps(plain))
