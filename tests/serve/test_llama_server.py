"""The requests of llama-server's clients beside OpenAI's interface."""

import json
from typing import Any

from tests.serve.serving import FIM, INFILL, TEXT, Served, served

SCRIPT = {"otherwise": ["Hello."]}


def test_a_text_becomes_tokens_and_tokens_the_text(server: Served) -> None:
    text = "hello é <|im_end|>"
    tokens = server.post("/tokenize", content=text).json()["tokens"]
    assert tokens[-1] == 3
    assert server.post("/detokenize", tokens=tokens).json() == {"content": text}
    pieces = server.post("/tokenize", content="hello é", with_pieces=True, add_special=True)
    assert [each["piece"] for each in pieces.json()["tokens"]] == ["hello", " ", [0xC3], [0xA9]]


def test_what_cannot_be_had_is_refused(server: Served) -> None:
    rows: list[tuple[str, dict[str, Any], str]] = [
        ("/tokenize", {}, "content"),
        ("/tokenize", {"content": 3}, "content"),
        ("/detokenize", {"tokens": [1, 99999]}, "token 99999 is none of a-pair"),
        ("/detokenize", {"tokens": [-1]}, "token -1"),
        ("/detokenize", {"tokens": [1 << 70]}, "is none of"),
        ("/detokenize", {"tokens": "x"}, "tokens"),
        (INFILL, {"input_prefix": "a"}, "cannot fill in the middle"),
        (TEXT, {"prompt": "a", "suffix": "b"}, "cannot fill in the middle"),
    ]
    for path, body, word in rows:
        server.refuse(path, word, **body)


def test_a_gap_is_filled_in_with_the_fields_that_editors_send() -> None:
    body: dict[str, Any] = {"input_prefix": "def f(x):\n", "input_suffix": "\n", "prompt": "    "}
    body |= {"input_extra": [{"filename": "a.py", "text": "x = 1"}], "n_predict": 32, "seed": -1}
    with served({"otherwise": ["Hello."], "fim": FIM}) as server:
        whole = server.post(INFILL, **body).json()
        assert whole["content"].endswith("Hello.")
        assert (whole["stop_type"], whole["truncated"]) == ("eos", False)
        assert whole["timings"]["predicted_n"] == whole["tokens_predicted"] > 5
        fields = ["content", "timings/prompt_n", "nothing/there"]
        chosen = server.post(INFILL, **body, response_fields=fields).json()
        assert list(chosen) == fields[:2]
        lines = server.post(INFILL, **body, stream=True).text.split("\n\n")
        parts = [json.loads(line.removeprefix("data: ")) for line in lines if line]
        assert "".join(each["content"] for each in parts) == whole["content"]
        assert [each["stop"] for each in parts] == [False] * (len(parts) - 1) + [True]
        done = server.post(TEXT, prompt="a", suffix="b").json()
        assert done["choices"][0]["text"] == whole["content"]


def test_what_fills_a_gap_ends_where_editors_say() -> None:
    story = "Hello.\n    So.\n  No.\n    And."
    with served({"otherwise": [story], "fim": FIM, "pass_s": 0.002, "parallel": 3}) as server:

        def filled(**more: object) -> Any:
            body = {"input_prefix": "a", "input_suffix": "b", "n_predict": 64, **more}
            return server.post(INFILL, **body).json()

        whole = filled()
        assert whole["content"].endswith(story)
        assert whole["generation_settings"]["n_ctx"] == 4000
        indented = filled(n_indent=3)
        assert indented["content"] == whole["content"].removesuffix("\n  No.\n    And.")
        assert indented["stop_type"] == "limit"
        quick = filled(t_max_predict_ms=1)
        assert quick["content"] == whole["content"].split("\n")[0]
        assert quick["tokens_predicted"] < whole["tokens_predicted"]
        assert [each["content"] for each in filled(n_cmpl=3)] == [whole["content"]] * 3
        assert "error" not in filled(n_cmpl=0)
        assert all("error" in filled(n_cmpl=count) for count in (-1, 99))
