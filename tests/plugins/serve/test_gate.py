"""Gates by key: over HTTP nothing of a secret leaves in any interface, streamed or not, in words, thoughts and calls."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from localspec.plugins.serve.http import Guard
from tests.chat.toy_calls import hermes
from tests.plugins.serve.serving import (
    CHAT,
    INFILL,
    MESSAGES,
    RESPONSES,
    TALK,
    TEXT,
    Served,
    bodies,
    served,
)

# Six characters of it are neither hexadecimal nor a number, which ids and figures of an answer may have by chance.
KEY = "ghp_g1hj2kL3mn4pQ5rs6tu7vw8xy9zG0HJ1KM2N"
PARTS = [KEY[at : at + 6] for at in range(4, len(KEY) - 6)]
MASK = "[masked: GitHub token]"
SCRIPT = {
    "answers": {"key": f"It is {KEY}, yes.", "think": f"<think>Is it {KEY}?</think>No.", "send": f"Wait.\n{hermes('send', text=KEY)}"},
    "otherwise": ["Hello."],
    "calls": True,
    "thinks": True,
    "drafts": 5,
}  # fmt: skip
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOL = {"name": "send", "parameters": SCHEMA}
TOOLS: dict[str, dict[str, Any]] = {
    CHAT: {"type": "function", "function": TOOL},
    RESPONSES: {"type": "function", **TOOL},
    MESSAGES: {"name": "send", "input_schema": SCHEMA},
    TALK: {"type": "function", "function": TOOL},
}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    gates = {"all": "", "stopped": "action = 'stop'"}
    with served(SCRIPT, guard=Guard(("all", "masked", "stopped"), gate="usual", gates=gates)) as it:
        yield it


def answer(server: Served, path: str, key: str, **body: Any) -> str:
    server.client.headers["Authorization"] = f"Bearer {key}"
    done = server.post(path, **body)
    assert done.status_code == 200, done.text
    return done.text


WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    **{path: (path, body) for path, body in bodies("key", 300).items() if path != INFILL},
    **{f"calls {path}": (path, {**bodies("send", 300)[path], "tools": [TOOLS[path]]}) for path in TOOLS},
    "two answers": (CHAT, {**bodies("key")[CHAT], "n": 2}),
    "/completion": ("/completion", {"prompt": bodies("key")[TEXT]["prompt"]}),
    "thoughts": (CHAT, bodies("think")[CHAT]),
    "thoughts of Ollama's": (TALK, bodies("think")[TALK]),
}  # fmt: skip
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.mark.first(8)
@STREAMED
@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_a_secret_leaves(server: Served, way: str, stream: bool) -> None:
    path, body = WAYS[way]
    text = answer(server, path, "masked", **{**body, "stream": stream})
    assert not any(each in text for each in PARTS)
    assert MASK in text
    if not stream:
        assert KEY in answer(server, path, "all", **body), "another key lets it through"


def test_what_tells_of_masked_tokens_is_refused(server: Served) -> None:
    server.client.headers["Authorization"] = "Bearer masked"
    rows: list[tuple[str, dict[str, Any]]] = [
        (CHAT, {"logprobs": True, "top_logprobs": 3}),
        (TEXT, {"logprobs": 2}),
        (TALK, {"logprobs": True, "top_logprobs": 3}),
        (RESPONSES, {"top_logprobs": 2}),
        (CHAT, {"prediction": {"type": "content", "content": KEY}}),
    ]
    for path, more in rows:
        what = "prediction is" if "prediction" in more else "logprobs are"
        server.refuse(path, f"{what} not available with a gate", **bodies("key")[path], **more)


@STREAMED
@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, TALK])
def test_a_rule_that_stops_ends_the_answer(server: Served, path: str, stream: bool) -> None:
    text = answer(server, path, "stopped", **{**bodies("key")[path], "stream": stream})
    assert not any(each in text for each in (*PARTS, "yes."))
    assert ("refusal" if path == MESSAGES else "content_filter") in text


HIDDEN = ("AKIA2E4QRSTUVWXY7Z2A", "hunterA9b2cQ", KEY)
ENV = f'x\n{HIDDEN[0]}\npassword = "{HIDDEN[1]}"\n{KEY}{KEY}\nend'
ENV_SEEN = f'x\n[masked: AWS access key]\npassword = "[masked: password]"\n{MASK}{MASK}\nend'
ESCAPED = {"answers": {"send": hermes("send", text=ENV), "key": json.dumps({"text": ENV})}}


def said(text: str) -> str:
    """Return the text of an answer, or the arguments of its call, whole or of all its events."""
    lines = [each.removeprefix("data: ") for each in text.splitlines()]
    events = [json.loads(each) for each in lines if each.startswith("{")]
    ends = (".done", ".completed", ".added", "_start")
    parts = [each for each in events if not str(each.get("type", "")).endswith(ends)]
    return "".join(_words(parts if events else json.loads(text)))


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        value = dict(enumerate(value))
    for key, each in value.items() if isinstance(value, dict) else ():
        if key in {"input", "arguments"} and isinstance(each, dict) and each:
            yield json.dumps(each)
        elif isinstance(each, dict | list):
            yield from _words(each)
        elif key in {"content", "text", "arguments", "partial_json", "delta", "response"} and each:
            yield str(each)


@pytest.fixture(scope="module")
def escaped() -> Iterator[Served]:
    with served({**ESCAPED, "calls": True, "drafts": 5}, guard=Guard(("masked",), gate="usual")) as it:  # fmt: skip
        yield it


@pytest.mark.first(6)
@STREAMED
@pytest.mark.parametrize(
    "way",
    [each for each in WAYS if each not in {"two answers", "thoughts", "thoughts of Ollama's"}],
)
def test_nothing_of_a_secret_leaves_in_json(escaped: Served, way: str, stream: bool) -> None:
    path, body = WAYS[way]
    limit = {name: 999 for name in body if name.startswith("max_")}
    text = answer(escaped, path, "masked", **{**body, **limit, "stream": stream})
    assert not any(each in text for each in HIDDEN)
    assert json.loads(said(text)) == {"text": ENV_SEEN}
