"""ReplyOptions: what an answer has to look like is checked when it is given, and a schema is kept as text."""

from typing import Any

import pytest

from localspec.chat.reply_options import ReplyOptions
from localspec.errors import UsageError


def test_without_any_of_them_the_answer_is_free() -> None:
    assert not ReplyOptions().is_bound


@pytest.mark.parametrize(
    "said",
    [
        {"grammar": 'root ::= "a"'},
        {"json_schema": {}},
        {"json_schema": False, "grammar": None},
        {"regex": ""},
        {"lark": 'start: "a"'},
    ],
)
def test_any_of_them_binds_it(said: dict[str, Any]) -> None:
    if said.get("json_schema") is False:
        with pytest.raises(UsageError, match="allows nothing"):
            ReplyOptions(**said)
    else:
        assert ReplyOptions(**said).is_bound


@pytest.mark.parametrize("schema", [{"type": "null"}, '{"type": "null"}'])
def test_a_schema_is_kept_as_text(schema: Any) -> None:
    options = ReplyOptions(json_schema=schema)
    assert options.json_schema == '{"type": "null"}'
    assert hash(options) == hash(ReplyOptions(json_schema=schema))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"grammar": 'root ::= "a"', "json_schema": {}}, "json_schema and grammar exclude each other"),
        ({"regex": "a", "lark": 'start: "a"'}, "regex and lark exclude each other"),
        ({"grammar": ""}, "no rule root"),
        ({"regex": "(a"}, "unclosed group"),
        ({"lark": "start: b"}, "unknown name"),
        ({"json_schema": "{"}, "is no JSON in line 1"),
        ({"json_schema": {"not": {}}}, "cannot keep 'not'"),
        ({"json_schema": {"default": object()}}, "json_schema is no JSON"),
        ({"json_schema": {"default": float("nan")}}, "NaN is no JSON"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused_at_once(said: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        ReplyOptions(**said)
