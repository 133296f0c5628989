"""A system message behind the user's, as Claude Code sends one with every request, is read and costs no cache."""

from __future__ import annotations

from typing import Any

import pytest

from localspec.chat.request import Request
from tests.serve.serving import Served

SCRIPT = {"answers": {"Rhine": "It is 1233 km long."}, "otherwise": ["Hello."], "parallel": 2}
USER = {"role": "user", "content": "How long is the Rhine? " * 8}
HISTORY = [USER, {"role": "assistant", "content": "It is 1233 km long."}, USER]


def bodies(note: str, role: str) -> dict[str, dict[str, Any]]:
    said = [*HISTORY, {"role": role, "content": note}]
    return {
        "/v1/chat/completions": {"messages": said},
        "/v1/responses": {"input": said},
        "/v1/messages": {"messages": said, "max_tokens": 99, "system": "Be brief."},
        "/v1/messages/count_tokens": {"messages": said},
    }


def cached(usage: dict[str, Any]) -> int:
    if "cache_read_input_tokens" in usage:
        return int(usage["cache_read_input_tokens"])
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    assert details is not None
    return int(details["cached_tokens"])


@pytest.mark.parametrize("role", ["system", "developer"])
def test_the_user_is_answered_and_what_was_read_before_it_is_kept(
    server: Served, role: str
) -> None:
    for path, body in bodies("It is 9 o'clock.", role).items():
        answer = server.client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        if path.endswith("count_tokens"):
            continue
        assert "It is 1233 km long." in answer.text
        asked = server.asked[-1]
        assert isinstance(asked, Request)
        assert asked.messages[-1].role == "system"
        usage = server.client.post(path, json=bodies("It is 10 o'clock!", role)[path]).json()[
            "usage"
        ]
        assert cached(usage) > 2 * len(USER["content"])


def test_a_system_message_alone_has_nothing_to_answer(server: Served) -> None:
    answer = server.client.post(
        "/v1/chat/completions", json={"messages": [{"role": "system", "content": "x"}]}
    )
    assert answer.status_code == 400
    assert "nothing to answer" in answer.json()["error"]["message"]
