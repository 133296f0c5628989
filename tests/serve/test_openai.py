"""OpenAI's interface, asked by OpenAI's own client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from localspec.chat.request import Request
from tests.serve.clients import Package
from tests.serve.serving import Served

if TYPE_CHECKING:
    import openai
else:
    openai = Package("openai")

SCRIPT = {
    "answers": {
        "Rhine": "It is 1233 km long.",
        "story": "x" * 300,
        "why": "<think>So.</think>It is.",
    },
    "otherwise": ["Hello."],
    "parallel": 2,
    "thinks": True,
}


def said(content: str) -> list[openai.types.chat.ChatCompletionMessageParam]:
    return [{"role": "user", "content": content}]


def test_a_question_is_answered(client: openai.OpenAI) -> None:
    done = client.chat.completions.create(model="a-pair", messages=said("How long is the Rhine?"))
    (choice,) = done.choices
    assert (choice.message.content, choice.finish_reason) == ("It is 1233 km long.", "stop")
    assert done.usage is not None
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens
    assert done.model_extra is not None
    assert done.model_extra["speculation"]["drafter"] == "off"


def test_a_stream_adds_up_to_the_answer_and_ends_with_its_figures(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="a-pair",
        messages=said("How long is the Rhine?"),
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    texts = [each.choices[0].delta.content or "" for each in chunks[:-1]]
    assert "".join(texts) == "It is 1233 km long."
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [each.choices[0].finish_reason for each in chunks[-3:-1]] == [None, "stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert len({each.id for each in chunks}) == 1


def test_what_cuts_an_answer_is_told(client: openai.OpenAI) -> None:
    story = client.chat.completions.create(
        model="a-pair", messages=said("a story"), max_completion_tokens=7
    )
    assert (story.choices[0].message.content, story.choices[0].finish_reason) == ("x" * 7, "length")
    rhine = client.chat.completions.create(model="a-pair", messages=said("Rhine"), stop=" km")
    assert (rhine.choices[0].message.content, rhine.choices[0].finish_reason) == (
        "It is 1233",
        "stop",
    )


def test_thoughts_are_apart_from_the_answer(client: openai.OpenAI) -> None:
    done = client.chat.completions.create(model="a-pair", messages=said("why?"))
    message = done.choices[0].message
    assert message.content == "It is."
    assert message.model_extra is not None
    assert message.model_extra["reasoning_content"].strip() == "So."


def test_several_answers_are_made_and_streamed(client: openai.OpenAI) -> None:
    done = client.chat.completions.create(model="a-pair", messages=said("Rhine"), n=3, seed=5)
    assert [each.index for each in done.choices] == [0, 1, 2]
    assert {each.message.content for each in done.choices} == {"It is 1233 km long."}
    texts = {0: "", 1: ""}
    stream = client.chat.completions.create(
        model="a-pair", messages=said("Rhine"), n=2, stream=True
    )
    for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == {0: "It is 1233 km long.", 1: "It is 1233 km long."}


def test_the_engine_is_asked_for_no_rounds_which_no_interface_tells(server: Served) -> None:
    for stream in (False, True):
        server.chat("hello", stream=stream)
        asked = server.asked[-1]
        assert isinstance(asked, Request)
        assert not asked.rounds


def test_every_answer_has_a_seed_of_its_own_and_all_tokens_are_counted(server: Served) -> None:
    before = len(server.asked)
    once = server.chat("hello", seed=5).json()["usage"]
    usage = server.chat("hello", n=3, seed=5).json()["usage"]
    seeds = [each.options.seed for each in server.asked[before:] if isinstance(each, Request)]
    assert sorted(seed or 0 for seed in seeds) == [5, 5, 6, 7]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert usage[name] == 3 * once[name] > 0, name
    assert once["total_tokens"] == once["prompt_tokens"] + once["completion_tokens"]


def test_what_was_known_already_is_told(server: Served) -> None:
    for text in ("a prompt that nobody has asked before", "a prompt that nobody has asked before!"):
        usage = server.chat(text).json()["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        # All but where a turn begins is new at first, and then what comes after the text.
        assert (cached > usage["prompt_tokens"] // 2) is text.endswith("!")
        assert cached < usage["prompt_tokens"]


def test_the_models_are_listed_and_no_other_is_answered_for(client: openai.OpenAI) -> None:
    assert [each.id for each in client.models.list()] == ["a-pair"]
    with pytest.raises(openai.NotFoundError, match="ask for a-pair"):
        client.chat.completions.create(model="gpt-0", messages=said("hello"))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"n": 99}, "1 to 16"),
        ({"stop": [""]}, "stop"),
        ({"logprobs": "yes"}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "0 to 20"),
        ({"top_logprobs": 2}, "without logprobs"),
        ({"functions": [{"name": "f"}]}, "tools and tool_choice"),
        ({"function_call": "auto"}, "tools and tool_choice"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "robot"),
        ({"messages": []}, "say something"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only text is"),
        ({"localspec": {"draft": "often"}}, "choose off, auto"),
        ({"localspec": {"draft": "model"}}, "needs a draft model"),
        ({"localspec": {"exact": True}}, "started without --exact"),
        ({"seed": "x"}, "seed"),
    ],
)
def test_a_body_that_cannot_be_answered_is_refused_in_one_line(
    server: Served, more: dict[str, object], told: str
) -> None:
    answer = server.chat("hello", **more)
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert told in error["message"]
    assert "\n" not in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"messages": 1}'])
def test_what_is_no_body_is_refused(server: Served, body: bytes) -> None:
    answer = server.client.post("/v1/chat/completions", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("the body")


def test_a_conversation_that_does_not_fit_says_so(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="a-pair", messages=said("x" * 5000))
    assert caught.value.code == "context_length_exceeded"


def test_a_text_goes_on_as_it_is(client: openai.OpenAI) -> None:
    prompt = "<|im_start|>user\nthe Rhine<|im_end|>\n<|im_start|>assistant\n"
    done = client.completions.create(model="a-pair", prompt=prompt, max_tokens=5)
    assert (done.choices[0].text, done.choices[0].finish_reason) == ("It is", "length")
    stream = client.completions.create(model="a-pair", prompt=prompt, max_tokens=99, stream=True)
    assert "".join(each.choices[0].text for each in stream) == "It is 1233 km long."


def test_every_token_is_told_how_likely_it_was_streamed_or_not(client: openai.OpenAI) -> None:
    def asked(stream: bool) -> dict[str, object]:
        return {"model": "a-pair", "messages": said("Rhine"), "logprobs": True, "top_logprobs": 2}

    done = client.chat.completions.create(**asked(False))  # type: ignore[call-overload]
    told = done.choices[0].logprobs.content
    assert bytes(byte for each in told for byte in each.bytes).decode() == "It is 1233 km long."
    # The script is sure of itself: exp(50) against 355 times 1.
    assert all(-1e-9 < each.logprob <= 0 for each in told)
    assert all(len(each.top_logprobs) == 2 for each in told)
    assert all(each.top_logprobs[0].token == each.token for each in told)
    assert all(abs(each.top_logprobs[1].logprob + 50) < 1e-6 for each in told)
    stream = client.chat.completions.create(**asked(True), stream=True)  # type: ignore[call-overload]
    chunks = [each.choices[0] for each in stream if each.choices]
    streamed = [one for each in chunks if each.logprobs for one in each.logprobs.content]
    assert streamed == told


def test_a_completion_tells_it_in_its_own_form(client: openai.OpenAI) -> None:
    prompt = "<|im_start|>user\nthe Rhine<|im_end|>\n<|im_start|>assistant\n"
    asked = {"model": "a-pair", "prompt": prompt, "max_tokens": 99, "logprobs": 1, "stop": "long"}
    done = client.completions.create(**asked)  # type: ignore[call-overload]
    told = done.choices[0].logprobs
    text = done.choices[0].text
    assert "".join(told.tokens) == text == "It is 1233 km "
    assert [
        text[at : at + len(each)] for at, each in zip(told.text_offset, told.tokens, strict=True)
    ] == told.tokens
    assert [list(each) for each in told.top_logprobs] == [[each] for each in told.tokens]
    stream = client.completions.create(**asked, stream=True)  # type: ignore[call-overload]
    offsets = [
        at
        for each in stream
        if each.choices[0].logprobs
        for at in each.choices[0].logprobs.text_offset
    ]
    assert offsets == told.text_offset
