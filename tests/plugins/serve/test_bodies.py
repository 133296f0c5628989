"""Bodies of all interfaces: their fields, and tools by the clients of both makers, with calls and their results."""

import json
from dataclasses import replace
from typing import Any

import pytest

from localspec.calls.policy import CallPolicy
from localspec.chat.events import CallBegun, CallDelta, CallDone, Delta
from localspec.engine.protocol import Count
from localspec.messages import ToolCall
from localspec.plugins.serve.answering import json_of
from localspec.plugins.serve.blocks import Blocks
from localspec.plugins.serve.tools import anthropic_messages, anthropic_offer, openai_offer
from tests.chat.toy_calls import hermes
from tests.plugins.serve.serving import (
    CHAT,
    COUNT,
    FIM,
    INFILL,
    LIMITS,
    MESSAGES,
    RESPONSES,
    TEXT,
    Served,
    bodies,
    error_in,
    served,
    user,
)
from tests.support.checks import refuses

BODIES = bodies("hello", 20)
SET = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
UNIQUE = {"type": "object", "properties": {"uniqueItems": SET}, "required": ["uniqueItems"]}
EVERY = pytest.mark.parametrize("path", BODIES)


@EVERY
def test_a_field_that_is_null_is_absent(server: Served, path: str) -> None:
    names = ("stream", "model", "temperature", "stop", "stop_sequences", "tools", "system", "text", "localspec", "grammar", "guided_json", "include")  # fmt: skip
    body = {**BODIES[path], **dict.fromkeys(names), "stream_options": {"include_usage": None}}
    assert server.post(path, **body).status_code == 200


@EVERY
def test_what_is_not_supported_is_refused_by_name_unless_it_changes_nothing(
    server: Served, path: str
) -> None:
    rows: list[tuple[str, Any, Any]] = [
        ("structured_outputs", {"regex": "x"}, {}),
        ("mirostat", 2, 0),
        ("stop_token_ids", [5], []),
        ("prompt_logprobs", 1, None),
        ("return_token_ids", True, False),
        ("ebnf", "root ::= x", ""),
    ]
    for name, value, nothing in rows:
        server.refuse(path, f"{name} is not supported", **{**BODIES[path], name: value})
        assert server.post(path, **BODIES[path], **{name: nothing}).status_code == 200


@EVERY
def test_fields_that_every_interface_takes(server: Served, path: str) -> None:
    assert server.post(path, **BODIES[path], service_tier="flex", cache_prompt=True).status_code == 200  # fmt: skip
    usual = server.request
    assert (usual.most_cached, usual.options.min_tokens, usual.options.ignore_eos) == (
        None,
        0,
        False,
    )
    more = {"cache_prompt": False, "min_tokens": 15, "ignore_eos": True, "seed": 7}
    given = {"temperature": 0.3, "top_p": 0.7, "top_k": 9, "min_p": 0.2, "repeat_penalty": 1.1}
    assert server.post(path, **BODIES[path], **more, **given).status_code == 200
    request, options = server.request, server.request.options
    assert (request.most_cached, options.min_tokens, options.ignore_eos) == (0, 15, True)
    assert {name: getattr(options.sampling, name) for name in given} == given
    assert options.seed == 7
    rows: list[tuple[str, Any, str]] = [
        ("min_tokens", -1, "0 or more"),
        ("min_tokens", 21, "min_tokens 21 and max_tokens 20"),
        ("min_tokens", 2**200, "min_tokens"),
        ("ignore_eos", "yes", "ignore_eos"),
        ("cache_prompt", 1, "cache_prompt"),
    ]
    for name, value, word in rows:
        server.refuse(path, word, **{**BODIES[path], name: value})


