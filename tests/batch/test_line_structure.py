"""What a line says of its answer's form replaces what the run says."""

from dataclasses import replace
from typing import Any

import pytest

from localspec.batch.request import own_options
from localspec.errors import UsageError
from localspec.options import ReplyOptions
from localspec.options.fields import with_fields

SCHEMA = {"type": "object", "properties": {"a": {"type": "null"}}}
OF_THE_RUN = ReplyOptions(seed=1, grammar='root ::= "run"')


@pytest.mark.parametrize(
    ("fields", "schema"),
    [
        ({"json_schema": SCHEMA}, SCHEMA),
        ({"json_schema": '{"type": "null"}'}, {"type": "null"}),
        ({"json_schema": True}, True),
        ({"response_format": {"type": "json_object"}}, {"type": "object"}),
        ({"response_format": {"type": "text"}}, None),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
            SCHEMA,
        ),
    ],
)  # fmt: skip
def test_a_line_has_a_schema_of_its_own(fields: dict[str, Any], schema: Any) -> None:
    assert with_fields(OF_THE_RUN, fields) == ReplyOptions(seed=1, json_schema=schema)


@pytest.mark.parametrize(
    ("kind", "said"),
    [("grammar", 'root ::= "line"'), ("regex", "[a-z]+"), ("lark", 'start: "line"')],
)
def test_a_line_has_a_grammar_of_its_own(kind: str, said: str) -> None:
    run = ReplyOptions(seed=1, json_schema={})
    wanted = replace(ReplyOptions(seed=1), **{kind: said})  # type: ignore[arg-type]
    assert with_fields(run, {kind: said, "temperature": None}) == wanted


def test_a_line_that_says_nothing_keeps_that_of_the_run() -> None:
    assert with_fields(OF_THE_RUN, {"grammar": None, "seed": 1}) == OF_THE_RUN


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"grammar": "x", "json_schema": {}}, "cannot be combined"),
        ({"grammar": 1}, "grammar is 1"),
        ({"regex": ["a"]}, "it takes a text"),
        ({"regex": "a", "lark": "b"}, "cannot be combined"),
        ({"json_schema": [1]}, "it takes an object"),
        ({"response_format": "json"}, "response_format is 'json'"),
        ({"response_format": {"type": "json_schema"}}, "response_format is"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format is"),
    ],
)
def test_what_is_neither_is_said_on_one_line(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        with_fields(ReplyOptions(), {**fields, "top_k": 3})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cell", [None, ""])
def test_a_line_without_options_of_its_own_says_nothing(cell: str | None) -> None:
    assert own_options({"reply_options": cell}) == {}
