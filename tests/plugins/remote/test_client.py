"""A server as the engine: bodies, events, and everything that a server may do wrong."""

import asyncio
import json
from collections.abc import Callable
from contextlib import closing, suppress
from email.utils import formatdate
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest

from localspec.calls import Tool
from localspec.calls.policy import CallPolicy
from localspec.chat.events import (
    CallBegun,
    CallDelta,
    CallDone,
    Event,
    Finished,
    Prefilling,
    Reply,
    Started,
    Text,
)
from localspec.chat.request import Request
from localspec.decoding.round import StopReason
from localspec.engine.protocol import Count, Loading, Measuring, Ready
from localspec.errors import (
    Busy,
    ContextOverflow,
    EngineGone,
    LocalspecError,
    ModelUnavailable,
    UsageError,
)
from localspec.messages import (
    DocumentPart,
    MediaPart,
    Message,
    TextPart,
    ToolCall,
    ToolResult,
    from_json,
)
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.plugins.remote import client as remote
from localspec.plugins.remote.client import KEY, Client, base_of
from localspec.plugins.remote.reply import Chunk, RemoteReply
from tests.plugins.remote.double import (
    DONE,
    MODELS,
    STOP,
    USAGE,
    Asked,
    Double,
    Handler,
    Script,
    delta,
    double,
    event,
    hang,
    in_turn,
    said,
    streamed,
    words,
)
from tests.test_media import png
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

NOW_S = 1_795_000_000
SECRET = "sk-" + "5ecret" * 5
HELLO = (Message.user("Hello"),)
TOOL = Tool("add", {"type": "object", "properties": {"a": {"type": "integer"}}})
FINE = streamed(words("Hi", " you"), STOP)


def talk(
    server: Double,
    *requests: Request | Count,
    given: tuple[str, ...] = (),
    first_s: float = 20.0,
    between_s: float = 20.0,
    tell: Callable[[Loading | Measuring], None] = lambda _loading: None,
    **options: Any,
) -> tuple[Ready, list[Any]]:
    """Open a server and send requests, one after the other; return what was ready, and the events or the count of each."""

    async def work() -> tuple[Ready, list[Any]]:
        wanted = LaunchOptions(server=server.url, **options)
        client = Client(wanted, given, first_s=first_s, between_s=between_s)
        try:
            ready, answers = await client.open(tell), list[Any]()
            for each in requests:
                if isinstance(each, Count):
                    answers.append(await client.count(each))
                    continue
                answers.append([])
                await client.answer(each, answers[-1].extend)
            return ready, answers
        finally:
            await client.close()

    return asyncio.run(work())


def ask(server: Double, request: Request | None = None, **how: Any) -> list[Event]:
    (events,) = talk(server, request or Request(1, HELLO), **how)[1]
    assert isinstance(events, list)
    return events


def finished(events: list[Event]) -> Finished:
    last = events[-1]
    assert isinstance(last, Finished)
    assert not any(isinstance(each, Finished) for each in events[:-1])
    return last


