"""Anthropic's interface, asked by Anthropic's own client."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from localspec.chat.request import Request
from tests.serve.clients import Package
from tests.serve.serving import Served

if TYPE_CHECKING:
    import anthropic
else:
    anthropic = Package("anthropic")

SCRIPT = {
    "answers": {"Rhine": "It is 1233 km long.", "why": "<think>So.</think>It is."},
    "otherwise": ["Hello."],
    "thinks": True,
}


def test_a_question_is_answered_and_counted(claude: anthropic.Anthropic) -> None:
    asked: list[anthropic.types.MessageParam] = [
        {"role": "user", "content": [{"type": "text", "text": "How long is the Rhine?"}]}
    ]
    done = claude.messages.create(model="a-pair", max_tokens=99, system="Be brief.", messages=asked)
    assert [each.type for each in done.content] == ["text"]
    assert done.content[0].type == "text"
    assert done.content[0].text == "It is 1233 km long."
    assert done.stop_reason == "end_turn"
    counted = claude.messages.count_tokens(model="a-pair", system="Be brief.", messages=asked)
    for _ in range(2):  # what was cached is not counted twice
        cached = done.usage.cache_read_input_tokens or 0
        assert counted.input_tokens == done.usage.input_tokens + cached
        done = claude.messages.create(
            model="a-pair", max_tokens=99, system="Be brief.", messages=asked
        )
    assert cached > 0


def test_a_stream_has_its_events_in_their_order(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(
        model="a-pair", max_tokens=99, messages=[{"role": "user", "content": "why?"}]
    ) as stream:
        kinds = [event.type for event in stream]
        whole = stream.get_final_message()
    assert [each.type for each in whole.content] == ["thinking", "text"]
    assert whole.content[1].type == "text"
    assert whole.content[1].text == "It is."
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2


@pytest.mark.parametrize("stream", [False, True])
def test_what_drafts_is_chosen_and_told(server: Served, stream: bool) -> None:
    body = {
        "messages": [{"role": "user", "content": "the Rhine"}],
        "max_tokens": 9,
        "stream": stream,
        "localspec": {"draft": "off"},
    }
    text = server.client.post("/v1/messages", json=body).text
    asked = server.asked[-1]
    assert isinstance(asked, Request)
    assert asked.draft == "off"
    told = json.loads(
        re.findall(r"^data: (.*message_delta.*)$", text, re.MULTILINE)[0] if stream else text
    )
    assert told["speculation"]["reason"]
    assert told["timings"]["first_token_s"] > 0
    assert told["localspec"]["seed"] == asked.options.seed or asked.options.seed is None
    refused = server.client.post("/v1/messages", json={**body, "localspec": {"exact": True}})
    assert refused.status_code == 400


def test_a_stop_text_and_a_limit_are_told_apart(claude: anthropic.Anthropic) -> None:
    asked: list[anthropic.types.MessageParam] = [{"role": "user", "content": "the Rhine"}]
    stopped = claude.messages.create(
        model="a-pair", max_tokens=99, messages=asked, stop_sequences=[" km"]
    )
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", " km")
    cut = claude.messages.create(model="a-pair", max_tokens=3, messages=asked)
    assert cut.stop_reason == "max_tokens"


def test_errors_have_its_form(server: Served, claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="ask for a-pair"):
        claude.messages.create(
            model="claude", max_tokens=9, messages=[{"role": "user", "content": "hello"}]
        )
    answer = server.client.post("/v1/messages", json={"messages": [], "max_tokens": 0})
    assert answer.status_code == 400
    assert answer.json()["type"] == "error"
    assert answer.json()["error"]["type"] == "invalid_request_error"
