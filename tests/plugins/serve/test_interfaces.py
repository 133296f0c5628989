"""OpenAI's and Anthropic's interfaces, asked by their makers' own clients; the events of their streams stand in the corpus."""

import json
import re
from typing import Any

import pytest

from localspec.chat.events import Echo, Text, TokenLogprob
from localspec.messages import Message
from localspec.plugins.serve.openai_forms import TextForm
from localspec.plugins.serve.stable_prefix import normalise
from tests.plugins.serve.clients import anthropic, openai
from tests.plugins.serve.serving import (
    CHAT,
    COUNT,
    MESSAGES,
    RESPONSES,
    TEXT,
    Served,
    bodies,
    turn,
    user,
)

pytestmark = pytest.mark.slow

RHINE = "It is 1233 km long."
SCRIPT = {
    "answers": {"Rhine": RHINE, "story": "x" * 300, "why": "<think>So.</think>It is."},
    "otherwise": ["Hello.", "Again."],
    "parallel": 2,
    "thinks": True,
}


def chat(client: Any, text: str, **more: Any) -> Any:
    return client.chat.completions.create(model="a-pair", messages=[user(text)], **more)


def test_a_question_is_answered(client: Any) -> None:
    rows: list[tuple[Any, ...]] = [
        ("How long is the Rhine?", {}, RHINE, "stop"),
        ("a story", {"max_completion_tokens": 7}, "x" * 7, "length"),
        ("Rhine", {"stop": " km"}, "It is 1233", "stop"),
        ("why?", {}, "It is.", "stop"),
    ]
    for text, how, content, reason in rows:
        done = chat(client, text, **how)
        (choice,) = done.choices
        assert (choice.message.content, choice.finish_reason) == (content, reason)
        usage = done.usage
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > 0
        assert done.model_extra["speculation"]["drafter"] == "off"
        assert done.system_fingerprint.startswith("localspec-")
        thoughts = choice.message.model_extra.get("reasoning_content", "").strip()
        assert thoughts == ("So." if text == "why?" else "")
        assert choice.message.model_extra.get("reasoning", "").strip() == thoughts
        deltas = [each.choices[0].delta for each in chat(client, text, stream=True, **how)]
        for name in ("reasoning_content", "reasoning"):
            parts = [each.model_extra.get(name, "") for each in deltas]
            assert "".join(parts).strip() == thoughts


