"""Tools by the clients of both makers: calls told as each interface has them, and results taken back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from localspec.calls.policy import CallPolicy
from tests.chat.toy_calls import hermes
from tests.serve.clients import Package
from tests.serve.serving import Served, served

if TYPE_CHECKING:
    import anthropic
    import openai
else:
    anthropic = Package("anthropic")
    openai = Package("openai")

TWO = f"{hermes('area', of='Peru')}\n{hermes('now')}"
SCRIPT = {
    "calls": True,
    "answers": {"Peru": f"Wait.\n{TWO}", "1285216": "It is large.", "silent": TWO},
    "otherwise": ["Hello."],
    "n_ctx": 6000,
}
SCHEMA = {"type": "object", "properties": {"of": {"type": "string"}}, "required": ["of"]}
AREA: dict[str, Any] = {"name": "area", "description": "How large?", "parameters": SCHEMA}
NOW: dict[str, Any] = {"name": "now", "parameters": {"type": "object", "properties": {}}}
CHAT: list[Any] = [{"type": "function", "function": each} for each in (AREA, NOW)]
RESPONSES: list[Any] = [{"type": "function", **each} for each in (AREA, NOW)]
ANTHROPIC: list[Any] = [
    {"name": each["name"], "input_schema": each["parameters"]} for each in (AREA, NOW)
]


def test_chat_calls_and_takes_results(client: openai.OpenAI) -> None:
    said: list[Any] = [{"role": "user", "content": "Peru?"}]
    done = client.chat.completions.create(model="a-pair", messages=said, tools=CHAT)
    (choice,) = done.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Wait."
    calls: Any = choice.message.tool_calls
    assert [(each.function.name, each.function.arguments) for each in calls] == [
        ("area", '{"of": "Peru"}'),
        ("now", "{}"),
    ]
    said.append(choice.message.model_dump(exclude_none=True))
    said += [{"role": "tool", "tool_call_id": calls[0].id, "content": "1285216"}]
    last = client.chat.completions.create(model="a-pair", messages=said, tools=CHAT)
    assert (last.choices[0].message.content, last.choices[0].finish_reason) == (
        "It is large.",
        "stop",
    )
    assert last.choices[0].message.tool_calls is None


def test_a_chat_s_stream_tells_each_call_by_its_place(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="a-pair", messages=[{"role": "user", "content": "Peru?"}], tools=CHAT, stream=True
    )
    chunks = [each.choices[0] for each in stream]
    deltas = [each for chunk in chunks for each in chunk.delta.tool_calls or ()]
    for at, (name, arguments) in enumerate([("area", '{"of": "Peru"}'), ("now", "{}")]):
        first, *others = [each.function for each in deltas if each.index == at]
        assert first is not None
        assert (first.name, first.arguments) == (name, "")
        assert "".join((each and each.arguments) or "" for each in others) == arguments
        assert all(each is not None and each.name is None for each in others)
    assert len({each.id for each in deltas if each.id}) == 2
    assert "".join(each.delta.content or "" for each in chunks) == "Wait."
    assert [each.finish_reason for each in chunks if each.finish_reason] == ["tool_calls"]


def test_openai_s_own_helper_reads_the_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="a-pair", messages=[{"role": "user", "content": "silent"}], tools=CHAT
    ) as stream:
        whole = stream.get_final_completion().choices[0]
    assert whole.finish_reason == "tool_calls"
    assert whole.message.tool_calls is not None
    assert [each.function.name for each in whole.message.tool_calls] == ["area", "now"]


def test_responses_call_and_take_results(client: openai.OpenAI) -> None:
    asked: list[Any] = [{"role": "user", "content": "Peru?"}]
    done = client.responses.create(model="a-pair", input=asked, tools=RESPONSES)
    assert [each.type for each in done.output] == ["message", "function_call", "function_call"]
    call = done.output[1]
    assert call.type == "function_call"
    assert (call.name, call.arguments) == ("area", '{"of": "Peru"}')
    asked += [each.model_dump(exclude_none=True) for each in done.output]
    asked.append({"type": "function_call_output", "call_id": call.call_id, "output": "1285216"})
    last = client.responses.create(model="a-pair", input=asked, tools=RESPONSES)
    assert last.output_text == "It is large."
    assert last.model_extra is not None


def test_a_stream_of_responses_tells_arguments(client: openai.OpenAI) -> None:
    with client.responses.stream(
        model="a-pair", input="silent", tools=RESPONSES, tool_choice="required"
    ) as stream:
        events = list(stream)
        whole = stream.get_final_response()
    kinds = [each.type for each in events]
    assert kinds.count("response.function_call_arguments.done") == 2
    told = "".join(
        each.delta
        for each in events
        if each.type == "response.function_call_arguments.delta" and each.output_index == 0
    )
    assert told == '{"of": "Peru"}'
    assert [each.type for each in whole.output] == ["function_call"] * 2
    assert [each.sequence_number for each in events] == list(range(len(events)))


def test_messages_call_and_take_results(claude: anthropic.Anthropic) -> None:
    said: list[Any] = [{"role": "user", "content": "Peru?"}]
    done = claude.messages.create(model="a-pair", max_tokens=300, messages=said, tools=ANTHROPIC)
    assert done.stop_reason == "tool_use"
    assert [each.type for each in done.content] == ["text", "tool_use", "tool_use"]
    call = done.content[1]
    assert call.type == "tool_use"
    assert (call.name, call.input) == ("area", {"of": "Peru"})
    said.append({"role": "assistant", "content": [each.model_dump() for each in done.content]})
    result = {"type": "tool_result", "tool_use_id": call.id}
    for content in ("1285216", [{"type": "text", "text": "1285216"}]):
        results = [{**result, "content": content}, {**result, "tool_use_id": done.content[2].id}]  # type: ignore[union-attr]
        back: Any = {"role": "user", "content": results[::-1]}
        last = claude.messages.create(
            model="a-pair",
            max_tokens=99,
            messages=[*said, back],
            tools=ANTHROPIC,
        )
        assert last.content[0].type == "text"
        assert last.content[0].text == "It is large."
        assert last.stop_reason == "end_turn"


def test_a_stream_of_messages_tells_arguments(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(
        model="a-pair",
        max_tokens=300,
        messages=[{"role": "user", "content": "Peru?"}],
        tools=ANTHROPIC,
        tool_choice={"type": "auto"},
    ) as stream:
        kinds = [each.type for each in stream]
        whole = stream.get_final_message()
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 3
    calls = [each for each in whole.content if each.type == "tool_use"]
    assert [(each.name, each.input) for each in calls] == [("area", {"of": "Peru"}), ("now", {})]
    assert whole.stop_reason == "tool_use"


CHOICES: list[tuple[Any, Any, Any, set[str]]] = [
    ("none", {"type": "none"}, True, set()),
    ("required", {"type": "any"}, False, {"area", "now"}),
    (
        {"type": "function", "function": {"name": "now"}},
        {"type": "tool", "name": "now"},
        False,
        {"now"},
    ),
]


@pytest.mark.parametrize(("choice", "theirs", "parallel", "called"), CHOICES)
def test_a_choice_holds_in_every_interface(
    server: Served, choice: Any, theirs: Any, parallel: bool, called: set[str]
) -> None:
    plain = {"model": "a-pair", "max_tokens": 200}
    chat = server.client.post(
        "/v1/chat/completions",
        json={**plain, "messages": [{"role": "user", "content": "Peru?"}], "tools": CHAT, "tool_choice": choice, "parallel_tool_calls": parallel},
    ).json()  # fmt: skip
    named = {"type": "function", "name": "now"} if isinstance(choice, dict) else choice
    responses = server.client.post(
        "/v1/responses",
        json={"model": "a-pair", "max_output_tokens": 200, "input": "Peru?", "tools": RESPONSES, "tool_choice": named, "parallel_tool_calls": parallel},
    ).json()  # fmt: skip
    messages = server.client.post(
        "/v1/messages",
        json={**plain, "messages": [{"role": "user", "content": "Peru?"}], "tools": ANTHROPIC, "tool_choice": {**theirs, "disable_parallel_tool_use": not parallel}},
    ).json()  # fmt: skip
    names = [
        [each["function"]["name"] for each in chat["choices"][0]["message"].get("tool_calls", ())],
        [each["name"] for each in responses["output"] if each["type"] == "function_call"],
        [each["name"] for each in messages["content"] if each["type"] == "tool_use"],
    ]
    for each in names:
        assert set(each) <= called
        assert len(each) == (1 if called else 0)


def test_tools_of_other_types_are_left_out_with_a_note(server: Served) -> None:
    other = [
        {"type": "web_search"},
        {"type": "file_search"},
        {"type": "web_search_20250305", "name": "web_search"},
    ]
    chat = server.chat("Peru?", tools=[*CHAT, other[0]], max_tokens=200).json()
    assert chat["choices"][0]["finish_reason"] == "tool_calls"
    assert "web_search" in chat["localspec"]["notes"][0]
    for path, body in {
        "/v1/responses": {"input": "hello", "tools": other[:1]},
        "/v1/messages": {
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": 9,
            "tools": other[1:],
        },
    }.items():
        answer = server.client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        assert "web_search" in answer.json()["localspec"]["notes"][0]


def test_what_a_schema_asks_beyond_our_means_is_an_error_only_where_it_is_strict(
    server: Served,
) -> None:
    odd = {"type": "object", "properties": {"of": {"type": "string", "not": {"minLength": 3}}}}
    for strict, status in ((True, 400), (False, 200)):
        function = {"name": "area", "parameters": odd, "strict": strict}
        answer = server.chat("Peru?", tools=[{"type": "function", "function": function}])
        assert answer.status_code == status, answer.text
    assert json.loads(
        answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    ) == {"of": "Peru"}


def test_the_server_s_rules_hold_beside_those_of_a_request() -> None:
    with served(SCRIPT, rules=CallPolicy(deny=("now",), at_most=(("area", 1),))) as server:
        answer = server.chat("Peru?", tools=CHAT).json()["choices"][0]["message"]
        assert [each["function"]["name"] for each in answer["tool_calls"]] == ["area"]
        both, first = server.client.post, {"messages": [{"role": "user", "content": "Peru?"}]}
        counted = [
            both("/v1/messages/count_tokens", json={**first, "tools": some}).json()["input_tokens"]
            for some in (ANTHROPIC, ANTHROPIC[:1])
        ]
        assert counted[0] == counted[1], "the model is not told of what is denied"
        refused = server.chat("Peru?", tools=CHAT[1:], tool_choice="required")
        assert refused.status_code == 400
        assert "a call is required, and the rules" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "more", "told"),
    [
        ("chat/completions", {"tools": {}}, "tools is not a list"),
        ("chat/completions", {"tools": [3]}, "tool 1 is not an object"),
        ("chat/completions", {"tools": [{"type": "function"}]}, "tool 1 has no name"),
        ("chat/completions", {"tools": CHAT, "tool_choice": "often"}, "choose auto"),
        ("chat/completions", {"tool_choice": "required"}, "there are no functions"),
        (
            "chat/completions",
            {"tools": CHAT, "tool_choice": {"type": "function", "function": {"name": "rm"}}},
            "none of the tools",
        ),
        ("chat/completions", {"tools": [*CHAT, *CHAT]}, "two tools are called area"),
        ("responses", {"tools": [{"type": "function", "name": "a b"}]}, "letters, digits"),
        ("responses", {"input": [{"type": "function_call"}]}, "the id of call 1"),
        ("messages", {"tools": [{"name": "f", "input_schema": 3}]}, "not a schema"),
        (
            "messages",
            {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
            "tool_call_id",
        ),
        (
            "messages",
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]}]},
            "add their results",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_one_line(
    server: Served, path: str, more: dict[str, Any], told: str
) -> None:
    hello = [{"role": "user", "content": "hello"}]
    usual = {"input": "hello"} if path == "responses" else {"messages": hello, "max_tokens": 9}
    answer = server.client.post(f"/v1/{path}", json={**usual, **more})
    assert answer.status_code == 400
    assert told in answer.json()["error"]["message"]
    assert "\n" not in answer.json()["error"]["message"]
