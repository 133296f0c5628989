"""What llama-server's clients ask for beside OpenAI's interface."""

from collections.abc import Iterator

import pytest

from tests.serve.serving import Served, served


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served({"otherwise": ["Hello."]}) as server:
        yield server


def test_a_text_becomes_tokens_and_tokens_the_text(server: Served) -> None:
    text = "hello é <|im_end|>"
    tokens = server.client.post("/tokenize", json={"content": text}).json()["tokens"]
    assert tokens[-1] == 3
    answer = server.client.post("/detokenize", json={"tokens": tokens})
    assert answer.json() == {"content": text}
    asked = {"content": "hello é", "with_pieces": True, "add_special": True}
    pieces = server.client.post("/tokenize", json=asked).json()["tokens"]
    assert [each["piece"] for each in pieces] == ["hello", " ", [0xC3], [0xA9]]


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/tokenize", {}, "content"),
        ("/tokenize", {"content": 3}, "content"),
        ("/detokenize", {"tokens": [1, 99999]}, "token 99999 is none of a-pair"),
        ("/detokenize", {"tokens": [-1]}, "token -1"),
        ("/detokenize", {"tokens": [1 << 70]}, "is none of"),
        ("/detokenize", {"tokens": "x"}, "tokens"),
    ],
)
def test_what_is_no_text_or_no_token_is_refused(
    server: Served, path: str, body: dict[str, object], told: str
) -> None:
    answer = server.client.post(path, json=body)
    assert answer.status_code == 400
    assert told in answer.json()["error"]["message"]
