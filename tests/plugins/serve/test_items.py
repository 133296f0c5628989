"""Items of responses that other providers made: what can be read is, the rest is left out with a note."""

import json
from typing import Any

import pytest

from localspec.messages import ToolCall, ToolResult
from tests.plugins.serve.serving import RESPONSES, Served, user

SCRIPT = {"otherwise": ["Hello."], "calls": True}
ASKED, AGAIN = user("Tidy up."), user("And now?")


def calls_and_results(server: Served, *items: Any) -> tuple[list[ToolCall], list[ToolResult], Any]:
    answer = server.post(RESPONSES, input=[ASKED, *items, AGAIN])
    assert answer.status_code == 200, answer.text
    parts = [part for each in server.request.messages for part in each.parts]
    calls = [each for each in parts if isinstance(each, ToolCall)]
    results = [each for each in parts if isinstance(each, ToolResult)]
    return calls, results, answer.json()["localspec"].get("notes", [])


@pytest.mark.parametrize(
    ("call", "result", "name", "arguments", "text"),
    [
        (
            {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin\n"},
            {"type": "custom_tool_call_output", "output": "Done!"},
            "apply_patch",
            {"input": "*** Begin\n"},
            "Done!",
        ),
        (
            {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"]}, "id": "x"},
            {"type": "local_shell_call_output", "output": "a.py"},
            "local_shell",
            {"type": "exec", "command": ["ls"]},
            "a.py",
        ),
        (
            {"type": "shell_call", "action": {"commands": ["ls", "pwd"]}, "status": "completed"},
            {"type": "shell_call_output", "output": [{"stdout": "a.py\n", "stderr": ""}]},
            "shell",
            {"commands": ["ls", "pwd"]},
            '[{"stdout": "a.py\\n", "stderr": ""}]',
        ),
        (
            {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}},
            {"type": "apply_patch_call_output", "output": None, "status": "completed"},
            "apply_patch",
            {"type": "delete_file", "path": "a"},
            "",
        ),
        (
            {"type": "tool_search_call", "arguments": {"query": "mail"}},
            {"type": "tool_search_call_output", "output": [{"type": "text", "text": "none"}]},
            "tool_search",
            {"query": "mail"},
            "none",
        ),
        (
            {"type": "function_call", "name": "f", "arguments": '{"a": 1}'},
            {"type": "function_call_output", "output": {"type": "text", "text": "2"}},
            "f",
            {"a": 1},
            "2",
        ),
    ],
)
def test_calls_of_every_kind_are_calls(
    server: Served, call: Any, result: Any, name: str, arguments: Any, text: str
) -> None:
    (made,), (got,), notes = calls_and_results(
        server, {"call_id": "c1", **call}, {"call_id": "c1", **result}
    )
    assert (made.id, made.name, json.loads(made.arguments)) == ("c1", name, arguments)
    assert (got.call_id, got.text, notes) == ("c1", text, [])


def test_a_call_that_a_provider_carried_out_has_its_result_in_it(server: Served) -> None:
    call = {"type": "mcp_call", "id": "m1", "name": "roll", "arguments": '{"n": 2}'}
    rows: list[tuple[dict[str, Any], str]] = [
        ({"output": "7"}, "7"),
        ({"error": "no dice", "output": None}, "no dice"),
    ]
    for outcome, text in rows:
        (made,), (got,), _ = calls_and_results(server, {**call, "server_label": "d", **outcome})
        assert (made.name, made.arguments, got.text) == ("roll", '{"n": 2}', text)


def test_what_only_its_provider_can_use_is_left_out_with_a_note(server: Served) -> None:
    items: list[dict[str, Any]] = [
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}},
        {"type": "file_search_call", "id": "fs_1", "queries": ["x"], "results": None},
        {"type": "image_generation_call", "id": "ig_1", "result": "aGk="},
        {"type": "compaction", "encrypted_content": "gAAA"},
        {"type": "mcp_list_tools", "server_label": "d", "tools": []},
        {"type": "something_of_2027", "x": [1]},
    ]
    calls, results, (note,) = calls_and_results(server, *items, items[0])
    assert (calls, results) == ([], [])
    assert [each.role for each in server.request.messages] == ["user", "user"]
    assert note.endswith(": " + ", ".join(each["type"] for each in items))
    _, _, notes = calls_and_results(server, {"type": "item_reference", "id": "rs_1"})
    assert notes == []


def test_what_would_have_to_be_stored_here_is_refused_by_its_number(server: Served) -> None:
    for reference in ({"id": "msg_1"}, {"id": "fc_1"}, {"id": ["rs_1"]}, {}):
        items = [ASKED, {"type": "item_reference", **reference}]
        server.refuse(RESPONSES, "item 2 refers to one that is not stored here", input=items)
    kinds: list[Any] = [["message"], {}, 5]
    for wrong in ({"type": each} for each in kinds):
        server.refuse(RESPONSES, "the type of item 1 is not text", input=[wrong])
    for other in ("x", 5, None, ["x"]):
        server.refuse(RESPONSES, "item 1 is not an object", input=[other])


def test_what_a_reply_refused_and_said_in_parts_is_read(server: Served) -> None:
    refusal = {"type": "refusal", "refusal": "I will not."}
    said = {"type": "message", "role": "assistant", "content": [refusal], "id": "msg_1"}
    calls_and_results(server, said)
    assert server.request.messages[1].text == "I will not."


def test_a_response_has_the_fields_that_its_schema_requires(server: Served) -> None:
    given = {"prompt_cache_key": "k", "safety_identifier": "s", "top_logprobs": 2}
    options = {"presence_penalty": 0.5, "frequency_penalty": 0.25}
    whole = server.post(RESPONSES, input="hello", **given, **options).json()
    fields = {
        **given,
        **options,
        "background": False,
        "max_tool_calls": None,
        "service_tier": "default",
    }
    assert {name: whole[name] for name in fields} == fields
    assert whole["completed_at"] >= whole["created_at"]
    usual = server.post(RESPONSES, input="hello", max_output_tokens=1).json()
    names = ("prompt_cache_key", "safety_identifier", "top_logprobs", "completed_at")
    assert [usual[name] for name in names] == [None, None, 0, None]
    text = server.post(RESPONSES, input="hello", stream=True).text
    events = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: ")]
    assert events[0]["response"].keys() == events[-1]["response"].keys() - {
        "localspec",
        "timings",
        "speculation",
    }
