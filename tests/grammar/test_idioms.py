"""What generators of schemas write without meaning it is left out, and what no double holds is refused or narrowed."""

import json
from typing import Any

import pytest

from localspec.errors import UsageError
from localspec.grammar import require_sound
from localspec.options import ReplyOptions
from tests.grammar.answers import takes, takes_value, texts
from tests.grammar.judge import Judge

_INTEGER = {"type": "integer"}
_COLOURS = {"enum": ["red", "blue"], "type": "string"}


def record(names: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "propertyNames": names, "additionalProperties": _INTEGER, **more}


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (record({"type": "string"}), [{"a": 1}, {}], [{"a": "b"}]), (record(True), [{"a": 1}], [{"a": ""}]),
        (record({"title": "Name", "type": ["string", "null"]}), [{"a": 1}], [1]), (record({}), [{"a": 1}], [{"a": None}]),
        (record(_COLOURS), [{"red": 1, "blue": 2}, {"blue": 1}, {}], [{"green": 1}, {"red": "1"}]),
        (record(_COLOURS, required=["red", "blue"]), [{"red": 1, "blue": 2}], [{"red": 1}, {}]),
        (record({"$ref": "#/$defs/Colour"}, **{"$defs": {"Colour": _COLOURS}}), [{"blue": 1}], [{"green": 1}]),
        (record({"const": "one"}), [{"one": 1}], [{"two": 2}]), (record(_COLOURS, properties={"red": {"type": "null"}}), [{"red": None, "blue": 1}], [{"red": 1}]),
        (record({"anyOf": [{"const": "red", "type": "string"}, {"const": "blue"}]}), [{"red": 1}, {}], [{"green": 1}]),
        (record({"oneOf": [_COLOURS, {"title": "No", "const": "none"}]}), [{"blue": 2, "none": 1}], [{"green": 1}]),
        (record({"pattern": "^x-"}), [{"x-a": 1}], [{"y": 1}, {"x-a": ""}]), (record({"type": "string", "minLength": 2}), [{"ab": 1}], [{"a": 1}]),
        (record({"maxLength": 3, "minLength": 1}), [{"abc": 1}], [{"abcd": 1}, {"": 1}]),
        ({"type": "array", "items": _INTEGER, "uniqueItems": False, "unevaluatedItems": {}}, [[1, 1]], [["a"]]),
        ({"type": "object", "properties": {"a": _INTEGER}, "unevaluatedProperties": True}, [{"a": 1}], [{"a": ""}]),
        ({"anyOf": [{"not": {}}, {"type": "string"}]}, ["a"], [1, None]), ({"type": "string", "not": False}, ["a"], [1]),
        ({"type": "object", "properties": {"a": _INTEGER}, "additionalProperties": {"not": {}}}, [{"a": 1}], [{"a": 1, "b": 2}]),
        ({"type": "object", "properties": {"a": _INTEGER}, "dependentRequired": {}, "dependencies": {}, "patternProperties": {}}, [{"a": 1}], [{"a": ""}]),
        ({"type": "integer", "minimum": 0, "maximum": 9223372036854775807}, [0, 1234567890123456789, 9223372036854774784], [-1, 9223372036854775808]),
        ({"type": "integer", "minimum": -9223372036854775808, "maximum": 18446744073709551615}, [-1234567890123456789, 5], [0.5, 10**20]),
        ({"type": "number", "minimum": 0, "maximum": 1.7976931348623157e308}, [0, 0.5, 1234567890.5], [-1]),
        ({"type": "string", "maxLength": 4294967295}, ["a" * 50], [1]), ({"type": "array", "items": _INTEGER, "maxItems": 1 << 64}, [[1]], [[""]]),
        ({"type": "integer", "multipleOf": 86_400}, [172_800], [86_401]), ({"type": "number", "multipleOf": 0.00001}, [0.50001], [0.500001]),
    ],
)  # fmt: skip
def test_what_says_nothing_is_dropped_and_the_rest_is_kept(
    schema: Any, right: list[Any], wrong: list[Any]
) -> None:
    judge = Judge(schema)
    assert [judge.valid(each) for each in (*right, *wrong)] == [True] * len(right) + [False] * len(wrong)  # fmt: skip
    assert [takes_value(each, schema) for each in right] == [True] * len(right)
    assert [takes_value(each, schema) for each in wrong] == [False] * len(wrong)
    for text in texts(6, json_schema=schema):
        assert judge.valid(json.loads(text)), text


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"type": "object", "properties": {"a": _INTEGER}, "required": None}, [{"a": 1}, {}], [{"a": ""}]),
        ({"type": "object", "properties": None, "required": None, "$defs": None}, [{}], [1]), ({"type": "array", "items": None}, [[1, "a"]], [1]),
        ({"type": "string", "enum": None, "pattern": None}, ["a"], [1]), ({"anyOf": None, "type": "integer"}, [1], ["a"]), ({"const": None}, [None], [1]),
        ({"type": "object", "properties": {"a": {"type": "integer", "required": True}}, "required": ["a"]}, [{"a": 1}], [{}]),
        ({"type": "integer", "minimum": 0, "exclusiveMinimum": True}, [1], [0]), ({"type": "integer", "maximum": 9, "exclusiveMaximum": False}, [9], [10]),
        ({"type": ["array", "null"], "items": _INTEGER}, [None, [1]], [{}]), ({"type": ["null", "object"], "properties": {"a": _INTEGER}}, [None, {"a": 1}], [[]]),
    ],
)  # fmt: skip
def test_null_may_stand_for_a_keyword_and_old_drafts_are_read(
    schema: Any, right: list[Any], wrong: list[Any]
) -> None:
    assert [takes_value(each, schema) for each in right] == [True] * len(right)
    assert [takes_value(each, schema) for each in wrong] == [False] * len(wrong)


