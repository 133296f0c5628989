"""What binds an answer is looked at before anything is evaluated, and refused in one line."""

from typing import Any

import pytest

from localspec.errors import UsageError
from localspec.grammar import require_sound
from localspec.options import ReplyOptions


def test_a_free_answer_is_sound() -> None:
    require_sound(ReplyOptions())


@pytest.mark.parametrize(
    "said",
    [
        {"grammar": 'root ::= "a"'},
        {"json_schema": {}},
        {"json_schema": '{"type": "null"}'},
        {"regex": ""},
        {"lark": 'start: "a"'},
    ],
)
def test_each_of_them_binds_it(said: dict[str, Any]) -> None:
    options = ReplyOptions(**said)
    assert options.answer_grammar is not None
    assert options.answer_grammar[0] in said
    require_sound(options)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"grammar": ""}, "no rule root"),
        ({"regex": "(a"}, "unclosed group"),
        ({"lark": "start: b"}, "unknown name"),
        ({"json_schema": False}, "allows nothing"),
        ({"json_schema": "{"}, "is not valid JSON in line 1"),
        ({"json_schema": {"not": {}}}, "'not' is not supported"),
        ({"json_schema": {"default": float("nan")}}, "NaN is not valid JSON"),
    ],
)
def test_what_cannot_be_kept_is_refused(said: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        require_sound(ReplyOptions(**said))
    assert "\n" not in str(caught.value)
