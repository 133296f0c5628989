"""Fields as clients of all kinds spell them: thoughts switched off, numbers that mean off, nothing at all."""

from typing import Any

import pytest

from localspec.engine.protocol import Count
from localspec.plugins.serve.anthropic import MessagesBody
from localspec.plugins.serve.bodies import _ELSEWHERE, _UNSUPPORTED, AnswerFields
from localspec.plugins.serve.llama_server import ContinueBody, InfillBody
from localspec.plugins.serve.ollama import GenerateBody, OllamaChatBody
from localspec.plugins.serve.openai import ChatBody, TextBody
from localspec.plugins.serve.responses import ResponsesBody
from tests.plugins.serve.serving import (
    CHAT,
    COUNT,
    GENERATE,
    INFILL,
    LIMITS,
    MESSAGES,
    OLLAMA,
    RESPONSES,
    TALK,
    TEXT,
    Served,
    bodies,
    error_in,
    user,
)

SCRIPT = {"otherwise": ["Hello."], "thinks": True, "fim": {"pre": 4, "suf": 5, "mid": 2}}
BODIES = bodies("hello", 20)
TEMPLATED = (CHAT, RESPONSES, MESSAGES, TALK, GENERATE)
EVERY = pytest.mark.parametrize("path", TEMPLATED)
OFF: list[dict[str, Any]] = [
    {"thinking": {"type": "disabled"}},
    {"thinking": {"type": "disabled", "budget_tokens": 2000}},
    {"thinking": False},
    {"thinking": {"enabled": False}},
    {"enable_thinking": False},
    {"think": False},
    {"reasoning": {"effort": "none"}},
    {"reasoning": {"enabled": False}},
    {"reasoning": False},
    {"reasoning_effort": "none"},
    {"chat_template_kwargs": {"enable_thinking": False}},
    {"chat_template_kwargs": {"thinking": False}, "reasoning_effort": "high"},
    {"enable_thinking": False, "thinking_budget": 100},
]
HOW: list[tuple[dict[str, Any], str]] = [
    *((each, "off") for each in OFF),
    ({"thinking": {"type": "enabled"}}, "on"),
    ({"thinking": {"type": "auto"}}, "on"),
    ({"thinking": True}, "on"),
    ({"enable_thinking": True}, "on"),
    ({"reasoning": {"enabled": True}}, "on"),
    ({"reasoning": {"effort": "high", "summary": "auto"}}, "high"),
    ({"think": "low"}, "low"),
    ({"think": "off"}, "off"),
    ({"think": 40}, "40"),
    ({"reasoning": {"max_tokens": 5}}, "5"),
    ({"reasoning": {"max_tokens": 5.0, "exclude": False}}, "5"),
    ({"thinking": {"type": "enabled", "budget_tokens": 64.0}}, "64"),
    ({"thinking_budget": 7}, "7"),
    ({"thinking_token_budget": 8}, "8"),
    ({"reasoning_budget": 9}, "9"),
    ({"thinking_budget_tokens": 10, "enable_thinking": True}, "10"),
    ({"max_thinking_tokens": 11.0}, "11"),
    ({"reasoning_budget": -1}, "on"),
    ({"reasoning_format": "deepseek", "include_reasoning": True, "think": True}, "on"),
]


@EVERY
def test_how_to_think_is_understood_by_every_usual_name(server: Served, path: str) -> None:
    for more, think in HOW:
        answer = server.post(path, **BODIES[path], **more)
        assert answer.status_code == 200, (more, answer.text)
        assert server.request.options.think == think, more


@EVERY
def test_what_stands_in_an_extra_body_is_the_bodys_own(server: Served, path: str) -> None:
    for more in OFF:
        for nested in (more, {"extra_body": more}, {"extra_body": {"extra_body": more}}):
            given = {**BODIES[path], "extra_body": {**nested, "top_k": 3, "seed": None}, "top_k": 9}
            answer = server.post(path, **given)
            assert answer.status_code == 200, (nested, answer.text)
            options = server.request.options
            assert (options.think, options.sampling.top_k) == ("off", 3), nested
    server.refuse(
        path,
        "mirostat is not supported",
        **BODIES[path],
        extra_body={"extra_body": {"mirostat": 2}},
    )
    server.refuse(path, "extra_body is not supported", **BODIES[path], extra_body=["x"])
    server.refuse(path, "think", **BODIES[path], extra_body={"think": ["no"]})


