"""Whatever a body holds, it is answered or refused in one line, and the next request is answered."""

import json
import random
import socket
from typing import Any

import pytest

from tests.plugins.serve.media_files import encoded, png, wav
from tests.plugins.serve.serving import COUNT, FIM, bodies, error_in, served, turn, user

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
    *("", "x", "auto", "off", "\ud800", "é", "json_object", "json_schema", "user", "tool"),
    *("assistant", "json", "5m", "-1h", "high"),
)
_ROLES = ("user", "user", "user", "assistant", "system", "tool")
_GOOD = {
    "messages": [user("hello")],
    "input": "hello",
    "content": "hello",
    "tokens": [1],
    "prompt": turn("hello"),
    "max_tokens": 5,
}


def value(chance: random.Random, depth: int = 0) -> Any:
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


_FILES = (
    *(encoded(each) for each in (png(), png()[:30], wav(), wav()[:20], b"hello", b"")),
    *("???", "AAA", "é", "\ud800"),
)


def part(chance: random.Random) -> Any:
    """Return a part of a message that is nearly a picture, a sound or a text of some interface."""
    file = chance.choice(_FILES)
    kind = chance.choice(("image/png", "audio/wav", "application/pdf", ""))
    urls = (
        f"data:{kind};base64,{file}",
        "https://upload.example.org/a",
        "file:///etc/passwd",
        file,
    )
    url = chance.choice(urls)
    source = {"type": chance.choice(("base64", "url", "file")), "media_type": kind, "data": file}
    image = {"type": "image", "source": source}
    parts: tuple[dict[str, Any], ...] = (
        {"type": "text", "text": "x"},
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": file, "format": "wav"}},
        {"type": "input_image", "image_url": url},
        {"type": "input_file", "file_data": url, "filename": "a"},
        {"type": "tool_result", "tool_use_id": "1", "content": [image]},
        {"type": "document", "source": source},
        image,
    )
    made = chance.choice(parts)
    while chance.random() < 0.3:
        inner = chance.choice([made, *(each for each in made.values() if isinstance(each, dict))])
        inner[chance.choice([*inner, *_INNER])] = value(chance)
    return made


def body(chance: random.Random) -> bytes:
    """Return a body that is nearly as it should be."""
    fields = _GOOD | {key: value(chance) for key in chance.sample(_KEYS, chance.randrange(4))}
    if chance.random() < 0.5:
        content = [part(chance) for _ in range(chance.randrange(4))]
        turns = [{"role": chance.choice(_ROLES), "content": content}, user("hello")]
        fields |= {"messages": turns, "input": turns}
        images = [chance.choice(_FILES), value(chance)]
        turns[1]["images"] = fields["images"] = images[: chance.randrange(3)]
    raw = bytearray(json.dumps(fields).encode())
    for _ in range(3 * (chance.random() < 0.1)):
        raw[chance.randrange(len(raw))] = chance.randrange(256)
    return bytes(raw)


@pytest.mark.parametrize("count", [20, pytest.param(300, marks=pytest.mark.slow)])
def test_whatever_a_body_holds_it_is_answered_or_refused(count: int) -> None:
    script = {"otherwise": ["Hello."], "parallel": 2, "fim": FIM, "sees": True, "hears": count > 20}
    chance = random.Random(count)
    with served(script) as server:
        for _ in range(count):
            path, sent = chance.choice(_PATHS), body(chance)
            answer = server.client.post(path, content=sent)
            assert answer.status_code in {200, 400, 404}, (path, sent, answer.text)
            if answer.status_code != 200:
                assert "\n" not in error_in(answer.json())["message"], (path, sent)
        port = int(server.url.rpartition(":")[2])
        for _ in range(count // 10):  # what is no HTTP at all
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(chance.randbytes(chance.randint(1, 400)))
        server.wait_until(0)
        assert server.chat("hello").json()["choices"][0]["message"]["content"] == "Hello."
