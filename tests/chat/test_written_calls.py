"""Calls written as JSON in an answer's words: what is one, and what stays words."""

import json
from itertools import count

import pytest

from localspec.calls import Tool
from localspec.calls.policy import CallPolicy
from localspec.chat.calling import words_end, written_calls
from localspec.chat.events import CallBegun, CallDelta, CallDone

PATH, LINE = {"path": {"type": "string"}}, {"first_line": {"type": "integer"}}
READ = Tool("read_file", {"type": "object", "properties": PATH | LINE, "required": ["path"]})
LIST = Tool("list_folder", {"type": "object", "properties": PATH})
CALL = '{"name": "read_file", "arguments": {"path": "notes.txt", "first_line": 1}}'
LISTING = '{"name": "list_folder"}'


def block(*calls: str) -> str:
    return "\n".join(f"```json\n{each}\n```" for each in calls)


def parsed(answer: str, policy: CallPolicy | None = None) -> list[tuple[str, dict[str, object]]]:
    numbers = (f"id{number}" for number in count())
    offer = (policy or CallPolicy()).offer([READ.name, LIST.name], [])
    events = list(written_calls(answer, [READ, LIST], offer, lambda: next(numbers)))
    calls = [each.call for each in events if isinstance(each, CallDone)]
    assert events == [
        event
        for call in calls
        for event in (
            CallBegun(call.id, call.name), CallDelta(call.id, call.arguments), CallDone(call),
        )
    ]  # fmt: skip
    return [(call.name, json.loads(call.arguments)) for call in calls]


@pytest.mark.parametrize(
    "answer",
    [
        CALL,
        block(CALL),
        f"I will read it.\n```\n{CALL}\n```\n",
        block(json.dumps(json.loads(CALL), indent=2)),
        block(CALL.replace("arguments", "parameters")),
    ],
)
def test_an_object_with_name_and_arguments_at_the_end_is_a_call(answer: str) -> None:
    assert parsed(answer) == [("read_file", {"path": "notes.txt", "first_line": 1})]


def test_several_blocks_are_calls_in_order_up_to_where_the_policy_ends_them() -> None:
    calls = parsed(f"Both:\n{block(CALL, CALL.replace('notes', 'other'))}")
    assert [arguments["path"] for _, arguments in calls] == ["notes.txt", "other.txt"]
    assert parsed(block(LISTING)) == [("list_folder", {})], "where no argument is needed"
    answer = block(LISTING, CALL, CALL)
    once = CallPolicy(at_most=(("read_file", 1),))
    assert [name for name, _ in parsed(answer)] == ["list_folder", "read_file", "read_file"]
    assert [name for name, _ in parsed(answer, once)] == ["list_folder", "read_file"]
    assert parsed(answer, CallPolicy(at_most=(("list_folder", 0),))) == []


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Hello.",
        f"Call it like this: {CALL}",
        f"{block(CALL)}\nThat is how it is called.",
        block(CALL.replace("read_file", "delete_all")),
        block(CALL.replace("path", "file")),
        block('{"name": "read_file"}'),
        CALL.replace('"first_line": 1', '"mode": "w"'),
        CALL.replace('"arguments": ', '"why": "x", "arguments": '),
        '{"name": "read_file", "arguments": {"first_line": 1}}',
        '{"name": "read_file", "arguments": "notes.txt"}',
        block(CALL[:-1]),
        "```",
        "[" * 5000,
        '{"a":' * 5000,
    ],
)
def test_anything_else_is_words(answer: str) -> None:
    assert parsed(answer) == []


@pytest.mark.parametrize(
    ("words", "calls"),
    [
        ("", CALL),
        ("I will read it.\n", block(CALL) + "\n"),
        ("Both: ", f"```\n {CALL}\n```\n\n{block(CALL)}"),
        (f"{block(CALL)} no: ", block(CALL)),
        ("```python\nx = {}\n```\n", block(CALL)),
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
    if "`" not in words and not words.startswith("{"):
        assert ends[: len(words) + 1] == list(range(len(words) + 1))