@pytest.mark.parametrize(
    "value",
    [1 << 64, (1 << 53) + 1, 1234567890123456800, 1152921504606847000, -(1 << 64), 1e23, 1234567890123456789, 2**70 + 2**20, 1.8446744073709552e19, {"id": 9007199254740993}],
)  # fmt: skip
@pytest.mark.parametrize("keyword", ["const", "enum"])
def test_a_constant_that_would_be_written_as_another_number_is_refused(
    keyword: str, value: Any
) -> None:
    schema = {keyword: value if keyword == "const" else ["a", value]}
    with pytest.raises(UsageError, match="cannot be written exactly"):
        require_sound(ReplyOptions(json_schema=schema))


@pytest.mark.parametrize(
    "value",
    [
        1 << 53,
        -(1 << 53),
        0.1,
        1e22,
        1e-7,
        -0.5,
        10**15,
        1e5,
        123456789.123,
        10**23,
        [{"a": 1 << 53}],
    ],
)
def test_a_constant_that_a_double_holds_is_written_as_that_number(value: Any) -> None:
    (text,) = {*texts(3, json_schema={"const": value})}
    assert json.loads(text) == value


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"type": "integer", "minimum": 1 << 63}, "minimum"), ({"type": "number", "exclusiveMaximum": -(1e19)}, "exclusiveMaximum"),
        ({"minLength": 1 << 40, "type": "string"}, "minLength"), ({"type": "array", "minItems": 0.5}, "minItems is 0.5"), ({"maxProperties": 1e-9}, "maxProperties"), ({"type": "integer", "multipleOf": 604_800}, "multipleOf"),
        ({"type": "number", "multipleOf": 12_345.67}, "multipleOf"), ({"type": "integer", "multipleOf": 1 << 60}, "multipleOf"),
        (record({"format": "email"}), "propertyNames"), (record({"pattern": "^a"}, properties={"a": {}}), "propertyNames"),
        (record({"pattern": "^a", "maxLength": 4}), "propertyNames"),
    ],
)  # fmt: skip
def test_what_would_take_too_long_or_cannot_be_kept_is_refused_by_name(
    schema: Any, name: str
) -> None:
    with pytest.raises(UsageError, match=name):
        require_sound(ReplyOptions(json_schema=schema))


def test_a_limit_that_no_double_holds_is_narrower_and_never_wider() -> None:
    schema = {"type": "integer", "minimum": (1 << 53) + 1, "maximum": (1 << 53) + 9}
    for text in ("9007199254740992", "9007199254741002"):
        assert not takes(text, json_schema=schema)
    assert takes("9007199254740994", json_schema=schema)