def test_several_answers_are_made_and_streamed(client: Any, server: Served) -> None:
    done = chat(client, "Rhine", n=3)
    assert [(each.index, each.message.content) for each in done.choices] == [
        *enumerate([RHINE] * 3)
    ]
    texts = ["", ""]
    for chunk in chat(client, "Rhine", n=2, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [RHINE] * 2
    before = len(server.asked)
    once, usage = (server.chat("hello", n=n, seed=5).json()["usage"] for n in (1, 3))
    assert sorted(each.options.seed for each in server.asked[before:]) == [5, 5, 6, 7]  # type: ignore[union-attr, type-var]
    assert usage["prompt_tokens"] == once["prompt_tokens"] > 0
    assert usage["completion_tokens"] == 3 * once["completion_tokens"] > 0


def test_what_the_cache_had_is_counted(server: Served) -> None:
    for text in ("a prompt that nobody has sent before", "a prompt that nobody has sent before!"):
        usage = server.chat(text).json()["usage"]
        # All but where a turn begins is new at first, and then what comes after the text.
        assert (cached(usage) > usage["prompt_tokens"] // 2) is text.endswith("!")
        assert cached(usage) < usage["prompt_tokens"]
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


def test_what_is_no_body_or_does_not_fit_is_refused(server: Served, client: Any) -> None:
    for body in [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"messages": 1}']:
        answer = server.client.post(CHAT, content=body)
        assert (answer.status_code, "the body" in answer.text) == (400, True)
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, "x" * 5000)
    assert caught.value.code == "context_length_exceeded"


def test_a_text_goes_on_as_it_is_and_has_logprobs_in_its_own_form(client: Any) -> None:
    given: dict[str, Any] = {"model": "a-pair", "prompt": turn("the Rhine")}
    done = client.completions.create(**given, max_tokens=5)
    assert (done.choices[0].text, done.choices[0].finish_reason) == ("It is", "length")
    stream = client.completions.create(**given, max_tokens=99, stream=True)
    assert "".join(each.choices[0].text for each in stream) == RHINE
    given = {"model": "a-pair", "prompt": turn("the Rhine"), "max_tokens": 99, "logprobs": 1}
    (choice,) = client.completions.create(**given, stop="long").choices
    tokens, offsets = choice.logprobs.tokens, choice.logprobs.text_offset
    assert "".join(tokens) == choice.text == "It is 1233 km "
    assert [choice.text[at:][: len(each)] for at, each in zip(offsets, tokens, strict=True)] == tokens  # fmt: skip
    assert [list(each) for each in choice.logprobs.top_logprobs] == [[each] for each in tokens]
    stream = client.completions.create(**given, stop="long", stream=True)
    parts = [each.choices[0].logprobs for each in stream if each.choices[0].logprobs]
    assert [at for each in parts for at in each.text_offset] == offsets


def test_offsets_of_an_echo_leave_out_what_its_text_lacks() -> None:
    tokens = tuple(TokenLogprob(each, -1.0) for each in ("<s>", " tea", " is"))
    form = TextForm("a", logprobs=True, count=1)
    piece = form.piece(0, Echo("tea is", tokens))
    assert piece["logprobs"]["text_offset"] == [0, 0, 3]
    more = form.piece(0, Text(" hot", logprobs=(TokenLogprob(" hot", -1.0),)))
    assert more["logprobs"]["text_offset"] == [6]


def test_a_prompt_may_be_ids_or_several_of_either(client: Any, server: Served) -> None:
    texts = [turn("the Rhine"), turn("hello")]
    ids = [server.post("/tokenize", content=each).json()["tokens"] for each in texts]
    for prompt in (texts, ids, [texts[0], ids[1]], [*ids]):
        done = client.completions.create(model="a-pair", prompt=prompt, max_tokens=99)
        assert [each.text for each in done.choices] == [RHINE, "Hello."]
    (choice,) = client.completions.create(model="a-pair", prompt=ids[0], max_tokens=99).choices
    assert choice.text == RHINE


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("limit", [0, 99])
def test_a_prompt_is_echoed_with_the_logprobs_of_its_tokens(
    client: Any, server: Served, stream: bool, limit: int
) -> None:
    prompt = turn("the Rhine")
    answer = RHINE[:limit]
    ids = server.post("/tokenize", content=prompt).json()["tokens"]
    for given in (prompt, ids):
        for most in (None, 1):
            more = {"max_tokens": limit, "echo": True, "logprobs": most, "stream": stream}
            done = client.completions.create(model="a-pair", prompt=given, **more)
            choices = [each.choices[0] for each in (done if stream else [done])]
            assert "".join(each.text for each in choices) == prompt + answer
            parts = [each.logprobs for each in choices if each.logprobs]
            tokens, logprobs, top, offsets = (
                [one for each in parts for one in getattr(each, name)]
                for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")
            )
            if most is None:
                assert not tokens
                continue
            ended = limit > len(answer)  # what ends it is a token, too
            assert len(tokens) == len(ids) + len(answer) + ended
            assert "".join(tokens[: len(tokens) - ended]) == prompt + answer
            assert (logprobs[0], top[0]) == (None, None)
            assert all(each <= 0 for each in logprobs[1:])
            assert all(len(each) in {1, 2} for each in top[1:])
            assert offsets == sorted(offsets)
            assert offsets[len(ids) :][:1] == [len(prompt)][: limit > 0]
    whole = server.post(TEXT, prompt=prompt, echo=True, logprobs=0, max_tokens=limit).json()
    assert cached(whole["usage"]) == 0, "all of it was evaluated"
    server.refuse(CHAT, "echo is not supported", messages=[user("x")], echo=True)


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


def claude_says(claude: Any, text: Any, **more: Any) -> Any:
    given = {"model": "a-pair", "max_tokens": 99, "messages": [user(text)], **more}
    return claude.messages.create(**given)


def test_anthropics_answers_are_counted_and_streamed(claude: Any) -> None:
    question = [{"type": "text", "text": "How long is the Rhine?"}]
    given: dict[str, Any] = {"model": "a-pair", "system": "Be brief.", "messages": [user(question)]}
    counted = claude.messages.count_tokens(**given).input_tokens
    for _ in range(2):  # tokens from the cache are not counted twice
        done = claude.messages.create(**given, max_tokens=99)
        assert counted == done.usage.input_tokens + done.usage.cache_read_input_tokens
    assert done.usage.cache_read_input_tokens > 0
    assert [(each.type, each.text) for each in done.content] == [("text", RHINE)]
    assert done.stop_reason == "end_turn"
    given = {"model": "a-pair", "max_tokens": 99, "messages": [user("why?")]}
    with claude.messages.stream(**given) as stream:
        whole = stream.get_final_message()
    for each in (whole, claude.messages.create(**given)):
        assert [block.type for block in each.content] == ["thinking", "text"]
        assert each.content[1].text == "It is."


def test_a_request_says_what_drafts(server: Served) -> None:
    for stream in (False, True):
        body: dict[str, Any] = {**bodies("the Rhine", 9)[MESSAGES], "stream": stream}
        text = server.post(MESSAGES, **body, localspec={"draft": "off"}).text
        assert server.request.draft == "off"
        if stream:
            (text,) = re.findall(r"^data: (.*message_delta.*)$", text, re.MULTILINE)
        figures = json.loads(text)
        assert figures["speculation"]["reason"]
        assert figures["timings"]["first_token_s"] > 0
        assert "seed" in figures["localspec"]


def test_errors_and_ends_of_anthropics_have_their_form(claude: Any, server: Served) -> None:
    stopped = claude_says(claude, "the Rhine", stop_sequences=[" km"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", " km")
    assert claude_says(claude, "the Rhine", stop_sequences=[" km", "!"]).stop_sequence is None
    assert claude_says(claude, "the Rhine", max_tokens=3).stop_reason == "max_tokens"
    with pytest.raises(anthropic.NotFoundError, match="ask for a-pair"):
        claude_says(claude, "hello", model="claude")
    for more in ({"max_tokens": 0}, {}):
        answer = server.post(MESSAGES, messages=[], **more)
        assert answer.status_code == 400
        assert answer.json()["type"] == "error"
        assert answer.json()["error"]["type"] == "invalid_request_error"


def test_responses_are_answered_with_thoughts_and_logprobs(client: Any) -> None:
    done = client.responses.create(model="a-pair", input="the Rhine?", temperature=0)
    assert (done.output_text, done.status) == (RHINE, "completed")
    assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens
    cut = client.responses.create(model="a-pair", input="the Rhine", max_output_tokens=5)
    assert (cut.output_text, cut.status) == ("It is", "incomplete")
    assert cut.incomplete_details.reason == "max_output_tokens"
    first = client.responses.create(model="a-pair", input="why?", instructions="Be brief.")
    assert [each.type for each in first.output] == ["reasoning", "message"]
    turns = [user([{"type": "input_text", "text": "hello"}])]
    turns += [*(each.model_dump() for each in first.output), {**user("and?"), "type": "message"}]
    again = client.responses.create(model="a-pair", input=turns, instructions="Be brief.")
    assert again.output_text == "Again."
    done = client.responses.create(
        model="a-pair", input="the Rhine", include=["message.output_text.logprobs"], top_logprobs=1
    )
    logprobs = done.output[0].content[0].logprobs
    assert "".join(each.token for each in logprobs) == done.output_text


BILLING = "x-anthropic-billing-header: cc_version=2.1.42.{}; cc_entrypoint=cli; cch={};"
AGENT = "You are an agent that edits files. " * 6


def cached(usage: dict[str, Any]) -> int:
    if "cache_read_input_tokens" in usage:
        return int(usage["cache_read_input_tokens"])
    details = usage.get("prompt_tokens_details") or usage["input_tokens_details"]
    return int(details["cached_tokens"])


def test_a_line_that_changes_with_every_request_costs_no_cache(server: Served) -> None:
    changes = (("834", "65abc"), ("01c", "00f1e"), ("fff", "12345"))
    first, second, third = (BILLING.format(*each) for each in changes)
    parts = [[{"type": "text", "text": text} for text in (line, AGENT)] for line in (first, second)]
    hello = user("Say hello.")
    system = {"role": "system", "content": third + AGENT}
    counts = [
        cached(server.post(path, **body).json()["usage"])
        for path, body in (
            (MESSAGES, {"messages": [hello], "system": parts[0], "max_tokens": 20}),
            (MESSAGES, {"messages": [hello], "system": parts[1], "max_tokens": 20}),
            (CHAT, {"messages": [system, hello]}),
            (RESPONSES, {"instructions": third + AGENT, "input": "Say hello."}),
        )
    ]
    assert counts[0] < len(AGENT) < min(counts[1:])


USER = user("How long is the Rhine? " * 8)
HISTORY = [USER, {"role": "assistant", "content": "It is 1233 km long."}, USER]


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, COUNT])
def test_a_system_message_behind_the_users_is_read_and_costs_no_cache(
    server: Served, path: str, role: str
) -> None:
    usage: dict[str, Any] = {}
    for note in ("It is 9 o'clock.", "It is 10 o'clock!"):
        said = [*HISTORY, {"role": role, "content": note}]
        body = {"input" if path == RESPONSES else "messages": said}
        answer = server.post(path, **body, **({"max_tokens": 99} if path == MESSAGES else {}))
        assert answer.status_code == 200, answer.text
        if path != COUNT:
            assert "It is 1233 km long." in answer.text
            assert server.request.messages[-1].role == "system"
            usage = answer.json()["usage"]
    assert path == COUNT or cached(usage) > 2 * len(USER["content"])


def test_only_checksums_in_such_a_line_are_changed() -> None:
    for text, steadied in [
        (BILLING.format("834", "65abc"), BILLING.format("0", "0")),
        (BILLING.format("834", "65abc") + "You are", BILLING.format("0", "0") + "You are"),
        ("x-a: id=0123456789abcdef; kind=cafe; v=2.1.177;", "x-a: id=0; kind=cafe; v=2.1.177;"),
        ("Remember x-a: id=0123456789abcdef;", None),
        ("x-a: id=0123456789abcdef", None),
        ("The build is abcdef; say so.", None),
    ]:
        rest = Message.user("x-a: id=0123456789abcdef;")
        assert normalise([Message.system(text), rest]) == (Message.system(steadied or text), rest)
        assert normalise([rest]) == (rest,)
        assert normalise([]) == ()
