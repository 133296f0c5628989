"""OpenAI's chat completions and completions, asked by OpenAI's own client."""

from typing import Any

import pytest

from tests.serve.clients import openai
from tests.serve.serving import CHAT, Served, turn, user

RHINE = "It is 1233 km long."
SCRIPT = {
    "answers": {"Rhine": RHINE, "story": "x" * 300, "why": "<think>So.</think>It is."},
    "otherwise": ["Hello."],
    "parallel": 2,
    "thinks": True,
}


def chat(client: Any, text: str, **more: Any) -> Any:
    return client.chat.completions.create(model="a-pair", messages=[user(text)], **more)


@pytest.mark.parametrize(
    ("text", "how", "content", "reason"),
    [
        ("How long is the Rhine?", {}, RHINE, "stop"),
        ("a story", {"max_completion_tokens": 7}, "x" * 7, "length"),
        ("Rhine", {"stop": " km"}, "It is 1233", "stop"),
        ("why?", {}, "It is.", "stop"),
    ],
)
def test_a_question_is_answered(
    client: Any, text: str, how: dict[str, Any], content: str, reason: str
) -> None:
    done = chat(client, text, **how)
    (choice,) = done.choices
    assert (choice.message.content, choice.finish_reason) == (content, reason)
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens > 0
    assert done.model_extra["speculation"]["drafter"] == "off"
    assert done.system_fingerprint.startswith("localspec-")
    thoughts = choice.message.model_extra.get("reasoning_content", "").strip()
    assert thoughts == ("So." if text == "why?" else "")


def test_a_stream_adds_up_to_the_answer_and_ends_with_its_figures(client: Any) -> None:
    *chunks, last = chat(client, "Rhine", stream=True, stream_options={"include_usage": True})
    assert "".join(each.choices[0].delta.content or "" for each in chunks) == RHINE
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [each.choices[0].finish_reason for each in chunks[-2:]] == [None, "stop"]
    assert last.choices == []
    assert last.usage.completion_tokens > 0
    assert len({each.id for each in (*chunks, last)}) == 1


def test_several_answers_are_made_and_streamed(client: Any, server: Served) -> None:
    done = chat(client, "Rhine", n=3)
    assert [(each.index, each.message.content) for each in done.choices] == [(0, RHINE), (1, RHINE), (2, RHINE)]  # fmt: skip
    texts = ["", ""]
    for chunk in chat(client, "Rhine", n=2, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [RHINE] * 2
    before = len(server.asked)
    once, usage = (server.chat("hello", n=n, seed=5).json()["usage"] for n in (1, 3))
    assert sorted(each.options.seed for each in server.asked[before:]) == [5, 5, 6, 7]  # type: ignore[union-attr, type-var]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert usage[name] == 3 * once[name] > 0, name


def test_what_the_cache_had_is_counted(server: Served) -> None:
    for text in ("a prompt that nobody has sent before", "a prompt that nobody has sent before!"):
        usage = server.chat(text).json()["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        # All but where a turn begins is new at first, and then what comes after the text.
        assert (cached > usage["prompt_tokens"] // 2) is text.endswith("!")
        assert cached < usage["prompt_tokens"]
        assert not server.request.rounds, "no interface has them"


def test_the_models_are_listed_and_described(client: Any, claude: Any, server: Served) -> None:
    for maker in (client, claude):
        assert [each.id for each in maker.models.list()] == ["a-pair"]
        assert maker.models.retrieve("a-pair").id == "a-pair"
    assert claude.models.retrieve("a-pair").display_name == "a-pair"
    with pytest.raises(openai.NotFoundError, match="ask for a-pair"):
        client.models.retrieve("org/other")
    with pytest.raises(Exception, match="ask for a-pair") as caught:
        claude.models.retrieve("other")
    assert caught.value.body["type"] == "error"  # type: ignore[attr-defined]
    assert server.client.get("/models").json() == server.client.get("/v1/models").json()


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"n": 99}, "1 to 16"),
        ({"n": -1}, "1 to 16"),
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
        ({"messages": [{"role": "system", "content": "x"}]}, "nothing to answer"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only text is"),
        ({"localspec": {"draft": "often"}}, "choose off, auto"),
        ({"localspec": {"draft": "model"}}, "needs a draft model"),
        ({"localspec": {"exact": True}}, "started without --exact"),
        ({"seed": "x"}, "seed"),
    ],
)
def test_a_body_that_cannot_be_answered_is_refused(
    server: Served, more: dict[str, Any], word: str
) -> None:
    error = server.refuse(CHAT, word, **{"messages": [user("hello")], **more})
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"messages": 1}'])
def test_what_is_no_body_is_refused(server: Served, body: bytes) -> None:
    answer = server.client.post(CHAT, content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("the body")


def test_a_conversation_that_does_not_fit_has_its_code(client: Any) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, "x" * 5000)
    assert caught.value.code == "context_length_exceeded"


def test_a_text_goes_on_as_it_is(client: Any) -> None:
    given: dict[str, Any] = {"model": "a-pair", "prompt": turn("the Rhine")}
    done = client.completions.create(**given, max_tokens=5)
    assert (done.choices[0].text, done.choices[0].finish_reason) == ("It is", "length")
    stream = client.completions.create(**given, max_tokens=99, stream=True)
    assert "".join(each.choices[0].text for each in stream) == RHINE


def test_every_token_has_its_logprob_streamed_or_not(client: Any) -> None:
    how = {"logprobs": True, "top_logprobs": 2}
    whole = chat(client, "Rhine", **how).choices[0].logprobs.content
    assert bytes(byte for each in whole for byte in each.bytes).decode() == RHINE
    for each in whole:  # the script is sure of itself: exp(50) against 355 times 1
        assert -1e-9 < each.logprob <= 0
        assert each.top_logprobs[0].token == each.token
        assert abs(each.top_logprobs[1].logprob + 50) < 1e-6
    chunks = [each.choices[0] for each in chat(client, "Rhine", stream=True, **how)]
    assert [one for each in chunks if each.logprobs for one in each.logprobs.content] == whole


def test_a_completion_has_logprobs_in_its_own_form(client: Any) -> None:
    given = {"model": "a-pair", "prompt": turn("the Rhine"), "max_tokens": 99, "logprobs": 1}
    (choice,) = client.completions.create(**given, stop="long").choices
    tokens, offsets = choice.logprobs.tokens, choice.logprobs.text_offset
    assert "".join(tokens) == choice.text == "It is 1233 km "
    assert [choice.text[at:][: len(each)] for at, each in zip(offsets, tokens, strict=True)] == tokens  # fmt: skip
    assert [list(each) for each in choice.logprobs.top_logprobs] == [[each] for each in tokens]
    stream = client.completions.create(**given, stop="long", stream=True)
    parts = [each.choices[0].logprobs for each in stream if each.choices[0].logprobs]
    assert [at for each in parts for at in each.text_offset] == offsets