def test_texts_come_as_events_with_the_server_s_figures() -> None:
    progress = {"choices": [], "prompt_progress": {"total": 9, "cache": 2, "processed": 6}}
    timed = {**delta("stop"), "timings": {"draft_n": 8, "draft_n_accepted": 5}}
    usage: dict[str, Any] = {"prompt_tokens": 9, "completion_tokens": 4}
    usage |= {"prompt_tokens_details": {"cached_tokens": 2}}
    pieces = (event(progress), words("Hi", "\u2028you"), b": alive\n\n", event(timed))
    with double(streamed(*pieces, event({"choices": [], "usage": usage}), DONE)) as server:
        first, *events, last = ask(server)
    assert isinstance(first, Started)
    assert isinstance(last, Finished)
    assert events == [Prefilling(4, 7), Text("Hi"), Text("\u2028you")]
    reply = last.reply
    assert (reply.text, reply.stop_reason) == ("Hi\u2028you", StopReason.EOG)
    assert (reply.prompt_tokens, reply.cached_tokens, reply.completion_tokens) == (9, 2, 4)
    assert (reply.acceptance.drafted, reply.acceptance.accepted, reply.drafter) == (8, 5, "server")
    assert last.message == Message.assistant("Hi\u2028you")
    (body,) = server.chats()
    assert body["seed"] == reply.seed
    assert body["messages"] == [{"role": "user", "content": "Hello"}]
    assert {"temperature", "top_k", "min_p"} & body.keys() == set(), "the server's own hold"
    assert body["return_progress"] is True


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("no drafting: it is switched off", "no drafting: it is switched off"),
        (None, "drafting is the server's"),
        (["off"], "drafting is the server's"),
        ("two\nlines \x1b[2J" + "x" * 99, "two lines ?[2J" + "x" * 66),
    ],
)
def test_why_nothing_was_drafted_is_what_the_server_says(line: object, expected: str) -> None:
    own = {**delta("stop"), "speculation": {"drafted": 0, "reason": "off: why", "line": line}}
    with double(streamed(words("Hi"), event(own), DONE)) as server:
        done = finished(ask(server))
    assert (done.no_drafting, done.reason) == (expected, "off: why")


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("5", 5.0),
        ("0.5", 0.5),
        (formatdate(NOW_S + 60, usegmt=True), 60.0),
        (formatdate(NOW_S - 90, usegmt=True), 0.0),
        *((each, 0.0) for each in ("", "soon", "-5", "Fri, 99 Nov 2026 99:99:99 GMT", "1" * 99)),
    ],
)
def test_a_server_says_when_to_ask_again_in_seconds_or_by_a_date(
    monkeypatch: pytest.MonkeyPatch, given: str, seconds: float
) -> None:
    monkeypatch.setattr("time.time", lambda: float(NOW_S))
    busy = said({"error": "many"}, 429, **{"retry-after": given})
    with double([busy]) as server, pytest.raises(Busy) as caught:
        ask(server)
    assert caught.value.again_s == seconds


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_stream_may_be_cut_anywhere(size: int) -> None:
    raw = words("Grüße", " an\r\n", "alle 🦀") + STOP
    with double(streamed(*(raw[at : at + size] for at in range(0, len(raw), size)))) as server:
        assert finished(ask(server)).reply.text == "Grüße an\r\nalle 🦀"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thoughts_come_in_a_field_or_between_tags(name: str) -> None:
    fields = event(delta(**{name: "hm"})) + words("yes") + STOP
    tags = words("<th", "ink>\nhm", "</think>\n\nyes") + STOP
    with double([streamed(fields), streamed(tags)]) as server:
        for events in talk(server, Request(1, HELLO), Request(2, HELLO))[1]:
            reply = finished(events).reply
            assert (reply.thinking, reply.text) == ("hm", "yes")
            assert Text("hm", thinking=True) in events


@pytest.mark.parametrize("given", ["", "null", '{"a": 1', "[]"])
def test_a_server_gets_results_in_order_whole_arguments_and_thoughts_by_both_names(
    given: str,
) -> None:
    parts = (TextPart("Wait."), ToolCall("c1", "add", given), ToolCall("c2", "add", "{}"))
    results = [Message("tool", (ToolResult(each, each),)) for each in ("c2", "c1")]
    said = (*HELLO, Message("assistant", parts, "hm"), *results)
    with double(streamed(words("yes"), STOP)) as server:
        ask(server, Request(1, said, tools=(TOOL,)))
    _, turn, *sent = server.chats()[0]["messages"]
    assert (turn["reasoning_content"], turn["reasoning"]) == ("hm", "hm")
    arguments = json.loads(turn["tool_calls"][0]["function"]["arguments"])
    assert arguments == ({} if given in {"", "null"} else {"unreadable": given})
    assert [each["tool_call_id"] for each in sent] == ["c1", "c2"]


def test_calls_come_in_parts_and_only_those_that_are_allowed() -> None:
    def part(at: int, arguments: str = "", name: str = "", **more: Any) -> bytes:
        function = {"arguments": arguments, **({"name": name} if name else {})}
        return event(delta(tool_calls=[{"index": at, "function": function, **more}]))

    parts = (
        part(0, name="add", id="c1"),
        part(0, '{"a"'),
        part(0, ": 1}", "add", id="c1"),
        part(1, "{}", "add", id="c1"),
        part(2, "{}", "rm", id="c3"),
    )
    request = Request(1, HELLO, tools=(TOOL,), call_policy=CallPolicy(choice="required"))
    end = event(delta("tool_calls"))
    with double(streamed(words("Wait. "), *parts, end, DONE)) as server:
        events = ask(server, request)
    reply = finished(events).reply
    first, second = reply.calls
    assert (first, second.name) == (ToolCall("c1", "add", '{"a": 1}'), "add")
    assert second.id not in {"", "c1"}
    assert "rm" in reply.note
    assert reply.stop_reason is StopReason.TOOL_CALL
    assert events[2:5] == [CallBegun("c1", "add"), CallDelta("c1", '{"a"'), CallDelta("c1", ": 1}")]
    assert [each.call for each in events if isinstance(each, CallDone)] == [first, second]
    (body,) = server.chats()
    assert body["tool_choice"] == "required"
    assert [each["function"]["name"] for each in body["tools"]] == ["add"]


