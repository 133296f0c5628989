"""Results stand behind their calls, in their order; arguments are objects: whatever a program sends."""

import json
from itertools import permutations

import pytest

from localspec.chat.turns import UNREADABLE, complete, with_results
from localspec.messages import Message, TextPart, ToolCall, ToolResult

USER, YES = Message.user("How warm is it?"), Message.assistant("Yes.")


def called(*ids: str) -> Message:
    parts = (ToolCall(each, "look", "{}") for each in ids)
    return Message("assistant", (TextPart("Now."), *parts))


def result(of: str, text: str = "") -> Message:
    return Message("tool", (ToolResult(of, text or f"of {of}"),))


def results_of(messages: tuple[Message, ...]) -> list[tuple[str, str]]:
    parts = [part for each in messages for part in each.parts]
    return [(each.call_id, each.text) for each in parts if isinstance(each, ToolResult)]


@pytest.mark.parametrize("order", [*permutations("abc")])
def test_results_stand_in_the_order_of_their_calls(order: tuple[str, ...]) -> None:
    said = [USER, called(*"abc"), *map(result, order), YES, USER]
    ordered = (USER, called(*"abc"), *map(result, "abc"), YES, USER)
    assert complete(said) == complete(ordered) == ordered
    # Words between results come behind them.
    said.insert(3, Message.user("Quick!"))
    assert complete(said) == (*ordered[:5], Message.user("Quick!"), *ordered[5:])


def test_results_of_one_turn_are_not_those_of_another() -> None:
    first = [called("a", "b"), result("b", "1"), result("a", "2")]
    second = [called("b", "a"), result("a", "3"), result("b", "4")]
    whole = complete([USER, *first, YES, USER, *second])
    assert results_of(whole) == [("a", "2"), ("b", "1"), ("b", "4"), ("a", "3")]


@pytest.mark.parametrize(
    ("calls", "given", "expected"),
    [
        (["a", "a"], ["a", "a"], ["a", "a"]),  # one id for all
        (["a", "b"], ["x", "y"], ["a", "b"]),  # ids that another program made
        (["a", "b"], ["x", "a"], ["a", "b"]),
        (["a"], ["a", "a"], ["a", "a"]),  # more than there are calls
    ],
)
def test_results_that_name_no_call_belong_to_the_next_without_one(
    calls: list[str], given: list[str], expected: list[str]
) -> None:
    results = [result(each, str(at)) for at, each in enumerate(given)]
    whole = results_of(complete([USER, called(*calls), *results]))
    assert [each for each, _ in whole] == expected
    assert sorted(text for _, text in whole) == [str(at) for at in range(len(given))]


def test_a_call_without_a_result_gets_one() -> None:
    said = [called("c0", "c1"), result("c0"), USER]
    whole = with_results(said)
    assert [each.role for each in whole] == ["assistant", "tool", "tool", "user"]
    assert results_of(whole)[1][0] == "c1"
    assert with_results(whole) == whole
    assert with_results([USER]) == (USER,)
    # One that is missing behind the others confuses nobody.
    assert complete(said) == tuple(said)
    # Else the second's result would be taken for the first's.
    assert [each for each, _ in results_of(complete([called("a", "b"), result("b")]))] == ["a", "b"]
    assert complete([result("x"), USER]) == (result("x"), USER)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('{"a": 1}', '{"a": 1}'),
        (' {"a": "\\u00e9"}', ' {"a": "\\u00e9"}'),
        *((each, "{}") for each in ("", " \n", "null", " null ")),
        *((each, None) for each in ('{"a": 1', '{"city": "Ro', "{", "[]", "[1]", '"x"', "7", "{a: 1}", "NaN", "[" * 9999)),
    ],
)  # fmt: skip
def test_arguments_are_an_object(given: str, expected: str | None) -> None:
    message = Message("assistant", (TextPart("Hm"), ToolCall("a", "look", given)), "thoughts")
    assert len(complete([message])) == 1
    first, _ = complete([message, result("a")])
    (call,) = first.calls
    if expected is None:
        assert json.loads(call.arguments) == {UNREADABLE: given}
    else:
        assert call.arguments == expected
    assert (first.text, first.thinking, call.id, call.name) == ("Hm", "thoughts", "a", "look")
    assert complete([first, result("a")]) == (first, result("a"))
