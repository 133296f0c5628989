"""The requests of llama-server's clients beside OpenAI's interface."""

import json
from typing import Any

from tests.plugins.serve.serving import (
    CHAT,
    FIM,
    INFILL,
    MESSAGES,
    TEXT,
    Served,
    served,
    turn,
    user,
)

SCRIPT = {"otherwise": ["Hello."]}


def test_a_text_becomes_tokens_and_tokens_the_text(server: Served) -> None:
    text = "hello é <|im_end|>"
    tokens = server.post("/tokenize", content=text).json()["tokens"]
    assert tokens[-1] == 3
    assert server.post("/detokenize", tokens=tokens).json() == {"content": text}
    pieces = server.post("/tokenize", content="hello é", with_pieces=True, add_special=True)
    assert [each["piece"] for each in pieces.json()["tokens"]] == ["hello", " ", [0xC3], [0xA9]]


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


def test_probabilities_and_ids_of_tokens(server: Served) -> None:
    body = {"prompt": turn("a"), "n_predict": 3}
    done = server.post("/completion", **body, n_probs=2, return_tokens=True).json()
    first, *_ = likely = done["completion_probabilities"]
    assert "".join(each["token"] for each in likely) == done["content"]
    assert first["logprob"] <= 0
    assert [len(each["top_logprobs"]) for each in likely] == [2] * len(likely)
    text = server.post("/detokenize", tokens=done["tokens"]).json()["content"]
    assert text == done["content"]
    assert (
        not {"completion_probabilities", "tokens"}
        & server.post("/completion", **body).json().keys()
    )
    lines = server.post(
        "/completion", **body, n_probs=1, return_tokens=True, stream=True
    ).text.split("\n\n")
    *pieces, last = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    assert last["tokens"] == done["tokens"]
    tokens = [each["token"] for piece in pieces for each in piece["completion_probabilities"]]
    assert "".join(tokens) == done["content"]


def test_a_stream_ends_with_figures_where_clients_of_llama_cpp_read_them(server: Served) -> None:
    for path, body in ((CHAT, {"messages": [user("a")]}), (TEXT, {"prompt": turn("a")})):
        lines = server.post(path, **body, stream=True).text.split("\n\n")
        timings = json.loads(lines[-3].removeprefix("data: "))["timings"]
        assert timings["predicted_per_second"] > 0
        assert {"prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "cache_n"} <= timings.keys()
        assert timings["predicted_n"] + timings["prompt_n"] > 1


def test_a_prompt_that_is_too_long_is_refused_with_both_figures(server: Served) -> None:
    long = "a" * 4100
    for path, body in (
        (CHAT, {"messages": [user(long)]}),
        (CHAT, {"messages": [user(long)], "stream": True}),
        (TEXT, {"prompt": long}),
        (MESSAGES, {"messages": [user(long)], "max_tokens": 5}),
    ):
        error = server.refuse(path, "the context holds 4000", **body)
        assert error["n_ctx"] == 4000
        assert error["n_prompt_tokens"] > 4100 - (path == TEXT)
    assert "n_ctx" not in server.refuse(CHAT, "seed", messages=[user("a")], seed="x")


def test_tokens_are_counted_under_the_paths_of_both(server: Served) -> None:
    chat, text = {"messages": [user("hello")]}, {"input": "hello"}
    counts = set[int]()
    for head in ("", "/v1"):
        counts.add(
            server.post(f"{head}/chat/completions/input_tokens", **chat).json()["input_tokens"]
        )
        counted = server.post(f"{head}/responses/input_tokens", **text).json()
        counts.add(counted["input_tokens"])
        assert counted["object"] == "response.input_tokens"
        assert server.post(f"{head}/responses", **text).json()["object"] == "response"
    assert counts == {server.chat("hello").json()["usage"]["prompt_tokens"]}
    assert server.post("/tokenize", content="").json() == {"tokens": []}
