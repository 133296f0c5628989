"""What llama-server's clients ask for beside OpenAI's interface."""

import json
from typing import Any

import pytest

from tests.serve.serving import FIM, Served, served

SCRIPT = {"otherwise": ["Hello."]}


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


def test_a_gap_is_filled_in_as_editors_ask_for_it() -> None:
    gap = {
        "input_prefix": "def f(x):\n",
        "input_suffix": "\n",
        "prompt": "    return ",
        "n_predict": 32,
    }
    asked = {
        **gap,
        "input_extra": [{"filename": "a.py", "text": "x = 1", "time": 3}],
        "samplers": ["top_k", "infill"],
        "t_max_prompt_ms": 500,
        "cache_prompt": True,
        "seed": -1,
    }
    with served({"otherwise": ["Hello."], "fim": FIM}) as server:
        whole = server.client.post("/infill", json=asked).json()
        assert whole["content"].endswith("Hello.")
        assert (whole["stop_type"], whole["truncated"]) == ("eos", False)
        assert whole["timings"]["predicted_n"] == whole["tokens_predicted"] > 5
        fields = ["content", "timings/prompt_n", "nothing/there"]
        chosen = server.client.post("/infill", json={**asked, "response_fields": fields}).json()
        assert list(chosen) == fields[:2]
        ahead = server.client.post("/infill", json={**asked, "n_predict": 0}).json()
        assert ahead["content"] == ""
        lines = server.client.post("/infill", json={**asked, "stream": True}).text.split("\n\n")
        parts = [json.loads(line.removeprefix("data: ")) for line in lines if line]
        assert "".join(each["content"] for each in parts) == whole["content"]
        assert [each["stop"] for each in parts][-1]
        done = server.client.post("/v1/completions", json={"prompt": "a", "suffix": "b"}).json()
        assert done["choices"][0]["text"] == whole["content"]


def test_what_fills_a_gap_ends_where_editors_say() -> None:
    """The fields that llama.vim and llama.vscode send to have a small answer fast."""
    story = "Hello.\n    So.\n  No.\n    And."
    with served({"otherwise": [story], "fim": FIM, "pass_s": 0.002, "parallel": 3}) as server:
        gap = {"input_prefix": "a", "input_suffix": "b", "n_predict": 64}

        def filled(**more: object) -> dict[str, Any]:
            answer: dict[str, Any] = server.client.post("/infill", json={**gap, **more}).json()
            return answer

        whole = filled()
        assert whole["content"].endswith(story)
        assert whole["generation_settings"]["n_ctx"] == 4000
        indented = filled(n_indent=3)
        assert indented["content"] == whole["content"].removesuffix("\n  No.\n    And.")
        assert indented["stop_type"] == "limit"
        quick = filled(t_max_predict_ms=1)
        assert quick["content"] == whole["content"].split("\n")[0]
        assert quick["tokens_predicted"] < whole["tokens_predicted"]
        several = server.client.post("/infill", json={**gap, "n_cmpl": 3}).json()
        assert [each["content"] for each in several] == [whole["content"]] * 3
        for count in (0, -1, 99):
            answer = server.client.post("/infill", json={**gap, "n_cmpl": count})
            assert answer.status_code == (200 if count == 0 else 400)


def test_a_conversation_is_read_ahead_and_nothing_is_written(server: Served) -> None:
    """llama.vim asks so while its user still writes an instruction."""
    for limit, tokens in ((0, 1), (3, 3), (-1, 6)):
        answer = server.chat("hello", n_predict=limit).json()
        assert answer["usage"]["completion_tokens"] == tokens + (limit < 0)


def test_a_model_that_cannot_fill_in_says_so(server: Served) -> None:
    for path, body in (
        ("/infill", {"input_prefix": "a"}),
        ("/v1/completions", {"prompt": "a", "suffix": "b"}),
    ):
        answer = server.client.post(path, json=body)
        assert answer.status_code == 400
        assert "cannot fill in the middle" in answer.json()["error"]["message"]
