"""What binds a reply: a grammar or a schema, said to be unsound before anything is evaluated."""

from typing import Any

import pytest

from localspec.errors import UsageError
from localspec.options import ReplyOptions
from localspec.structured.answer_grammar import answer_gbnf


def test_without_either_the_answer_is_free() -> None:
    assert answer_gbnf(ReplyOptions()) is None


def test_a_grammar_is_what_it_is() -> None:
    assert answer_gbnf(ReplyOptions(grammar='root ::= "a"')) == 'root ::= "a"'


@pytest.mark.parametrize("schema", [{"type": "null"}, '{"type": "null"}'])
def test_a_schema_is_a_grammar(schema: Any) -> None:
    gbnf = answer_gbnf(ReplyOptions(json_schema=schema))
    assert gbnf is not None
    assert '"null"' in gbnf


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"grammar": ""}, "no rule root"),
        ({"json_schema": "{"}, "is no JSON in line 1"),
        ({"json_schema": {"not": {}}}, "cannot keep 'not'"),
        ({"json_schema": {"default": float("nan")}}, "NaN is no JSON"),
    ],
)
def test_what_cannot_be_kept_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        answer_gbnf(ReplyOptions(**options))
    assert "\n" not in str(caught.value)
