"""Whatever a body holds, it is answered or refused in one line, and the next request is answered."""

import json
import random
import socket
from typing import Any

import pytest

from tests.serve.serving import COUNT, FIM, Served, bodies, error_in, served, turn, user

_PATHS = (
    *(*bodies(""), COUNT, "/completion", "/tokenize", "/detokenize", "/api/show", "/api/pull"),
    *("/v1/embeddings", "/rerank", "/api/embed", "/api/embeddings"),
)
_KEYS = (
    *("model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n", "seed"),
    *("stop", "stop_sequences", "temperature", "top_p", "top_k", "min_p", "presence_penalty"),
    *("frequency_penalty", "repeat_penalty", "logit_bias", "logprobs", "localspec", "tools"),
    *("response_format", "suffix", "system", "messages", "content", "tokens", "with_pieces"),
    *("input_prefix", "input_suffix", "input_extra", "n_predict", "response_fields"),
    *("dimensions", "encoding_format", "query", "documents", "texts", "top_n", "return_text"),
    *("min_tokens", "ignore_eos", "cache_prompt", "prediction", "prompt", "echo", "service_tier"),
    *("input", "instructions", "text", "include", "top_logprobs", "previous_response_id"),
    *("options", "keep_alive", "think", "format", "raw", "truncate", "num_predict", "name"),
)
_CALLS = ("tool_calls", "tool_name", "tool_call_id", "images", "thinking", "function", "arguments")
_INNER = (
    *_CALLS,
    *("role", "content", "type", "text", "schema", "json_schema", "include_usage", "draft", "5"),
    *("temperature", "num_predict", "stop", "seed", "repeat_last_n", "mirostat", "name"),
)
_NUMBERS = (0, -1, 1, 5, 1e9, -1e308, 0.5, 2**70, True, False)
_TEXTS = (
    "",
    "x",
    "auto",
    "off",
    "\ud800",
    "é",
    "json_object",
    "json_schema",
    "user",
    "tool",
    "assistant",
    "json",
    "5m",
    "-1h",
    "high",
)
_GOOD = {
    "messages": [user("hello")],
    "input": "hello",
    "content": "hello",
    "tokens": [1],
    "prompt": turn("hello"),
    "max_tokens": 5,
}


def value(chance: random.Random, depth: int = 0) -> Any:
    """Return some JSON."""
    kind = chance.randrange(5 if depth < 4 else 3)
    if kind == 0:
        return None
    if kind == 1:
        return chance.choice(_NUMBERS)
    if kind == 2:
        return chance.choice(_TEXTS)
    count = chance.randrange(4)
    if kind == 3:
        return [value(chance, depth + 1) for _ in range(count)]
    return {chance.choice(_INNER): value(chance, depth + 1) for _ in range(count)}


def body(chance: random.Random) -> bytes:
    """Return a body that is nearly as it should be."""
    fields = _GOOD | {key: value(chance) for key in chance.sample(_KEYS, chance.randrange(4))}
    raw = bytearray(json.dumps(fields).encode())
    for _ in range(3 * (chance.random() < 0.1)):
        raw[chance.randrange(len(raw))] = chance.randrange(256)
    return bytes(raw)


def bombard(server: Served, seed: int, count: int) -> None:
    """Send bodies by chance, and then what is no HTTP at all."""
    chance = random.Random(seed)
    for _ in range(count):
        path, sent = chance.choice(_PATHS), body(chance)
        answer = server.client.post(path, content=sent)
        assert answer.status_code in {200, 400, 404}, (path, sent, answer.text)
        if answer.status_code != 200:
            assert "\n" not in error_in(answer.json())["message"], (path, sent)
    port = int(server.url.rpartition(":")[2])
    for _ in range(count // 10):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(chance.randbytes(chance.randint(1, 400)))
    server.wait_until(0)
    assert server.chat("hello").json()["choices"][0]["message"]["content"] == "Hello."


@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_whatever_a_body_holds_it_is_answered_or_refused(count: int) -> None:
    with served({"otherwise": ["Hello."], "parallel": 2, "fim": FIM}) as server:
        bombard(server, seed=count, count=count)
