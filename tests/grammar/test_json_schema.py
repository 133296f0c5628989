"""What the mask of a schema lets through is valid under it, and what cannot be kept is refused by name and place."""

import json
from itertools import product
from random import Random
from typing import Any

import jsonschema
import pytest

from localspec.errors import UsageError
from localspec.grammar import require_sound
from localspec.options import ReplyOptions
from tests.grammar.answers import takes, takes_value, texts
from tests.grammar.judge import Judge
from tests.grammar.random_schemas import random_schema
from tests.grammar.schemas import ASKED, RECURSIVE, Asked
from tests.support.checks import refuses


def require_valid(schema: Any, count: int) -> int:
    """Judge texts by chance, and return how many there were."""
    judge, found = Judge(schema), texts(count, json_schema=schema)
    for text in found:
        assert judge.valid(json.loads(text)) is not False, text
    return len(found)


def require_kept(schema: Any) -> None:
    require_sound(ReplyOptions(json_schema=schema))


def objects(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


@pytest.mark.parametrize("asked", ASKED, ids=[each.name for each in ASKED])
def test_whatever_a_schema_lets_through_is_valid(asked: Asked) -> None:
    assert require_valid(asked.schema, 12) > 5


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 120), marks=pytest.mark.slow)])
def test_whatever_a_random_schema_lets_through_is_valid(seeds: range) -> None:
    taken = 0
    for seed in seeds:
        schema = random_schema(seed)
        try:
            require_valid(schema, 4)
        except UsageError as error:
            assert str(error).isprintable()  # noqa: PT017 - some of them are taken
        else:
            taken += 1
    assert taken > len(seeds) / 2


@pytest.mark.parametrize(
    "schema",
    [
        # What one part says of all items, it says of those that another part names first.
        {"allOf": [{"items": {"type": "integer"}}, {"prefixItems": [{"type": ["null", "integer"]}, True], "minItems": 2}]},
        {"allOf": [{"prefixItems": [{"type": "integer"}], "items": False}, {"prefixItems": [True, True]}]},
        # Alternatives that are none of the standard's while they are only parts.
        {"oneOf": [{"properties": {"k": {"const": "x"}, "v": {"type": "integer"}}, "required": ["k"]}, {"properties": {"k": {"const": "y"}}, "required": ["k"]}]},
        {"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": {"type": "null"}, "minProperties": 1},
        {"properties": {"xa": {}}, "patternProperties": {"^x": {"type": "integer"}}, "required": ["xa", "xb"]},
        # Older drafts.
        {"$schema": "http://json-schema.org/draft-04/schema#", "type": "number", "minimum": 0, "exclusiveMinimum": True},
        {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "null"}], "additionalItems": False, "type": "array"},
    ],
)  # fmt: skip
def test_what_parts_say_of_each_other_is_kept(schema: dict[str, Any]) -> None:
    assert require_valid(schema, 40) > 20


def test_every_text_of_a_range_of_numbers_lies_in_it() -> None:
    chance = Random(8)
    for _ in range(120):
        low, high = sorted(round(chance.uniform(-120, 120), chance.randrange(4)) for _ in range(2))
        schema: dict[str, object] = {"type": chance.choice(("number", "integer"))}
        schema[chance.choice(("minimum", "exclusiveMinimum"))] = low
        if chance.random() < 0.7:
            schema[chance.choice(("maximum", "exclusiveMaximum"))] = high
        if chance.random() < 0.3:
            schema["multipleOf"] = chance.choice((1, 3, 0.5, 0.01, 12))
        try:
            require_valid(schema, 8)
        except UsageError as error:
            assert "no value is valid" in str(error)  # noqa: PT017 - only some of them have none


def test_properties_come_in_the_order_of_the_schema_and_each_once() -> None:
    schema = {"properties": {"a": {}, "b": {}}, "allOf": [{"properties": {"c": {}}}]}
    assert takes_value({"a": 1, "b": 2, "c": 3}, schema)
    assert not takes_value({"b": 1, "a": 2}, schema)
    assert not takes('{"a": 1, "a": 2}', json_schema=schema)
    assert not takes('{"a": 1, "\\u0061": 2}', json_schema={"additionalProperties": {}, **schema})


def test_white_space_is_a_blank_or_an_indented_line() -> None:
    schema = {"properties": {"a": {"items": {"type": "integer"}}}}
    for indent in (None, 0, 2, 8):
        assert takes(json.dumps({"a": [1, 2]}, indent=indent), json_schema=schema)
    assert takes('{"a":[1,2]}', json_schema=schema)
    for text in ('{"a":  [1]}', '{\n\n"a": [1]}', ' {"a": [1]}', '{"a": [1]} ', '{\t"a": [1]}'):
        assert not takes(text, json_schema=schema)