@EVERY
def test_an_answer_ends_no_sooner_than_it_may(server: Served, path: str) -> None:
    def length(**more: Any) -> int:
        done = server.post(path, **{**BODIES[path], LIMITS[path]: 30}, **more).json()
        usage = done.get("usage", done)
        (tokens,) = (usage[name] for name in ("completion_tokens", "output_tokens", "tokens_predicted", "eval_count") if name in usage)  # fmt: skip
        return int(tokens)

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
    for wrong in ("x", {"type": "content"}, {"type": "code", "content": "x"}, {"content": 3}):
        server.refuse(CHAT, "prediction", messages=[user("hello")], prediction=wrong)


@EVERY
def test_what_only_some_interfaces_read_is_refused_by_the_others(server: Served, path: str) -> None:
    for name, value in [
        ("grammar", 'root ::= "yes"'),
        ("json_schema", {"type": "object"}),
        ("response_format", {"type": "json_object"}),
        ("regex", "yes"),
        ("stop", ["x"]),
        ("logit_bias", {"1": -100}),
        ("samplers", ["top_k", "infill"]),
    ]:
        answer = server.post(path, **BODIES[path], **{name: value})
        if answer.status_code == 400:
            assert error_in(answer.json())["message"].startswith(f"{name} is not supported")
            return
        options = server.request.options
        assert server.post(path, **BODIES[path]).status_code == 200
        changed = options != replace(server.request.options, seed=options.seed)
        assert changed or name == "samplers", "editors send them"


@pytest.mark.parametrize(
    ("path", "more", "think"),
    [
        (CHAT, {}, None),
        (CHAT, {"reasoning_effort": "none"}, "off"),
        (CHAT, {"reasoning_effort": "xhigh"}, "high"),
        (CHAT, {"reasoning_budget_tokens": 64}, "64"),
        (CHAT, {"reasoning_budget_tokens": -1}, "on"),
        (CHAT, {"reasoning_budget_tokens": -1, "reasoning_effort": "low"}, "low"),
        (CHAT, {"reasoning_budget_tokens": 500, "reasoning_effort": "low"}, "500"),
        (CHAT, {"chat_template_kwargs": {"enable_thinking": False}}, "off"),
        (CHAT, {"chat_template_kwargs": {"thinking": True, "reasoning_effort": "low"}}, "low"),
        (CHAT, {"chat_template_kwargs": {"thinking": False}, "reasoning_effort": "high"}, "off"),
        (CHAT, {"chat_template_kwargs": {"thinking_budget": 9}}, "9"),
        (CHAT, {"thinking": {"type": "enabled", "clear_thinking": True}}, "on"),
        (RESPONSES, {"reasoning": {"effort": "medium", "summary": "auto"}}, "medium"),
        (MESSAGES, {"thinking": {"type": "enabled", "budget_tokens": 2048}}, "2048"),
        (MESSAGES, {"thinking": {"type": "disabled"}}, "off"),
        (MESSAGES, {"thinking": {"type": "adaptive"}}, "on"),
        (MESSAGES, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, "high"),
        (MESSAGES, {"output_config": {"effort": "low"}}, None),
    ],
)
def test_how_to_think_is_read_in_each_interfaces_form(
    server: Served, path: str, more: dict[str, Any], think: str | None
) -> None:
    answer = server.post(path, **BODIES[path], **more)
    assert answer.status_code == 200, answer.text
    assert server.request.options.think == think
    notes = answer.json()["localspec"].get("notes", [])
    assert len(notes) == (think is not None), "the script's template knows no thinking"


