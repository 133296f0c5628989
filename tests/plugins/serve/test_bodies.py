"""Bodies of all interfaces: their fields, and tools by the clients of both makers, with calls and their results."""

import json
from typing import Any

import pytest

from localspec.calls.policy import CallPolicy
from localspec.chat.events import CallBegun, CallDelta, CallDone, Delta
from localspec.messages import ToolCall
from localspec.plugins.serve.answering import json_of
from localspec.plugins.serve.anthropic import MessagesBody
from localspec.plugins.serve.blocks import Blocks
from localspec.plugins.serve.bodies import _ELSEWHERE, _UNSUPPORTED, AnswerFields
from localspec.plugins.serve.llama_server import ContinueBody, InfillBody
from localspec.plugins.serve.ollama import GenerateBody, OllamaChatBody
from localspec.plugins.serve.openai import ChatBody, TextBody
from localspec.plugins.serve.responses import ResponsesBody
from localspec.plugins.serve.tools import anthropic_messages, anthropic_offer, openai_offer
from tests.chat.toy_calls import hermes
from tests.plugins.serve.serving import (
    CHAT,
    COUNT,
    FIM,
    MESSAGES,
    RESPONSES,
    TEXT,
    Served,
    served,
    user,
)


def test_an_answer_ends_no_sooner_than_it_may(server: Served) -> None:
    def length(**more: Any) -> int:
        done = server.chat("hello", max_tokens=30, **more).json()
        return int(done["usage"]["completion_tokens"])

    usual = length()
    assert usual < 20
    assert length(min_tokens=usual - 1) == usual
    assert length(min_tokens=usual + 5) >= usual + 5
    assert length(ignore_eos=True) == 30


def test_nothing_that_was_evaluated_before_is_used_where_that_is_not_wanted(server: Served) -> None:
    def cached(**more: Any) -> int:
        usage = server.chat("hello, as often before", **more).json()["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    cached()
    assert cached() > 20
    assert cached(cache_prompt=False) == 0
    assert cached() > 20


def test_what_an_answer_is_expected_to_be_like_is_counted(server: Served) -> None:
    def details(content: Any) -> Any:
        body = {"max_tokens": 30, "seed": 1, "prediction": {"type": "content", "content": content}}
        done = server.chat("hello", **body).json()
        assert done["choices"][0]["message"]["content"] == plain
        return done["usage"]["completion_tokens_details"]

    done = server.chat("hello", max_tokens=30, seed=1).json()
    plain, tokens = done["choices"][0]["message"]["content"], done["usage"]["completion_tokens"]
    assert "completion_tokens_details" not in done["usage"]
    # What ends the answer is a token, and in no text.
    for content in (plain, [{"type": "text", "text": each} for each in (plain[:2], plain[2:])]):
        assert details(content) == {
            "accepted_prediction_tokens": tokens - 1,
            "rejected_prediction_tokens": 0,
        }
    assert details("Another text.")["accepted_prediction_tokens"] < 4


def test_a_body_that_is_packed_is_refused_by_how(server: Served) -> None:
    answer = server.client.post(CHAT, content=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 400
    assert "'gzip'" in answer.json()["error"]["message"]


TWO = f"{hermes('area', of='Peru')}\n{hermes('now')}"
SCRIPT = {
    "calls": True,
    "answers": {"Peru": f"Wait.\n{TWO}", "1285216": "It is large.", "silent": TWO},
    "otherwise": ["Hello."],
    "n_ctx": 6000,
    "fim": FIM,
}
SCHEMA = {"type": "object", "properties": {"of": {"type": "string"}}, "required": ["of"]}
AREA: dict[str, Any] = {"name": "area", "description": "How large?", "parameters": SCHEMA}
NOW: dict[str, Any] = {"name": "now", "parameters": {"type": "object", "properties": {}}}
TOOLS: dict[str, list[Any]] = {
    CHAT: [{"type": "function", "function": each} for each in (AREA, NOW)],
    RESPONSES: [{"type": "function", **each} for each in (AREA, NOW)],
    MESSAGES: [{"name": each["name"], "input_schema": each["parameters"]} for each in (AREA, NOW)],
}
CALLS = [("area", '{"of": "Peru"}'), ("now", "{}")]
PERU: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [user("Peru?")], "max_tokens": 200},
    RESPONSES: {"input": "Peru?", "max_output_tokens": 200},
    MESSAGES: {"messages": [user("Peru?")], "max_tokens": 200},
}


