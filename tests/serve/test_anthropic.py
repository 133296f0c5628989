"""Anthropic's interface, asked by Anthropic's own client."""

import json
import re
from typing import Any

import pytest

from tests.serve.clients import anthropic
from tests.serve.serving import MESSAGES, Served, bodies, user

SCRIPT = {
    "answers": {"Rhine": "It is 1233 km long.", "why": "<think>So.</think>It is."},
    "otherwise": ["Hello."],
    "thinks": True,
}


def ask(claude: Any, text: Any, **more: Any) -> Any:
    given = {"model": "a-pair", "max_tokens": 99, "messages": [user(text)], **more}
    return claude.messages.create(**given)


def test_a_question_is_answered_and_counted(claude: Any) -> None:
    question = [{"type": "text", "text": "How long is the Rhine?"}]
    counted = claude.messages.count_tokens(
        model="a-pair", system="Be brief.", messages=[user(question)]
    )
    for _ in range(2):  # tokens from the cache are not counted twice
        done = ask(claude, question, system="Be brief.")
        cached = done.usage.cache_read_input_tokens
        assert counted.input_tokens == done.usage.input_tokens + cached
    assert cached > 0
    assert [(each.type, each.text) for each in done.content] == [("text", "It is 1233 km long.")]
    assert done.stop_reason == "end_turn"


def test_a_stream_has_its_events_in_their_order(claude: Any) -> None:
    given = {"model": "a-pair", "max_tokens": 99, "messages": [user("why?")]}
    with claude.messages.stream(**given) as stream:
        kinds = [event.type for event in stream]
        whole = stream.get_final_message()
    assert [each.type for each in whole.content] == ["thinking", "text"]
    assert whole.content[1].text == "It is."
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2
    assert [each.type for each in ask(claude, "why?").content] == ["thinking", "text"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_says_what_drafts(server: Served, stream: bool) -> None:
    body: dict[str, Any] = {**bodies("the Rhine", 9)[MESSAGES], "stream": stream}
    text = server.post(MESSAGES, **body, localspec={"draft": "off"}).text
    assert server.request.draft == "off"
    if stream:
        (text,) = re.findall(r"^data: (.*message_delta.*)$", text, re.MULTILINE)
    figures = json.loads(text)
    assert figures["speculation"]["reason"]
    assert figures["timings"]["first_token_s"] > 0
    assert "seed" in figures["localspec"]
    server.refuse(MESSAGES, "--exact", **body, localspec={"exact": True})


def test_a_stop_text_and_a_limit_are_told_apart(claude: Any) -> None:
    stopped = ask(claude, "the Rhine", stop_sequences=[" km"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", " km")
    assert ask(claude, "the Rhine", stop_sequences=[" km", "!"]).stop_sequence is None
    assert ask(claude, "the Rhine", max_tokens=3).stop_reason == "max_tokens"


def test_errors_have_its_form(server: Served, claude: Any) -> None:
    with pytest.raises(anthropic.NotFoundError, match="ask for a-pair"):
        ask(claude, "hello", model="claude")
    for more in ({"max_tokens": 0}, {}):
        answer = server.post(MESSAGES, messages=[], **more)
        assert answer.status_code == 400
        assert answer.json()["type"] == "error"
        assert answer.json()["error"]["type"] == "invalid_request_error"