@pytest.mark.parametrize(
    ("path", "more", "word"),
    [
        (CHAT, {"reasoning_effort": "hard"}, "reasoning_effort is 'hard': choose one of none"),
        (CHAT, {"reasoning_effort": 3}, "reasoning_effort"),
        (CHAT, {"chat_template_kwargs": {"style": "x"}}, "does not read 'style'"),
        (CHAT, {"thinking": {"type": "enabled", "clear_thinking": False}}, "'clear_thinking'"),
        (CHAT, {"chat_template_kwargs": {"messages": []}}, "has 'messages', which cannot be set"),
        (CHAT, {"chat_template_kwargs": {"a b": 1}}, "has 'a b', which cannot be set"),
        (CHAT, {"chat_template_kwargs": {"thinking": "no"}}, "true or false"),
        (CHAT, {"chat_template_kwargs": {"thinking_budget": True}}, "a whole number"),
        (CHAT, {"chat_template_kwargs": [1]}, "chat_template_kwargs"),
        (CHAT, {"reasoning_budget_tokens": 1 << 40}, "reasoning_budget_tokens"),
        (CHAT, {"chat_template_kwargs": {"thinking_budget": 1 << 40}}, "kwargs.thinking_budget is"),
        (
            CHAT,
            {"chat_template_kwargs": {"reasoning_effort": "hard"}},
            "kwargs.reasoning_effort is",
        ),
        (RESPONSES, {"reasoning": {"effort": "hard"}}, "reasoning.effort is 'hard'"),
        (MESSAGES, {"thinking": {"type": "enabled", "budget_tokens": 1 << 40}}, "budget_tokens is"),
        (
            MESSAGES,
            {"thinking": {"type": "enabled"}, "output_config": {"effort": "hard"}},
            "effort",
        ),
        (COUNT, {"thinking": {"type": "always"}}, "always"),
        (TEXT, {"reasoning_effort": "low"}, "reasoning_effort is not supported"),
        (TEXT, {"reasoning_budget_tokens": 9}, "reasoning_budget_tokens is not supported"),
        (TEXT, {"chat_template_kwargs": {"enable_thinking": False}}, "not supported"),
    ],
)
def test_how_to_think_is_refused_where_it_is_wrong(
    server: Served, path: str, more: dict[str, Any], word: str
) -> None:
    server.refuse(path, word, **BODIES.get(path, {"messages": [user("hello")]}), **more)


def test_tokens_are_counted_of_a_prompt_for_the_thoughts_that_are_wanted(server: Served) -> None:
    for thinking, think in ((None, None), ({"type": "disabled"}, "off")):
        answer = server.post(COUNT, messages=[user("hello")], thinking=thinking)
        assert answer.status_code == 200, answer.text
        question = server.asked[-1]
        assert isinstance(question, Count)
        assert question.options.think == think


@EVERY
def test_a_limit_of_minus_one_is_none_and_of_zero_gives_no_text(server: Served, path: str) -> None:
    for stream in [False, True]:
        body = {**BODIES[path], "stream": stream}
        assert server.post(path, **{**body, LIMITS[path]: -1}).status_code == 200
        assert server.request.options.max_tokens is None
        none = server.post(path, **{**body, LIMITS[path]: 0})
        assert none.status_code == 200, none.text
        assert server.request.options.max_tokens == 1
        assert not any(f'"{each}"' in none.text for each in ("H", "He", "Hello."))


def test_a_schema_that_is_not_strict_is_loosened(server: Served) -> None:
    def status(schema: object, strict: bool | None) -> int:
        described = {"name": "answer", "schema": schema, "strict": strict}
        form = {"type": "json_schema", "json_schema": described}
        flat = {"format": {"type": "json_schema", **described}}
        forms: dict[str, dict[str, Any]] = {CHAT: {"response_format": form}, RESPONSES: {"text": flat}}  # fmt: skip
        for path, more in forms.items():
            answer = server.post(path, **{**BODIES[path], **more, LIMITS[path]: 1})
        return answer.status_code

    assert status(UNIQUE, True) == 400
    assert status(UNIQUE, None) == 200
    plain = {name: each for name, each in SET.items() if name != "uniqueItems"}
    schema = json.loads(str(server.request.options.json_schema))
    assert schema == {**UNIQUE, "properties": {"uniqueItems": plain}}
    assert status({**UNIQUE, "not": {"type": "null"}, "if": True}, False) == 200
    assert json.loads(str(server.request.options.json_schema))["required"] == ["uniqueItems"]
    both = {"a": {"enum": [1, 2]}, "b": {"type": "string", "pattern": "(?=b)"}}
    assert status({"type": "object", "properties": both}, False) == 200
    loose = json.loads(str(server.request.options.json_schema))["properties"]
    assert loose == {"a": {"enum": [1, 2]}, "b": {"type": "string"}}
    for listed in ({"type": "array", "contains": {"const": 1}}, {"type": ["array", "null"], "if": {}}):  # fmt: skip
        assert status(listed, False) == 200
        assert json.loads(str(server.request.options.json_schema)) == {"type": listed["type"]}


