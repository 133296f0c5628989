"""Gates by key: over HTTP nothing of a secret leaves in any interface, streamed or not, in words, thoughts and calls; logprobs are refused."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from lab.planted import FORMATS, planted
from localspec.serve.http import Guard
from tests.chat.toy_calls import hermes
from tests.serve.serving import Served, served

KEY = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
PARTS = [KEY[at : at + 6] for at in range(4, len(KEY) - 6)]
MASK = "[masked: GitHub token]"
SCRIPT = {
    "answers": {
        "key": f"It is {KEY}, yes.",
        "send": f"Wait.\n{hermes('send', text=KEY)}",
    },
    "otherwise": ["Hello."],
    "calls": True,
    "drafts": 5,
}
CHAT, TEXT, RESPONSES, MESSAGES = (
    f"/v1/{each}" for each in ("chat/completions", "completions", "responses", "messages")
)
TOOL = {
    "name": "send",
    "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    guard = Guard(
        keys=("all", "masked", "stopped"),
        gate="usual",
        gates={"all": "", "stopped": "action = 'stop'"},
    )
    with served(SCRIPT, guard=guard) as server:
        yield server


def asked(server: Served, path: str, key: str, **body: Any) -> str:
    """Return all that comes back, as it is."""
    headers = {"Authorization": f"Bearer {key}"}
    done = server.client.post(path, json={"model": "a-pair", **body}, headers=headers)
    assert done.status_code == 200, done.text
    return done.text


def user(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, user("key")),
    "calls": (CHAT, {**user("send"), "tools": [{"type": "function", "function": TOOL}]}),
    "two answers": (CHAT, {**user("key"), "n": 2}),
    "completion": (
        TEXT,
        {
            "prompt": "<|im_start|>user\nkey<|im_end|>\n<|im_start|>assistant\n",
            "max_tokens": 99,
        },
    ),
    "response": (RESPONSES, {"input": "key"}),
    "calls of a response": (RESPONSES, {"input": "send", "tools": [{"type": "function", **TOOL}]}),
    "message": (MESSAGES, {**user("key"), "max_tokens": 99}),
    "calls of a message": (
        MESSAGES,
        {
            **user("send"),
            "max_tokens": 200,
            "tools": [{"name": "send", "input_schema": TOOL["parameters"]}],
        },
    ),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_a_secret_leaves(server: Served, way: str, stream: bool) -> None:
    path, body = WAYS[way]
    seen = asked(server, path, "masked", **body, stream=stream)
    assert not any(each in seen for each in PARTS)
    assert MASK in seen
    if not stream:
        assert KEY in asked(server, path, "all", **body), "another key lets it through"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {**user("key"), "logprobs": True, "top_logprobs": 3}),
        (TEXT, {"prompt": "key", "logprobs": 2}),
        (RESPONSES, {"input": "key", "top_logprobs": 2}),
    ],
)
def test_logprobs_are_refused_in_one_line(server: Served, path: str, body: dict[str, Any]) -> None:
    headers = {"Authorization": "Bearer masked"}
    done = server.client.post(path, json={"model": "a-pair", **body}, headers=headers)
    assert done.status_code == 400
    assert "logprobs cannot be had behind a gate" in done.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_rule_that_stops_ends_the_answer_in_every_interface(server: Served, stream: bool) -> None:
    for path, body, told in (
        (CHAT, user("key"), "content_filter"),
        (RESPONSES, {"input": "key"}, "content_filter"),
        (MESSAGES, {**user("key"), "max_tokens": 99}, "refusal"),
    ):
        seen = asked(server, path, "stopped", **body, stream=stream)
        assert not any(each in seen for each in PARTS)
        assert told in seen
        assert "yes." not in seen


def test_thoughts_are_masked_as_well() -> None:
    thinking = {"answers": {"key": f"<think>Is it {KEY}?</think>No."}, "thinks": True}
    with served(thinking, guard=Guard(keys=("masked",), gate="usual")) as server:
        for stream in (False, True):
            seen = asked(server, CHAT, "masked", **user("key"), stream=stream)
            assert "reasoning_content" in seen
            assert MASK in seen
            assert not any(each in seen for each in PARTS)


HIDDEN = ("AKIA2E4QRSTUVWXY7Z2A", "hunterA9b2cQ", KEY)
ENV = f'x\n{HIDDEN[0]}\npassword = "{HIDDEN[1]}"\n{KEY}{KEY}\nend'
ENV_SEEN = f'x\n[masked: AWS access key]\npassword = "[masked: password]"\n{MASK}{MASK}\nend'
ESCAPED = {"answers": {"send": hermes("send", text=ENV), "key": json.dumps({"text": ENV})}}


def told(answer: str) -> str:
    """Return the text of an answer, or the arguments of its call, whole or of all its events."""
    events = [json.loads(each[6:]) for each in answer.split("\n") if each.startswith("data: {")]
    if not events:
        return "".join(_words(json.loads(answer)))
    ends = (".done", ".completed", ".added", "_start")
    streamed = [each for each in events if not str(each.get("type", "")).endswith(ends)]
    return "".join(_words(streamed))


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        value = dict(enumerate(value))
    for key, each in value.items() if isinstance(value, dict) else ():
        if key == "input" and each:
            yield json.dumps(each)
        elif isinstance(each, dict | list):
            yield from _words(each)
        elif key in {"content", "text", "arguments", "partial_json", "delta"} and each:
            yield str(each)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("way", [each for each in WAYS if each != "two answers"])
def test_nothing_of_a_secret_leaves_in_json(way: str, stream: bool) -> None:
    path, body = WAYS[way]
    script = {**ESCAPED, "calls": True, "drafts": 5}
    with served(script, guard=Guard(keys=("masked",), gate="usual")) as server:
        seen = asked(server, path, "masked", **{**body, "max_tokens": 999}, stream=stream)
    assert not any(each in seen for each in HIDDEN)
    assert json.loads(told(seen)) == {"text": ENV_SEEN}


@pytest.mark.slow
def test_no_format_leaves_streamed_or_not_drafted_or_not() -> None:
    secrets = {f"<{which}>": planted(Random(which), which) for which in FORMATS}
    answers = {asks: f"Use {secret.text} here." for asks, secret in secrets.items()}
    for drafts in (0, 6):
        script = {"answers": answers, "drafts": drafts}
        with served(script, guard=Guard(keys=("masked",), gate="usual")) as server:
            for asks, secret in secrets.items():
                for stream in (False, True):
                    seen = asked(server, CHAT, "masked", **user(asks), stream=stream)
                    assert "[masked: " in seen
                    assert json.dumps(secret.body.strip())[1:-1] not in seen
                    assert secret.body[:6] not in seen