def test_chat_calls_and_takes_results(client: Any) -> None:
    given = {"model": "a-pair", "tools": TOOLS[CHAT]}
    said: list[Any] = [user("Peru?")]
    (choice,) = client.chat.completions.create(messages=said, **given).choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Wait.")
    calls = choice.message.tool_calls
    assert [(each.function.name, each.function.arguments) for each in calls] == CALLS
    with client.chat.completions.stream(messages=said, **given) as helper:  # OpenAI's own
        whole = helper.get_final_completion().choices[0].message
    assert [(each.function.name, each.function.arguments) for each in whole.tool_calls] == CALLS
    assert len({each.id for each in calls}) == len({each.id for each in whole.tool_calls}) == 2
    said.append(choice.message.model_dump(exclude_none=True))
    said += [{"role": "tool", "tool_call_id": calls[0].id, "content": "1285216"}]
    (last,) = client.chat.completions.create(messages=said, **given).choices
    assert (last.message.content, last.finish_reason) == ("It is large.", "stop")
    assert last.message.tool_calls is None


def test_responses_call_and_take_results(client: Any) -> None:
    given = {"model": "a-pair", "tools": TOOLS[RESPONSES]}
    done = client.responses.create(input="Peru?", **given)
    assert [each.type for each in done.output] == ["message", "function_call", "function_call"]
    assert [(each.name, each.arguments) for each in done.output[1:]] == CALLS
    said = [user("Peru?"), *(each.model_dump(exclude_none=True) for each in done.output)]
    result = {"type": "function_call_output", "output": "1285216"}
    said.append({**result, "call_id": done.output[1].call_id})
    assert client.responses.create(input=said, **given).output_text == "It is large."
    with client.responses.stream(input="silent", **given, tool_choice="required") as stream:
        events = list(stream)
        whole = stream.get_final_response()
    kinds = [each.type.removeprefix("response.function_call_arguments.") for each in events]
    deltas = [each for each, kind in zip(events, kinds, strict=True) if kind == "delta"]
    assert kinds.count("done") == 2
    assert "".join(each.delta for each in deltas if each.output_index == 0) == CALLS[0][1]
    assert [each.type for each in whole.output] == ["function_call"] * 2
    assert [each.sequence_number for each in events] == list(range(len(events)))


def test_messages_call_and_take_results(claude: Any) -> None:
    given = {"model": "a-pair", "max_tokens": 300, "tools": TOOLS[MESSAGES]}
    calls = [(name, json.loads(arguments)) for name, arguments in CALLS]
    done = claude.messages.create(messages=[user("Peru?")], **given)
    assert done.stop_reason == "tool_use"
    assert [each.type for each in done.content] == ["text", "tool_use", "tool_use"]
    assert [(each.name, each.input) for each in done.content[1:]] == calls
    area, now = ({"type": "tool_result", "tool_use_id": each.id} for each in done.content[1:])
    answer = {"role": "assistant", "content": [each.model_dump() for each in done.content]}
    for content in ["1285216", [{"type": "text", "text": "1285216"}]]:
        # Results in another order than the calls: the prompt ends in the last call's.
        said = [user("Peru?"), answer, user([{**now, "content": content}, area])]
        last = claude.messages.create(messages=said, **given)
        assert (last.content[0].text, last.stop_reason) == ("It is large.", "end_turn")
    with claude.messages.stream(messages=[user("Peru?")], **given) as stream:
        kinds = [each.type for each in stream]
        whole = stream.get_final_message()
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 3
    assert [(each.name, each.input) for each in whole.content if each.type == "tool_use"] == calls
    assert whole.stop_reason == "tool_use"


def test_a_tool_of_another_type_is_left_out_with_a_note(server: Served) -> None:
    for path, tools in TOOLS.items():
        other = {"type": "web_search_20250305", "name": "web_search"}
        answer = server.post(path, **PERU[path], tools=[*tools, other])
        assert answer.status_code == 200, answer.text
        assert '"area"' in answer.text
        assert "web_search" in answer.json()["localspec"]["notes"][0]
    for kind in [["x"], {"a": 1}, "web_search", 5]:
        odd = [{"type": kind, "name": "a"}]
        for offer in (openai_offer(odd, None, None), anthropic_offer(odd, None)):
            assert offer.tools == ()
            assert "left out" in offer.notes[0]
    blocks = [{"type": "tool_result", **more} for more in ({"is_error": True}, {"is_error": False}, {})]  # fmt: skip
    results = anthropic_messages([user(blocks)])
    assert [each["is_error"] for each in results] == [True, False, False]