def test_results_of_calls_go_back_and_one_that_was_lost_says_so() -> None:
    turn = Message("assistant", (ToolCall("c1", "add", "{}"), ToolCall("c2", "add", "{}")))
    messages = (*HELLO, turn, Message("tool", (ToolResult("c1", "5", is_error=True),)))
    with double(FINE) as server:
        ask(server, Request(1, messages, tools=(TOOL,)))
    sent = server.chats()[0]["messages"]
    assert sent[1]["tool_calls"][0]["function"] == {"name": "add", "arguments": "{}"}
    assert sent[2] == {"role": "tool", "tool_call_id": "c1", "content": "5"}
    assert sent[3]["tool_call_id"] == "c2"


def test_a_call_in_words_is_one_where_a_person_approves_calls() -> None:
    text = '```json\n{"name": "add", "arguments": {"a": 1}}\n```'
    request = Request(1, HELLO, tools=(TOOL,), call_policy=CallPolicy(lenient=True))
    with double(streamed(words(text), STOP)) as server:
        assert finished(ask(server, request)).reply.calls[0].arguments == '{"a": 1}'


def of(owner: str) -> Script:
    return said({"data": [{"id": "m", "owned_by": owner, "max_model_len": 99}]})


SCHEMA = '{"type": "object"}'
WRAPPED = {"name": "answer", "strict": True, "schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("owner", "options", "given", "fields"),
    [
        ("x", ReplyOptions(), (), {}),
        ("x", ReplyOptions(), ("temperature",), {"temperature": 0.8}),
        ("vllm", ReplyOptions(), ("temperature", "penalty_last_n"), {"temperature": 0.8}),
        ("x", ReplyOptions(SamplingParams(0.0, top_k=3)), (), {"temperature": 0.0, "top_k": 3}),
        ("x", ReplyOptions(SamplingParams(repeat_penalty=1.5)), (), {"repeat_penalty": 1.5}),
        ("vllm", ReplyOptions(SamplingParams(repeat_penalty=1.5)), (), {"repetition_penalty": 1.5}),
        ("x", ReplyOptions(max_tokens=5, stop=("a",)), (), {"max_tokens": 5, "stop": ["a"]}),
        ("x", ReplyOptions(SamplingParams(logit_bias=((3, -10000.0),))), (), {"logit_bias": {"3": -100}}),
        ("x", ReplyOptions(json_schema=SCHEMA), (), {"response_format": {"type": "json_schema", "json_schema": WRAPPED}}),
        ("vllm", ReplyOptions(regex="a+"), (), {"structured_outputs": {"regex": "a+"}}),
        ("sglang", ReplyOptions(regex="a+"), (), {"regex": "a+"}),
        ("sglang", ReplyOptions(grammar='root ::= "a"'), (), {"ebnf": 'root ::= "a"'}),
        ("llamacpp", ReplyOptions(grammar='root ::= "a"'), (), {"grammar": 'root ::= "a"'}),
        ("x", ReplyOptions(think="off"), (), {"chat_template_kwargs": {"enable_thinking": False}}),
        ("x", ReplyOptions(template_kwargs='{"clear_thinking": false}'), (), {"chat_template_kwargs": {"clear_thinking": False}}),
        ("x", ReplyOptions(think="on", template_kwargs='{"a": 1}'), (), {"chat_template_kwargs": {"enable_thinking": True, "a": 1}}),
        ("x", ReplyOptions(think="low"), (), {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": "low"}),
        ("localspec", ReplyOptions(think="64"), (), {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_budget_tokens": 64}),
        ("vllm", ReplyOptions(think="64"), (), {"chat_template_kwargs": {"enable_thinking": True}, "thinking_token_budget": 64}),
    ],
)  # fmt: skip
def test_options_become_the_fields_of_the_server_that_it_is(
    owner: str, options: ReplyOptions, given: tuple[str, ...], fields: dict[str, Any]
) -> None:
    with double(FINE, v1_models=of(owner)) as server:
        ask(server, Request(1, HELLO, options), given=given)
        talk(server, Request(1, HELLO, options, given=given), Request(2, HELLO))
    *bodies, other = server.chats()
    usual = {"model", "stream", "stream_options", "seed", "messages", "return_progress"}
    for body in bodies:
        assert {name: each for name, each in body.items() if name not in usual} == fields
    assert other.keys() <= usual, "of one request alone"


@pytest.mark.parametrize(
    ("owner", "draft", "field"),
    [("localspec", "off", {"draft": "off"}), ("localspec", "auto", None), ("vllm", "off", None)],
)
def test_off_turns_the_drafts_of_a_localspec_off_there_too(
    owner: str, draft: str, field: dict[str, str] | None
) -> None:
    with double(FINE, v1_models=of(owner)) as server:
        ask(server, draft=draft)
    assert server.chats()[0].get("localspec") == field


@pytest.mark.parametrize(
    ("request_", "word"),
    [
        (Request(1, HELLO, ReplyOptions(regex="a")), "regex"),
        (Request(1, HELLO, ReplyOptions(lark="a")), "lark"),
        (Request(1, HELLO, ReplyOptions(think="9")), "think 9"),
        (Request(1, HELLO, ReplyOptions(stop_loops=True)), "stop_loops"),
        (Request(1, HELLO, draft="off"), "draft"),
        (Request(1, HELLO, logprobs=1), "logprobs"),
        (Request(1, raw=(1, 2)), "token ids"),
        (Request(1, HELLO, ReplyOptions(ignore_eos=True)), "ignore_eos"),
        (Request(1, HELLO, ReplyOptions(min_tokens=1)), "min_tokens"),
        (Request(1, HELLO, ReplyOptions(SamplingParams(penalty_last_n=9))), "penalty_last_n"),
    ],
)
def test_what_a_server_cannot_do_is_refused_by_name(request_: Request, word: str) -> None:
    with double(FINE, v1_models=of("other")) as server:
        with pytest.raises(UsageError, match=word):
            ask(server, request_)
        assert server.chats() == []


def test_a_text_as_it_is_goes_as_a_completion_and_an_answer_goes_on() -> None:
    text = event({"choices": [{"text": " time", "finish_reason": "length"}]}) + USAGE + DONE
    begun = (*HELLO, Message.assistant("Once"))
    routes = {"v1_completions": streamed(text), "v1_models": of("vllm")}
    with double(streamed(words(" more"), STOP), **routes) as server:
        raw, more = talk(server, Request(1, raw="Once upon a"), Request(2, begun))[1]
    assert finished(raw).reply.text == " time"
    assert finished(raw).reply.stop_reason is StopReason.LENGTH
    assert server.asked[2].body["prompt"] == "Once upon a"
    assert finished(more).message == Message.assistant("Once more")
    assert server.chats()[0]["continue_final_message"] is True


@pytest.mark.parametrize(
    ("owner", "limit", "options", "sent"),
    [
        ("vllm", 99, ReplyOptions(), 99 - 11 // 3 - 4),
        ("vllm", 5, ReplyOptions(), 1),
        ("vllm", 99, ReplyOptions(max_tokens=7), 7),
        ("openai", None, ReplyOptions(), 2048),
        ("llamacpp", 99, ReplyOptions(), -1),
        ("localspec", 99, ReplyOptions(), -1),
    ],
)
def test_a_text_as_it_is_goes_on_beyond_a_server_s_usual_16_tokens(
    owner: str, limit: int | None, options: ReplyOptions, sent: int
) -> None:
    models = said({"data": [{"id": "m", "owned_by": owner, "max_model_len": limit}]})
    text = event({"choices": [{"text": " time", "finish_reason": "stop"}]}) + USAGE + DONE
    with double(FINE, v1_completions=streamed(text), v1_models=models) as server:
        ask(server, Request(1, raw="Once upon a", options=options))
    assert server.asked[-1].body["max_tokens"] == sent


@pytest.mark.parametrize(("counts", "full"), [((7, 3), False), ((90, 9), True), ((90, 8), True), (None, False)])  # fmt: skip
def test_a_context_is_full_where_the_server_s_figures_say_so(
    counts: tuple[int, int] | None, full: bool
) -> None:
    figures = counts and {"prompt_tokens": counts[0], "completion_tokens": counts[1]}
    usage = event({"choices": [], "usage": figures}) if figures else b""
    pieces = (words("So"), event(delta("length")), usage, DONE)
    with double(streamed(*pieces), v1_models=of("x")) as server:
        reason = finished(ask(server)).reply.stop_reason
    assert reason is (StopReason.CONTEXT_FULL if full else StopReason.LENGTH)


def test_the_gate_of_a_request_masks_what_the_server_says() -> None:
    mail = streamed(words("Write to joe@exam", "ple.com", " now."), STOP)
    with double(mail) as server:
        events = ask(server, Request(1, HELLO, gate="usual"))
    assert "example.com" not in repr([each for each in events if isinstance(each, Text | Finished)])
    assert (finished(events).masked, finished(events).id) == (True, 1)


def nonsense(raw: bytes) -> Script:
    return streamed(words("So"), raw)


DEEP = b"data: " + b"[" * 100_000 + b"\n\n"


@pytest.mark.parametrize(
    ("script", "error", "word"),
    [
        (said(b"<html>hi", 200, "text/html"), UsageError, "text/html"),
        (said({"choices": []}), UsageError, "no stream"),
        (nonsense(b"data: {oops\n\n"), LocalspecError, "no part of an answer"),
        (nonsense(b"data: \xff\xfe\n\n"), LocalspecError, "no part of an answer"),
        (nonsense(DEEP), LocalspecError, "no part of an answer"),
        (nonsense(event([1, 2])), LocalspecError, "no part of an answer"),
        (nonsense(event({"choices": {"a": 1}})), LocalspecError, "no part of an answer"),
        (nonsense(event(delta(content=7))), LocalspecError, "no part of an answer"),
        (nonsense(event({"usage": {"prompt_tokens": -1}})), LocalspecError, "no part of an answer"),
        (nonsense(event({"error": {"message": "out of \x1b[31mmemory"}})), LocalspecError, "memory"),
        (nonsense(event({"object": "error", "message": "out of memory", "code": 500})), LocalspecError, "broke off: out of memory"),
        (nonsense(b"data: " + b"x" * 300_000), LocalspecError, "MB in a line"),
        (streamed(*[words("x" * 1000)] * 200, STOP), LocalspecError, "MB in all"),
        (nonsense(b"garbage without a colon\n\n"), EngineGone, "middle of the answer"),
        (nonsense(DONE), EngineGone, "middle of the answer"),
        (streamed(words("So"), then=lambda handler: handler.cut()), EngineGone, "broke off"),
        (lambda handler: handler.cut(), EngineGone, "broke off"),
        (said({"error": {"message": "no"}}, 400), UsageError, r"\(400\): no"),
        (said({"message": "no", "object": "error"}, 400), UsageError, r"\(400\): no"),
        (said({"detail": [{"msg": "no"}]}, 422), UsageError, r"\(422\).*no"),
        (said({"error": {"type": "exceed_context_size_error", "message": "too long"}}, 400), ContextOverflow, "too long"),
        (said({"message": "This model's maximum context length is 9"}, 400), ContextOverflow, "length is 9"),
        (said({"error": "many"}, 429), Busy, "many"),
        (said(b"<h1>Bad gateway", 502, "text/html"), EngineGone, "502"),
        (said({}, 500), LocalspecError, "without a reason|500"),
        (said(b"", 404), ModelUnavailable, "404"),
    ],
)  # fmt: skip
def test_whatever_a_server_does_becomes_one_line(
    script: Script, error: type[LocalspecError], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "MOST_LINE_BYTES", 100_000)
    monkeypatch.setattr(remote, "MOST_REPLY_BYTES", 150_000)
    with double(script) as server, pytest.raises(error, match=word) as caught:
        ask(server)
    assert type(caught.value) is error
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


class KeptAlive(Handler):
    """Lets connections go on, and ends each that a test names just when its request of that number comes."""

    protocol_version = "HTTP/1.1"
    ends: ClassVar[dict[int, int]]
    connections: ClassVar[int]

    def setup(self) -> None:
        super().setup()
        self.number, self.count = type(self).connections, 0
        type(self).connections += 1

    def answer(self, body: Any) -> None:
        if self.ends.get(self.number) == self.count:
            self.close_connection = True
            return
        self.count += 1
        self.double.asked.append(Asked(self.path, {}, body))
        streams = self.path.endswith("/completions")
        raw = words("Hi", " you") + STOP if streams else json.dumps(MODELS).encode()
        kind = "text/event-stream" if streams else "application/json"
        more = {"connection": "keep-alive", "content-length": str(len(raw))}
        self.head(200, kind, **more)
        self.write(raw)


def kept_alive(ends: dict[int, int]) -> tuple[list[str], list[Any]]:
    """Ask twice of a server that ends connections, by their numbers, at requests of theirs; return what it answered, and the answers."""
    kind = type("Ending", (KeptAlive,), {"ends": ends, "connections": 0})
    with double(FINE, kind) as server:
        answers = talk(server, Request(1, HELLO), Request(2, HELLO))[1]
        return [each.path for each in server.asked], answers


def test_a_request_of_which_nothing_came_back_is_sent_once_more_on_a_new_connection() -> None:
    whole, answers = kept_alive({})
    assert [finished(each).reply.text for each in answers] == ["Hi you"] * 2
    for at in range(1, len(whole)):
        paths, answers = kept_alive({0: at})
        assert paths == whole
        assert [finished(each).reply.text for each in answers] == ["Hi you"] * 2
    with pytest.raises(EngineGone, match="without sending"):
        kept_alive({0: 0})  # the connection was new
    with pytest.raises(EngineGone, match="without sending"):
        kept_alive({0: 2, 1: 0})


@pytest.mark.parametrize(
    ("script", "word"), [(hang, "1 s"), (streamed(then=hang), "1 s"), (streamed(words("a"), then=hang), "0 s")]
)  # fmt: skip
def test_a_server_that_says_nothing_more_is_left(script: Script, word: str) -> None:
    with double(script) as server:
        with pytest.raises(EngineGone, match=word):
            ask(server, first_s=0.2, between_s=0.2)
        assert server.vanished.wait(PATIENCE_S)


def test_a_long_prompt_may_take_longer_until_the_first_byte() -> None:
    def late(handler: Any) -> None:
        if not handler.double.vanished.wait(0.6):
            FINE(handler)

    long = Request(1, (Message.user("word " * 1000),))
    with double(late) as server:
        assert finished(ask(server, long, first_s=0.2)).reply.text == "Hi you"


def test_an_answer_that_is_cancelled_keeps_what_there_is_and_the_server_ends_its_work() -> None:
    def endless(handler: Any) -> None:
        handler.head()
        while True:
            handler.write(words("a "))

    async def work(url: str) -> list[Event]:
        client, events = Client(LaunchOptions(server=url)), list[Event]()
        await client.open()
        task = asyncio.create_task(client.answer(Request(1, HELLO), events.extend))
        while not any(isinstance(each, Text) for each in events):
            await asyncio.sleep(0.01)
        task.cancel()
        await task
        await client.close()
        return events

    with double(endless) as server:
        done = finished(asyncio.run(work(server.url)))
        assert done.reply.stop_reason is StopReason.CANCELLED
        assert done.reply.text.startswith("a ")
        assert server.vanished.wait(PATIENCE_S)


def test_an_answer_that_a_server_does_not_count_has_what_came_and_takes_until_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(perf_counter=count(1).__next__)
    monkeypatch.setattr("localspec.plugins.remote.reply.time", clock)

    def made(*pieces: str) -> Reply:
        reply = RemoteReply(Request(1, HELLO), CallPolicy().offer((), ()), 5)
        for each in pieces:
            list(reply.take(msgspec.convert({"choices": [{"delta": {"content": each}}]}, Chunk)))
        return finished(list(reply.finish(StopReason.CANCELLED))).reply

    stopped = made()
    assert (stopped.completion_tokens, stopped.first_token_s, stopped.decode_s) == (0, None, 0.0)
    begun = made("One", " two", "<")
    assert (begun.text, begun.completion_tokens, begun.decode_s) == ("One two<", 3, 2)


def test_the_key_goes_to_the_server_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    with double(FINE) as elsewhere:
        moved = said(b"", 307, location=f"{elsewhere.url}/v1/chat/completions?{SECRET}")
        with double([FINE, moved]) as server:
            talk(server, Request(1, HELLO), server_key_file=str(file))
            keys = {each.headers.get("authorization") for each in server.asked}
            assert keys == {f"Bearer {SECRET}"}
            monkeypatch.setenv(KEY, SECRET)
            with pytest.raises(UsageError, match="redirects to") as caught:
                ask(server)
        assert SECRET not in str(caught.value)
        assert elsewhere.asked == []
    monkeypatch.delenv(KEY)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # which is not for this machine
    with double(FINE) as server:
        ask(server)
        assert not any("authorization" in each.headers for each in server.asked)


@pytest.mark.parametrize("status", [401, 403, 500])
def test_what_a_server_says_of_a_key_is_told_without_it(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = said({"error": f"the key {SECRET} is wrong"}, status)
    with double(refused, v1_models=said(MODELS) if status == 500 else refused) as server:
        if status != 500:
            with pytest.raises(UsageError, match=r"wants a key.*--server-key-file"):
                talk(server)
        monkeypatch.setenv(KEY, SECRET)
        word = r"key \*\*\*" if status == 500 else "refuses the key"
        with pytest.raises(LocalspecError, match=word) as caught:
            ask(server)
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize("text", ["", "two words", "a\nb", "ümlaut", "x" * 5000])
def test_a_file_without_a_key_is_refused_without_its_text(tmp_path: Path, text: str) -> None:
    file = tmp_path / "key"
    file.write_text(text)
    with double(FINE) as server:
        with pytest.raises(UsageError, match="--server-key-file") as caught:
            talk(server, server_key_file=str(file))
        assert not text or text not in str(caught.value)
        with pytest.raises(UsageError, match="cannot be read"):
            talk(server, server_key_file=str(tmp_path / "none"))
        file.write_text(SECRET)
        file.chmod(0o644)
        ready, _ = talk(server, server_key_file=str(file))
        assert any("chmod 600" in each for each in ready.notes)


def test_addresses_of_servers() -> None:
    for url, base in [
        ("http://h:1", "http://h:1/v1"),
        ("http://h:1/", "http://h:1/v1"),
        ("https://h/api/v1/", "https://h/api/v1"),
        ("http://[::1]:8080/v1/chat/completions", "http://[::1]:8080/v1"),
    ]:
        assert base_of(url) == base
    hostile = ("http://u:secret@h", "http://h/v1?key=secret", "http://[::1")
    for url in ("h:8080", "http://", "ftp://h", "http://h:99999", *hostile):
        with pytest.raises(UsageError, match="--server") as caught:
            base_of(url)
        assert "u:secret" not in str(caught.value)


def test_what_cannot_be_reached_or_may_not_be() -> None:
    with pytest.raises(EngineGone, match="cannot be reached"):
        talk(Double({}, url="http://127.0.0.1:9"))
    with pytest.raises(UsageError, match="--offline"):
        Client(LaunchOptions(server="http://192.0.2.1", offline=True))
    Client(LaunchOptions(server="http://localhost:1", offline=True))


LISTED = {"data": [{"id": "a"}, {"id": "/models/b.gguf"}]}
OWN = {"data": [{"id": each, "owned_by": "localspec"} for each in "ab"]}


@pytest.mark.parametrize(
    ("models", "model", "chosen"),
    [
        (said(MODELS), None, "m"),
        (said(MODELS), "m", "m"),
        (said(LISTED), "b.gguf", "/models/b.gguf"),
        (said(OWN), None, "a"),
        (said(b"", 404), "x", "x"),
        (said(LISTED), None, (ModelUnavailable, "name one with -m, a, b.gguf")),
        (said(LISTED), "c", (ModelUnavailable, "has no c: it has a, b.gguf")),
        (said({"data": []}), None, (ModelUnavailable, "has no model")),
        (said(b"<html>", 200, "text/html"), None, (LocalspecError, "no list of models")),
        (said({"data": [{"id": 7}]}), None, (LocalspecError, "no list of models")),
        (said(b"", 404), None, (ModelUnavailable, "404")),
        (said(b"", 301, location="https://example.com/"), None, (UsageError, "redirects to")),
    ],
)
def test_the_model_is_the_one_that_is_named_or_the_only_one(
    models: Script, model: str | None, chosen: str | tuple[type[LocalspecError], str]
) -> None:
    with double(FINE, v1_models=models) as server:
        if isinstance(chosen, str):
            ask(server, target=model)
            assert server.chats()[0]["model"] == chosen
        else:
            with pytest.raises(chosen[0], match=chosen[1]):
                talk(server, target=model)


def test_a_localspec_says_of_each_model_which_vocabulary_it_has() -> None:
    """Its list says it of what is loaded there."""
    of_b = said({"id": "b", "meta": {"vocabulary": "0123-300"}})
    with double(FINE, v1_models=said(OWN), v1_models_b=of_b) as server:
        talk(server, target="b", draft="lookup")
        with pytest.raises(UsageError, match="takes no drafts of this machine"):
            talk(server, target="a", draft="lookup")


def test_a_server_that_loads_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_AGAIN_S", 0.01)
    loads, seen = said({"error": {"message": "Loading model"}}, 503), list[Loading | Measuring]()
    with double(FINE, v1_models=in_turn(loads, loads, loads, said(MODELS))) as server:
        ready, _ = talk(server, tell=seen.append)
    assert (ready.target, len(seen)) == ("m", 3)


@pytest.mark.parametrize(
    ("script", "tokens", "estimates"),
    [
        (said({"tokens": [1, 2, 3]}), 7, False),
        (said({"count": 3, "tokens": [1, 2, 3]}), 7, False),
        (said({"error": "no"}, 404), 7, True),
        (said(b"nonsense"), 7, True),
    ],
)
def test_tokens_are_counted_where_the_server_does_and_else_estimated(
    script: Script, tokens: int, estimates: bool
) -> None:
    with double(FINE, tokenize=script) as server:
        ready, (counted,) = talk(server, Count(1, (Message.user("ten letter"),)))
    assert (counted.tokens, counted.n_ctx) == (tokens, 512)
    assert any("estimates" in each for each in ready.notes) is estimates


def test_the_oldest_turns_are_left_out_where_that_is_wanted() -> None:
    long = "word " * 120
    turns = [Message.user(long), Message.assistant(long)] * 4
    messages = (Message.system("Be brief."), *turns, Message.user("And now?"))
    request = Request(1, messages, drop_oldest=True)
    with double(FINE) as server:
        done = finished(ask(server, request))
        sent = server.chats()[0]["messages"]
        assert [each["role"] for each in sent[:2]] == ["system", "user"]
        assert sent[-1]["content"] == "And now?"
        assert done.dropped_turns == len(messages) - len(sent) > 0
        ask(server, request, load=LoadOptions(n_ctx=100_000))
        assert len(server.chats()[1]["messages"]) == len(messages)


def test_half_of_a_character_is_nonsense_from_a_server_and_replaced_in_a_question() -> None:
    half = f"data: {json.dumps(delta(content=chr(0xD83E)))}\n\n".encode()
    with double([streamed(half, STOP), FINE]) as server:
        with pytest.raises(LocalspecError, match="no part of an answer"):
            ask(server)
        ask(server, Request(1, (Message.user("a" + chr(0xD83E)),)))
    assert server.chats()[1]["messages"][0]["content"] == "a\ufffd"


SOUNDS = (MediaPart.of(b"RIFF\x24\0\0\0WAVEfmt ", "a.wav"), MediaPart.of(b"ID3\x04", "a.mp3"))
SEEN = (TextPart("What is "), MediaPart.of(png(), "photo.png"), TextPart("?"))
MIXED = Message("user", (*SEEN, DocumentPart("a.txt", "pears"), *SOUNDS))


def test_pictures_and_sounds_are_sent_in_their_places() -> None:
    tokenize = said({"tokens": [1, 2, 3]})
    with double(FINE, tokenize=tokenize) as server:
        ask(server, Request(1, (Message.system("Be brief."), MIXED), drop_oldest=True))
    (body,) = server.chats()
    parts = body["messages"][1]["content"]
    assert parts[:3] == [
        {"type": "text", "text": "What is "},
        {"type": "image_url", "image_url": {"url": MIXED.media[0].data_url}},
        {"type": "text", "text": '?\n\n<file name="a.txt">\npears\n</file>'},
    ]
    assert [each["input_audio"]["format"] for each in parts[3:]] == ["wav", "mp3"]
    again = [from_json(each) for each in body["messages"]]
    assert again[1].text == MIXED.text
    assert [each.data for each in again[1].media] == [each.data for each in MIXED.media]
    assert body["messages"][0]["content"] == "Be brief.", "words alone are a text"


def test_media_are_no_words_where_tokens_are_counted() -> None:
    for script in (said({"tokens": [1, 2, 3]}), said({"error": "no"}, 404)):
        with double(FINE, tokenize=script) as server:
            _, (counted,) = talk(server, Count(1, (MIXED,)))
        assert counted.tokens > 3 * 100
        texts = [each.body["content"] for each in server.asked if each.path == "/tokenize"]
        assert texts[1:] in ([MIXED.text], [])


def test_what_a_model_takes_is_known_where_the_server_lists_it() -> None:
    for architecture, senses in [
        (None, (True, True)),
        ("llama", (True, True)),
        ({"input_modalities": ["text"]}, (False, False)),
        ({"input_modalities": ["text", "image"]}, (True, False)),
        ({"input_modalities": "text"}, (True, True)),
    ]:
        models = {"data": [{"id": "m", "architecture": architecture}]}
        with double(FINE, v1_models=said(models)) as server:
            ready, _ = talk(server)
        assert (ready.sees, ready.hears) == senses


@pytest.mark.parametrize("ends", [True, False], ids=["that ends", "that stays open"])
def test_one_connection_serves_many_requests(monkeypatch: pytest.MonkeyPatch, ends: bool) -> None:
    """What follows the end of a stream is read: only then is its connection good for the next request. Nothing waits for more."""
    monkeypatch.setattr(remote, "_END_S", PATIENCE_S if ends else 0.01)
    connections, body = 0, words("Hi") + STOP
    chunked = b"%x\r\n%s\r\n" % (len(body), body) + b"0\r\n\r\n" * ends
    models = json.dumps(MODELS).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with closing(writer), suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := (await reader.readuntil(b"\r\n\r\n")).lower():
                if head.startswith(b"get"):
                    length = f"content-type: application/json\r\ncontent-length: {len(models)}"
                    writer.write(b"HTTP/1.1 200 OK\r\n%s\r\n\r\n%s" % (length.encode(), models))
                    continue
                await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
                if b"/chat/completions" not in head:
                    writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                    continue
                kind = b"content-type: text/event-stream\r\ntransfer-encoding: chunked"
                writer.write(b"HTTP/1.1 200 OK\r\n%s\r\n\r\n%s" % (kind, chunked))

    async def work() -> list[str]:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            client = Client(LaunchOptions(server=f"http://127.0.0.1:{port}"), ())
            await client.open(lambda _: None)
            texts, opened = list[str](), connections
            for number in range(20):
                events = list[Event]()
                await client.answer(Request(number, HELLO), events.extend)
                texts.append(finished(events).message.text)
            assert (connections - opened <= 1) == ends
            await client.close()
            return texts

    assert asyncio.run(work()) == ["Hi"] * 20
