"""A schema that ends its compiler is one client's 400, in the server and in its engine; seven other clients are answered."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.plugins.serve.serving import (
    CHAT,
    MESSAGES,
    RESPONSES,
    TALK,
    Served,
    error_in,
    served,
    user,
)
from tests.support.told import KINDS, told, told_compiler


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    script = {"answers": {"river": "The Rhine."}, "otherwise": ["Yes."], "calls": True, "parallel": 8, "pass_s": 0.02}  # fmt: skip
    with told_compiler(clock_s=4), served(script, most=16) as server:
        yield server


def tool(schema: dict[str, Any], *, strict: bool) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return {"type": "function", "function": {"name": "f", "parameters": parameters, "strict": strict}}  # fmt: skip


def described(schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": "answer", "strict": True, "schema": schema}


REQUESTS: dict[str, Any] = {
    "format": (CHAT, lambda what: {"messages": [user("Hi")], "response_format": {"type": "json_schema", "json_schema": described(told(what, 1))}}),
    "responses": (RESPONSES, lambda what: {"input": "Hi", "text": {"format": {"type": "json_schema", **described(told(what, 2))}}}),
    "messages": (MESSAGES, lambda what: {"messages": [user("Hi")], "max_tokens": 9, "output_config": {"format": {"type": "json_schema", "schema": {"type": "object", "properties": {"a": told(what, 3)}}}}}),
    "ollama": (TALK, lambda what: {"messages": [user("Hi")], "stream": False, "options": {"num_predict": 9}, "format": told(what, 6)}),
    "responses tool": (RESPONSES, lambda what: {"input": "Hi", "tools": [{"type": "function", **tool(told(what, 8), strict=True)["function"]}]}),
    "messages tool": (MESSAGES, lambda what: {"messages": [user("Hi")], "max_tokens": 9, "tools": [{"name": "f", "strict": True, "input_schema": {"type": "object", "properties": {"a": told(what, 9)}}}]}),
    "tool": (CHAT, lambda what: {"messages": [user("Hi")], "tools": [tool(told(what, 4), strict=True)]}),
}  # fmt: skip


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("what", KINDS)
def test_one_400_or_a_looser_form_and_seven_answers(server: Served, what: str, kind: str) -> None:
    path, body = REQUESTS[kind]
    with ThreadPoolExecutor(8) as threads:
        bad = threads.submit(server.post, path, **body(what))
        good = [threads.submit(server.chat, "Which river?", seed=at) for at in range(7)]
        for each in good:
            assert each.result().status_code == 200
        if what == "sleep":
            assert not bad.done(), "the others did not wait for it"
    answer = bad.result()
    if path == TALK:  # its formats need not hold to the letter
        assert answer.status_code == 200, answer.text
        return
    assert answer.status_code == 400, answer.text
    message = error_in(answer.json())["message"]
    assert "\n" not in message
    assert "more than" in message or "SIGKILL" in message


def test_a_tool_that_is_not_strict_is_loosened_and_the_request_is_answered(server: Served) -> None:
    other = {"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}}
    for what in KINDS:
        tools = [tool(told(what, 5), strict=False), other]
        assert server.chat("Hi", tools=tools).status_code == 200