def test_an_error_is_a_short_printable_line(capfd: pytest.CaptureFixture[str]) -> None:
    schemas: list[dict[str, Any]] = [
        {"properties": {"\x1b[2J": {"if": {}}}}, {"maxItems": "\x1b[2J"}, {"$ref": "#/\x1b[2J\n"},
        {"minimum": "x" * 200},
        {"pattern": "\x1b(" * 40, "type": "string"}, {"properties": {"x" * 10_000: {"if": {}}}},
    ]  # fmt: skip
    for schema in schemas:
        with pytest.raises(UsageError) as caught:
            require_kept(schema)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 700
        assert capfd.readouterr() == ("", "")


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def test_true_is_not_one_and_what_is_no_json_is_said_so() -> None:
    for one, other in ((False, 0), (True, 1), ([True], [1]), ({"a": 0}, {"a": False})):
        for values in ([{"const": one}, {"const": other}], [{"enum": [other]}, {"enum": [one]}]):
            refuses("no value is valid", require_kept, {"allOf": values})
    long = '{"a": "' + "x" * (1 << 20) + '"}'
    for text in ("{", '{"type": NaN}', "[" * 100_000, "nul", long, ""):
        refuses(r"JSON schema|json_schema has", require_kept, text)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 90_000, "maxLength": 100_000},
        {"type": "array", "items": {"type": "array", "maxItems": 1000}, "maxItems": 1000}, {"properties": {f"p{i}": {"type": "string"} for i in range(900)}},
        {"enum": [f"value {i}" for i in range(1_900)]}, {"enum": list(range(30_000))},
        deep(45),
        {"anyOf": [{"const": i} for i in range(5_000)]},
    ],
)  # fmt: skip
def test_huge_schemas_end_in_a_grammar_or_an_error(schema: dict[str, Any]) -> None:
    try:
        require_kept(schema)
    except UsageError as error:
        assert "\n" not in str(error)  # noqa: PT017 - some of them are taken


@pytest.mark.parametrize("name", ["date", "time", "date-time", "duration", "uuid", "ipv4", "ipv6", "email", "hostname", "uri", "uri-reference"])  # fmt: skip
def test_a_text_of_a_format_is_one_for_the_checker_too(name: str) -> None:
    schema = {"type": "string", "format": name}
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    found = texts(60, json_schema=schema)
    assert len(set(found)) > 15
    for text in found:
        assert checker.conforms(json.loads(text), name), text


def node(*, required: list[str], **properties: Any) -> dict[str, Any]:
    own = {"type": "object", "properties": properties, "required": required}
    return {"$ref": "#/$defs/node", "$defs": {"node": own}}


CHILD = {"$ref": "#/$defs/node"}


def test_every_text_of_a_recursive_schema_is_valid() -> None:
    for each in RECURSIVE:
        judge, found = Judge(each.schema), texts(40, json_schema=each.schema)
        assert len(set(found)) > 3, each.name
        for text in found:
            assert judge.valid(json.loads(text)), text
    pair = {"type": "array", "prefixItems": [CHILD, CHILD], "items": False, "minItems": 2}
    tree = {**CHILD, "$defs": {"node": {"anyOf": [{"type": "null"}, pair]}}}
    shapes: list[Any] = [None]
    for _ in range(2):
        shapes = [None, *(list(both) for both in product(shapes, repeat=2))]
    assert all(takes_value(shape, tree) for shape in shapes)


def test_what_has_to_contain_itself_is_refused_and_what_can_is_written_without_it() -> None:
    loop = {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}
    endless: tuple[Any, ...] = (
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": loop},
        node(required=["next"], next=CHILD),
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    )
    for schema in endless:
        refuses("can never end", require_kept, schema)
    no_texts: tuple[object, ...] = (5, ["a"], {})
    for reference in no_texts:
        refuses("/oneOf/0", require_kept, {"oneOf": [{"$ref": reference}, {"type": "string"}]})
    schema = node(required=[], kind={"const": "leaf"}, inner={"$ref": "#/$defs/loop"})
    schema["$defs"]["loop"] = {"$ref": "#/$defs/loop"}
    found = {json.dumps(json.loads(text)) for text in texts(30, json_schema=schema)}
    assert found == {"{}", '{"kind": "leaf"}'}
