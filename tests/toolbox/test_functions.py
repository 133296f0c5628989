"""Python functions as tools: schemas from annotations, results and errors as texts."""

import json
import threading
from typing import Any, Literal

import pytest

from localspec.calls import Tool
from localspec.errors import UsageError
from localspec.messages import ToolCall
from localspec.toolbox.functions import Function, Functions
from localspec.toolbox.toolbox import Toolbox


def area(
    of: str, unit: Literal["km2", "mi2"] = "km2", *, around: list[float] | None = None
) -> float:
    """Return how large a country is.

    Looked up nowhere.

    Args:
        of: name of the country,
            in English.
        unit (str): of the result.
    """
    assert around is None
    return len(of) * (1.0 if unit == "km2" else 0.5)


def call(function: Any, arguments: str) -> tuple[str, bool]:
    box = Functions([function])
    result = box.call(ToolCall("1", function.__name__, arguments), threading.Event())
    assert result.call_id == "1"
    return result.text, result.is_error


def named(name: str, function: Any) -> Any:
    function.__name__ = name
    return function


def test_a_schema_comes_from_annotations_and_docstring() -> None:
    tool = Function(area).tool
    assert isinstance(Functions([area]), Toolbox)
    assert (tool.name, tool.description) == ("area", "Return how large a country is.")
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "of": {"type": "string", "description": "name of the country, in English."},
            "unit": {"enum": ["km2", "mi2"], "description": "of the result."},
            "around": {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "null"}]},
        },
        "required": ["of"],
    }


def test_results_and_errors_are_texts() -> None:
    assert call(area, '{"of": "Peru", "unit": "mi2"}') == ("2.0", False)
    assert call(named("echo", lambda text: text), '{"text": "é"}') == ("é", False)
    assert call(named("when", lambda: {1}), "{}") == (json.dumps("{1}"), False)
    assert call(area, '{"of": "Peru", "unit": null, "around": null}') == ("4.0", False)
    assert call(area, '{"of": 3}') == ("area: Expected `str`, got `int` - at `$.of`", True)
    long = json.dumps({"of": "a", "\n\x1b[2J" + "x" * 9_000: 1})
    for wrong in ("{", "[]", "{}", '{"of": null}', '{"of": "a", "colour": 1}', long):
        text, failed = call(area, wrong)
        assert failed
        assert text.isprintable()
        assert len(text) < 300
    assert Functions([area]).propose(ToolCall("1", "area", "{}")).error is not None
    spaced = Functions([area]).propose(ToolCall("1", "area", '{\n  "of": "a   b"\n}'))
    assert spaced.summary == 'area({ "of": "a   b" })'


def test_what_has_no_schema_is_refused() -> None:
    def odd(what: object) -> None: ...
    def many(*what: str) -> None: ...
    async def later() -> None: ...

    for function, word in ((odd, "what of odd has the type"), (many, "name all"), (later, "async")):
        with pytest.raises(UsageError, match=word):
            Function(function)


@pytest.mark.parametrize(
    ("schema", "kept"),
    [
        ({"type": "integer"}, False), ({"type": ["integer", "null"]}, True), ({"enum": ["a", "b"]}, False),
        ({"enum": ["a", None]}, True), ({"anyOf": [{"type": "string"}, {"type": "null"}]}, True),
        ({"oneOf": [{"type": "string"}, {"enum": [1]}]}, False), ({}, True), ({"$ref": "#/$defs/x"}, True),
        ({"type": 5, "enum": 5}, False), (True, True),
    ],
)  # fmt: skip
def test_null_is_absent_where_an_optional_argument_has_none(schema: Any, *, kept: bool) -> None:
    tool = Tool("f", {"properties": {"a": schema, "b": schema}, "required": ["b"]})
    given = {"a": None, "b": None, "other": None}
    assert tool.without_nulls(given) == {n: v for n, v in given.items() if kept or n != "a"}