@EVERY
def test_what_would_show_thoughts_otherwise_is_refused_by_its_name(
    server: Served, path: str
) -> None:
    rows: list[tuple[str, Any]] = [
        ("reasoning_format", "none"),
        ("reasoning_format", "raw"),
        ("include_reasoning", False),
        ("separate_reasoning", False),
        ("reasoning_split", False),
        ("reasoning", {"exclude": True}),
    ]
    for name, value in rows:
        server.refuse(path, name, **BODIES[path], **{name: value})
        server.refuse(path, name, **BODIES[path], extra_body={name: value})


@pytest.mark.parametrize("path", [TEXT, INFILL])
def test_a_text_without_a_template_has_no_thoughts_to_switch_off(server: Served, path: str) -> None:
    for more in ({"thinking": {"type": "disabled"}}, {"think": False}, {"enable_thinking": False}):
        assert server.post(path, **BODIES[path], **more).status_code == 200
    rows: list[tuple[str, Any]] = [
        ("thinking", {"type": "enabled"}),
        ("think", "low"),
        ("reasoning_budget", 5),
    ]
    for name, value in rows:
        server.refuse(path, f"{name} is not supported", **BODIES[path], **{name: value})


def test_tokens_are_counted_with_thoughts_switched_off_by_any_name(server: Served) -> None:
    for more in OFF:
        assert server.post(COUNT, messages=[user("hello")], **more).status_code == 200, more
        question = server.asked[-1]
        assert isinstance(question, Count)
        assert question.options.think == "off", more


@pytest.mark.parametrize("path", BODIES)
def test_numbers_that_are_usual_elsewhere(server: Served, path: str) -> None:
    for name, value, meant in [
        ("top_k", -1, 0),
        ("top_k", -1.0, 0),
        ("top_k", 40.0, 40),
        ("top_p", 0, 5e-324),
        ("top_p", 0.0, 5e-324),
        ("top_p", 1, 1),
    ]:
        answer = server.post(path, **BODIES[path], **{name: value})
        assert answer.status_code == 200, answer.text
        assert getattr(server.request.options.sampling, name) == meant
    for value, seed in [(1.0, 1), (2.0**40, 2**40), (0.0, 0)]:
        assert server.post(path, **BODIES[path], seed=value).status_code == 200
        assert server.request.options.seed == seed
    for value in (4.0, 4):
        given = {**BODIES[path], LIMITS[path]: value}
        given |= {"options": {LIMITS[path]: value}} if path in OLLAMA else {}
        assert server.post(path, **given).status_code == 200
        assert server.request.options.max_tokens == 4
    wrong: list[tuple[str, Any]] = [
        *(("top_k", -2), ("top_k", 1.5), ("top_p", -0.1)),
        *(("seed", 1.5), ("seed", 1e300)),
    ]
    for name, value in wrong:
        server.refuse(path, name, **BODIES[path], **{name: value})


def test_messages_may_be_empty(server: Served) -> None:
    nothing: list[Any] = ["", None, [], [{"type": "text", "text": ""}], " \n"]
    for empty in nothing:
        for role in ("system", "developer"):
            said = [{"role": role, "content": empty}, user("hello")]
            assert server.post(CHAT, messages=said).status_code == 200, (role, empty)
            assert [each.role for each in server.request.messages] == ["user"]
        assert server.post(CHAT, messages=[user(empty)]).status_code == 200, empty
        assert server.post(CHAT, messages=[user(empty), user("hello")]).status_code == 200, empty
    parts = [{"type": "text", "text": ""}, {"type": "text", "text": "hello"}]
    rows: list[tuple[str, dict[str, Any]]] = [
        (CHAT, {"messages": [user(parts)]}),
        (MESSAGES, {"messages": [user(parts)], "max_tokens": 20, "system": [parts[0]]}),
        (RESPONSES, {"input": [user([{"type": "input_text", "text": ""}, *parts])]}),
        (TALK, {"messages": [{"role": "system", "content": ""}, user("hello")], "stream": False}),
        (GENERATE, {"prompt": "hello", "system": "", "stream": False}),
    ]
    for path, body in rows:
        answer = server.post(path, **body)
        assert answer.status_code == 200, (path, answer.text)
        (said_message,) = server.request.messages
        assert said_message.text == "hello"
    server.refuse(CHAT, "nothing to answer", messages=[{"role": "system", "content": ""}])


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