def test_the_servers_rules_hold_beside_those_of_a_request() -> None:
    with served(SCRIPT, rules=CallPolicy(deny=("now",), at_most=(("area", 1),))) as server:
        answer = server.chat("Peru?", tools=TOOLS[CHAT]).json()["choices"][0]["message"]
        assert [each["function"]["name"] for each in answer["tool_calls"]] == ["area"]
        counts = [
            server.post(COUNT, messages=[user("Peru?")], tools=TOOLS[MESSAGES][:most]).json()
            for most in (1, 2)
        ]
        assert counts[0] == counts[1], "the model reads nothing of a tool that is denied"
        body = {**PERU[CHAT], "tools": TOOLS[CHAT][1:], "tool_choice": "required"}
        server.refuse(CHAT, "a call is required, and the rules", **body)


def test_a_call_that_was_cut_off_is_not_in_the_whole_answer() -> None:
    blocks = Blocks()
    events: list[Delta] = [CallBegun("1", "a"), CallDelta("1", '{"of": "Pe')]
    assert all([*blocks.take(event)] for event in events)
    assert [each.kind for each in blocks.whole] == ["text"]
    events = [CallBegun("2", "a"), CallDelta("2", "{}")]
    assert all([*blocks.take(event)] for event in events)
    assert [*blocks.take(CallDone(ToolCall("2", "a", "{}")))] == []
    assert [each.call.id for each in blocks.whole] == ["2"]


@pytest.mark.parametrize("text", ["plain", "é", "a\u2028b\x85c", "😀"])
def test_a_streamed_object_is_ascii(text: str) -> None:
    """Where a line ends is then the same to every client."""
    encoded = json_of({"text": text, "number": 1.5, "none": None})
    assert encoded.isascii()
    assert json.loads(encoded) == {"text": text, "number": 1.5, "none": None}


def test_a_prompt_is_counted_once_for_several_answers(server: Served) -> None:
    one = server.chat("hello, all of you").json()["usage"]
    for n in (2, 3, 5):
        usage = server.chat("hello, all of you", n=n).json()["usage"]
        assert usage["prompt_tokens"] == one["prompt_tokens"]
        assert usage["completion_tokens"] == n * one["completion_tokens"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]
        options = {"include_usage": True}
        text = server.chat("hello, all of you", n=n, stream=True, stream_options=options).text
        assert f'"prompt_tokens":{one["prompt_tokens"]},' in text
    each = [
        server.post(TEXT, prompt=text).json()["usage"]["prompt_tokens"] for text in ("a", "bcd")
    ]
    usage = server.post(TEXT, prompt=["a", "bcd"], n=2).json()["usage"]
    assert usage["prompt_tokens"] == sum(each)


_HARMLESS = {
    # of the program's own, of how an answer is shown or sent, or of how long a model stays
    *(
        "model",
        "localspec",
        "stream",
        "stream_options",
        "keep_alive",
        "response_fields",
        "metadata",
    ),
    *("include", "prompt_cache_key", "safety_identifier", "samplers", "prediction", "truncate"),
    # beside what the interface itself calls so
    *("messages", "prompt", "input"),
    # of which each needs another that is refused
    *("tool_choice", "parallel_tool_calls", "top_logprobs", "n_indent", "t_max_predict_ms", "echo"),
    "add_generation_prompt",
}


def test_a_field_that_is_known_elsewhere_is_read_or_refused_by_its_name() -> None:
    kinds: list[type[AnswerFields]] = [ChatBody, TextBody, ResponsesBody, MessagesBody, InfillBody, ContinueBody, OllamaChatBody, GenerateBody]  # fmt: skip
    every = {name for kind in kinds for name in kind.__struct_fields__}
    for kind in kinds:
        unread = every - {*kind.__struct_fields__} | {*kind.unread}
        assert unread - _HARMLESS <= _UNSUPPORTED.keys() | _ELSEWHERE, kind


def test_a_response_has_the_fields_that_its_schema_requires(server: Served) -> None:
    given = {"prompt_cache_key": "k", "safety_identifier": "s", "top_logprobs": 2}
    options = {"presence_penalty": 0.5, "frequency_penalty": 0.25}
    whole = server.post(RESPONSES, input="hello", **given, **options).json()
    usual_ones = {"background": False, "max_tool_calls": None, "service_tier": "default"}
    fields = {**given, **options, **usual_ones}
    assert {name: whole[name] for name in fields} == fields
    assert whole["completed_at"] >= whole["created_at"]
    usual = server.post(RESPONSES, input="hello", max_output_tokens=1).json()
    names = ("prompt_cache_key", "safety_identifier", "top_logprobs", "completed_at")
    assert [usual[name] for name in names] == [None, None, 0, None]
    text = server.post(RESPONSES, input="hello", stream=True).text
    events = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: ")]
    added = {"localspec", "timings", "speculation"}
    assert events[0]["response"].keys() == events[-1]["response"].keys() - added
