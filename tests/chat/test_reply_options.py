"""ReplyOptions: a grammar and a schema are checked when they are given, and kept as text."""

from typing import Any

import pytest

from localspec.chat.reply_options import ReplyOptions
from localspec.errors import UsageError


def test_without_either_the_answer_is_free() -> None:
    assert ReplyOptions().gbnf is None


def test_a_grammar_is_what_it_is() -> None:
    assert ReplyOptions(grammar='root ::= "a"').gbnf == 'root ::= "a"'


@pytest.mark.parametrize("schema", [{"type": "null"}, '{"type": "null"}'])
def test_a_schema_is_kept_as_text_and_is_a_grammar(schema: Any) -> None:
    options = ReplyOptions(json_schema=schema)
    assert options.json_schema == '{"type": "null"}'
    assert options.gbnf is not None
    assert '"null"' in options.gbnf
    assert hash(options) == hash(ReplyOptions(json_schema=schema))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"grammar": 'root ::= "a"', "json_schema": {}}, "exclude each other"),
        ({"grammar": ""}, "no rule root"),
        ({"json_schema": "{"}, "is no JSON in line 1"),
        ({"json_schema": {"not": {}}}, "cannot keep 'not'"),
        ({"json_schema": {"default": object()}}, "json_schema is no JSON"),
        ({"json_schema": {"default": float("nan")}}, "NaN is no JSON"),
    ],
)
def test_what_cannot_be_kept_is_refused_at_once(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        ReplyOptions(**options)
    assert "\n" not in str(caught.value)