def test_a_last_message_goes_on_where_a_client_says_so_and_where_it_does_not(
    server: Served,
) -> None:
    said = [user("hello"), {"role": "assistant", "content": "He"}]
    for more in ({}, {"continue_final_message": True, "add_generation_prompt": False}):
        answer = server.post(CHAT, messages=said, **more)
        assert answer.status_code == 200, answer.text
        assert server.request.messages[-1].text == "He"
    assert server.chat("hello", continue_final_message=False).status_code == 200
    for wrong in ([user("hello")], [*said, user("x")]):
        server.refuse(CHAT, "continue_final_message", messages=wrong, continue_final_message=True)
    both = {"continue_final_message": True, "add_generation_prompt": True}
    server.refuse(CHAT, "choose one", messages=said, **both)
    server.refuse(RESPONSES, "continue_final_message", input="hello", continue_final_message=True)


def test_tools_that_may_not_be_called_need_no_form_for_calls(server: Served) -> None:
    function = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    tools = [{"type": "function", "function": function}]
    for choice in (None, "auto", "required"):
        server.refuse(
            CHAT, "cannot call tools", messages=[user("hello")], tools=tools, tool_choice=choice
        )
    assert server.chat("hello", tools=tools, tool_choice="none").status_code == 200
    flat = [{"type": "function", **function}]
    assert server.post(RESPONSES, input="hello", tools=flat, tool_choice="none").status_code == 200
    theirs = [{"name": "f", "input_schema": function["parameters"]}]
    none = {"type": "none"}
    assert (
        server.post(MESSAGES, **BODIES[MESSAGES], tools=theirs, tool_choice=none).status_code == 200
    )


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


def test_what_changes_an_answer_elsewhere_changes_no_count_and_no_vector(server: Served) -> None:
    assert (
        server.post(COUNT, messages=[user("hello")], max_tokens=5, stop_sequences=["x"]).status_code
        == 200
    )
    assert server.post("/tokenize", content="a", options={"num_ctx": 5}).status_code == 200
    rows: list[tuple[str, str, Any]] = [
        *((RESPONSES, "max_tokens", 5), (CHAT, "instructions", "x")),
        *((MESSAGES, "n_probs", 2), (TALK, "system", "x")),
    ]
    for path, name, value in rows:
        server.refuse(path, f"{name} is not supported", **BODIES[path], **{name: value})


@pytest.mark.parametrize("odd", [["function"], {"a": 1}, [], {}, 5, True, None])
def test_a_word_of_any_type_ends_in_no_fault_of_ours(server: Served, odd: Any) -> None:
    said = user("hello")
    bodies_of: list[tuple[str, dict[str, Any]]] = [
        (CHAT, {"messages": [said], "tool_choice": {"type": odd}}),
        (CHAT, {"messages": [said], "tool_choice": {"type": "allowed_tools", "mode": odd}}),
        (CHAT, {"messages": [{"role": odd, "content": "x"}]}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": odd}]}]}),
        (CHAT, {"messages": [said], "response_format": {"type": odd, "a": 1}}),
        (CHAT, {"messages": [said], "tools": [{"type": odd}]}),
        (MESSAGES, {"messages": [said], "max_tokens": 5, "tool_choice": {"type": odd}}),
        (MESSAGES, {"messages": [user([{"type": odd}])], "max_tokens": 5}),
        (RESPONSES, {"input": "x", "tool_choice": {"type": odd}}),
        (RESPONSES, {"input": [{"role": odd, "content": "x"}]}),
        (RESPONSES, {"input": [{"type": odd, "role": "user", "content": [{"type": odd}]}]}),
        (TALK, {"messages": [{"role": odd, "content": "x"}], "stream": False}),
        (TALK, {"messages": [said], "format": odd or [5]}),
    ]
    for path, body in bodies_of:
        answer = server.post(path, **body)
        assert answer.status_code in (200, 400), (body, answer.text)
        assert "tools" in body or "\n" not in error_in(answer.json())["message"]
