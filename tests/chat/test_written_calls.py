"""Calls written as JSON in an answer's words: what is one, and what stays words."""

import json
from itertools import count

import pytest

from localspec.calls import Tool
from localspec.calls.policy import CallPolicy
from localspec.chat.calling import words_end, written_calls
from localspec.chat.events import CallBegun, CallDelta, CallDone

READ = Tool(
    "read_file",
    {
        "type": "object",
        "properties": {"path": {"type": "string"}, "first_line": {"type": "integer"}},
        "required": ["path"],
    },
)
CALL = '{"name": "read_file", "arguments": {"path": "notes.txt", "first_line": 1}}'


LIST = Tool("list_folder", {"type": "object", "properties": {"path": {"type": "string"}}})


def found(answer: str, policy: CallPolicy | None = None) -> list[tuple[str, dict[str, object]]]:
    numbers = (f"id{number}" for number in count())
    offer = (policy or CallPolicy()).offer([READ.name, LIST.name], [])
    told = list(written_calls(answer, [READ, LIST], offer, lambda: next(numbers)))
    begun, deltas, done = told[::3], told[1::3], told[2::3]
    calls = []
    for first, delta, last in zip(begun, deltas, done, strict=True):
        assert isinstance(first, CallBegun)
        assert isinstance(delta, CallDelta)
        assert isinstance(last, CallDone)
        assert (first.id, first.name, delta.text) == (
            last.call.id,
            last.call.name,
            last.call.arguments,
        )
        calls.append((last.call.name, json.loads(last.call.arguments)))
    return calls


@pytest.mark.parametrize(
    "answer",
    [
        CALL,
        f"```json\n{CALL}\n```",
        f"I will read it.\n```\n{CALL}\n```\n",
        f"```json\n{json.dumps(json.loads(CALL), indent=2)}\n```",
        f"```json\n{CALL.replace('arguments', 'parameters')}\n```",
    ],
)
def test_an_object_with_name_and_arguments_at_the_end_is_a_call(answer: str) -> None:
    assert found(answer) == [("read_file", {"path": "notes.txt", "first_line": 1})]


def test_a_call_may_have_no_arguments_where_none_is_needed() -> None:
    assert found('```json\n{"name": "list_folder"}\n```') == [("list_folder", {})]
    assert found('```json\n{"name": "read_file"}\n```') == []


def test_several_blocks_are_several_calls_in_order() -> None:
    other = CALL.replace("notes", "other")
    calls = found(f"Both:\n```json\n{CALL}\n```\n```json\n{other}\n```")
    assert [arguments["path"] for _, arguments in calls] == ["notes.txt", "other.txt"]


def test_calls_end_where_the_policy_ends_them() -> None:
    listing = '{"name": "list_folder"}'
    answer = "\n".join(f"```json\n{each}\n```" for each in (listing, CALL, CALL))
    once = CallPolicy(at_most=(("read_file", 1),))
    assert [name for name, _ in found(answer)] == ["list_folder", "read_file", "read_file"]
    assert [name for name, _ in found(answer, once)] == ["list_folder", "read_file"]
    assert found(answer, CallPolicy(at_most=(("list_folder", 0),))) == []


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Hello.",
        f"Call it like this: {CALL}",
        f"```json\n{CALL}\n```\nThat is how it is called.",
        f"```json\n{CALL.replace('read_file', 'delete_all')}\n```",
        f"```json\n{CALL.replace('path', 'file')}\n```",
        CALL.replace('"first_line": 1', '"mode": "w"'),
        CALL.replace('"arguments": ', '"why": "x", "arguments": '),
        '{"name": "read_file", "arguments": {"first_line": 1}}',
        '{"name": "read_file", "arguments": "notes.txt"}',
        f"```json\n{CALL[:-1]}\n```",
        "```",
        "[" * 5000,
        '{"a":' * 5000,
    ],
)
def test_anything_else_is_words(answer: str) -> None:
    assert found(answer) == []


@pytest.mark.parametrize(
    ("words", "calls"),
    [
        ("", CALL),
        ("I will read it.\n", f"```json\n{CALL}\n```\n"),
        ("Both: ", f"```\n {CALL}\n```\n\n```json\n{CALL}\n```"),
        (f"```json\n{CALL}\n``` no: ", f"```json\n{CALL}\n```"),
        ("```python\nx = {}\n```\n", f"```json\n{CALL}\n```"),
        ('```json\n{"area": 3}\n``` and `x`.', ""),
        ('{"area": {"name": 3}}', ""),
        ("a ```\nb", ""),
    ],
)
def test_what_may_be_calls_is_held_back_and_no_word_is(words: str, calls: str) -> None:
    answer = words + calls
    assert words_end(answer) == len(words)
    ends = [words_end(answer[:at]) for at in range(len(answer) + 1)]
    assert max(ends) == len(words)
    without_fences = words.replace("`", "")
    if without_fences == words and not words.startswith("{"):
        assert ends[: len(words) + 1] == list(range(len(words) + 1))
