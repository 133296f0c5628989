"""Fields as clients of all kinds spell them: thoughts switched off, numbers that mean off, nothing at all."""

from typing import Any

import pytest

from tests.serve.serving import (
    CHAT,
    COUNT,
    GENERATE,
    INFILL,
    LIMITS,
    MESSAGES,
    RESPONSES,
    TALK,
    TEXT,
    Served,
    bodies,
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
        assert getattr(server.asked[-1], "think", None) == "off", more


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
    limit = LIMITS[path]
    for value in (4.0, 4):
        given = {**BODIES[path], "options": {limit: value}, limit: value}
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