def test_grammars_and_schemas_reach_the_engine(server: Served) -> None:
    for path in [CHAT, TEXT, INFILL]:
        server.refuse(path, "grammar", **BODIES[path], grammar="root ::= (")
        body = {**BODIES[path], LIMITS[path]: 1}
        server.post(path, **body, grammar='root ::= "yes"')
        assert server.request.options.grammar == 'root ::= "yes"'
        server.post(path, **body, json_schema={})
        assert server.request.options.json_schema == "{}"
    form = {"type": "json_schema", "schema": {"type": "object"}}
    for more in ({"output_config": {"format": form}}, {"output_format": form}):
        server.post(MESSAGES, **BODIES[MESSAGES], **more)
        assert json.loads(str(server.request.options.json_schema)) == {"type": "object"}
    for wrong in ({"type": "x"}, {"type": "json_schema", "schema": UNIQUE}):
        server.refuse(MESSAGES, "", **BODIES[MESSAGES], output_config={"format": wrong})
    headers = {"Content-Encoding": "gzip"}
    answer = server.client.post(CHAT, content=b"\x1f\x8b", headers=headers)
    assert answer.status_code == 400
    assert "'gzip'" in answer.json()["error"]["message"]
    (said,) = BODIES[CHAT]["messages"]
    answer = server.post(CHAT, messages=[said, {"role": "assistant", "content": None}, said])
    assert answer.json()["choices"][0]["message"]["content"] == "Hello."


def test_a_schema_beside_an_object_of_json_is_its_schema(server: Served) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    schemas: list[Any] = [schema, {"const": 5}, True]
    for each in schemas:
        form = {"type": "json_object", "schema": each}
        assert server.chat("hello", response_format=form, max_tokens=1).status_code == 200
        assert json.loads(str(server.request.options.json_schema)) == each
    plain = {"type": "json_object", "schema": None}
    assert server.chat("hello", response_format=plain, max_tokens=1).status_code == 200
    assert json.loads(str(server.request.options.json_schema)) == {"type": "object"}
    wrong: list[Any] = [123, "x", [schema]]
    for each in wrong:
        form = {"type": "json_object", "schema": each}
        server.refuse(CHAT, "response_format", messages=[user("x")], response_format=form)


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
    stream = client.chat.completions.create(messages=said, **given, stream=True)
    chunks = [each.choices[0] for each in stream]
    deltas = [each for chunk in chunks for each in chunk.delta.tool_calls or ()]
    for at, (name, arguments) in enumerate(CALLS):
        first, *others = [each.function for each in deltas if each.index == at]
        assert (first.name, first.arguments) == (name, "")
        assert "".join(each.arguments for each in others) == arguments
        assert all(each.name is None for each in others)
    assert len({each.id for each in deltas if each.id}) == 2
    assert "".join(each.delta.content or "" for each in chunks) == "Wait."
    assert [each.finish_reason for each in chunks if each.finish_reason] == ["tool_calls"]
    with client.chat.completions.stream(messages=said, **given) as helper:  # OpenAI's own
        whole = helper.get_final_completion().choices[0]
    assert [each.function.name for each in whole.message.tool_calls] == ["area", "now"]
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


ONE = {"type": "function", "function": {"name": "now"}}
FLAT = {"type": "function", "name": "now"}


@pytest.mark.parametrize(
    ("choice", "flat", "theirs", "parallel", "called"),
    [
        ("none", "none", {"type": "none"}, True, set()),
        ("required", "required", {"type": "any"}, False, {"area", "now"}),
        (ONE, FLAT, {"type": "tool", "name": "now"}, False, {"now"}),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [ONE]}},
            {"type": "allowed_tools", "mode": "required", "tools": [FLAT]},
            {"type": "tool", "name": "now"},
            False,
            {"now"},
        ),
    ],
)
def test_a_choice_holds_in_every_interface(
    server: Served, choice: Any, flat: Any, theirs: Any, parallel: bool, called: set[str]
) -> None:
    theirs = {**theirs, "disable_parallel_tool_use": not parallel}
    chat, responses, messages = (
        server.post(path, **PERU[path], tools=TOOLS[path], tool_choice=each, parallel_tool_calls=parallel).json()
        for path, each in ((CHAT, choice), (RESPONSES, flat), (MESSAGES, theirs))
    )  # fmt: skip
    for names in (
        [each["function"]["name"] for each in chat["choices"][0]["message"].get("tool_calls", ())],
        [each["name"] for each in responses["output"] if each["type"] == "function_call"],
        [each["name"] for each in messages["content"] if each["type"] == "tool_use"],
    ):
        assert set(names) <= called
        assert len(names) == (1 if called else 0)


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
    for tool, words in [
        ({"name": 5}, "tool 1 has no name"),
        ({"type": "function", "function": 5}, "tool 1 has no function"),
        ({"name": "a", "parameters": 5}, "parameters of tool 1"),
        ({"name": "a", "description": 5}, "description of tool 1"),
    ]:
        refuses(words, openai_offer, [tool], None, None)
    blocks = [{"type": "tool_result", **more} for more in ({"is_error": True}, {"is_error": False}, {})]  # fmt: skip
    results = anthropic_messages([user(blocks)])
    assert [each["is_error"] for each in results] == [True, False, False]


def test_a_schema_beyond_our_means_is_an_error_only_where_it_is_strict(server: Served) -> None:
    odd = {"type": "object", "properties": {"of": {"type": "string", "not": {"minLength": 3}}}}
    for strict, status in ((True, 400), (False, 200)):
        function = {"name": "area", "parameters": odd, "strict": strict}
        answer = server.chat("Peru?", tools=[{"type": "function", "function": function}])
        assert answer.status_code == status, answer.text
    call, *_ = answer.json()["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"of": "Peru"}


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


USE = {"type": "tool_use", "id": "1", "name": "f", "input": {}}
RM = {"type": "function", "function": {"name": "rm"}}


@pytest.mark.parametrize(
    ("path", "more", "word"),
    [
        (CHAT, {"tools": {}}, "tools is not a list"),
        (CHAT, {"tools": [3]}, "tool 1 is not an object"),
        (CHAT, {"tools": [{"type": "function"}]}, "tool 1 has no name"),
        (CHAT, {"tools": TOOLS[CHAT], "tool_choice": "often"}, "choose auto"),
        (CHAT, {"tool_choice": "required"}, "there are no functions"),
        (CHAT, {"tools": TOOLS[CHAT], "tool_choice": RM}, "none of the tools"),
        (CHAT, {"tools": [*TOOLS[CHAT], *TOOLS[CHAT]]}, "two tools are called area"),
        (RESPONSES, {"tools": [{"type": "function", "name": "a b"}]}, "letters, digits"),
        (RESPONSES, {"input": [{"type": "function_call"}]}, "tool_calls"),
        (MESSAGES, {"tools": [{"name": "f", "input_schema": 3}]}, "no schema"),
        (MESSAGES, {"messages": [user([{"type": "tool_result"}])]}, "tool_call_id"),
        (MESSAGES, {"messages": [{"role": "assistant", "content": [USE]}]}, "add their results"),
    ],
)
def test_what_cannot_be_read_is_refused(
    server: Served, path: str, more: dict[str, Any], word: str
) -> None:
    server.refuse(path, word, **{**PERU[path], **more})


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
