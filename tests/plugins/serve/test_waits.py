"""Who waits and for how long: one client does not starve another, a stream is not silent, and what is told of it."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers

from localspec.chat.events import (
    CallBegun,
    Finished,
    Prefilling,
    Reply,
    RoundDone,
    Started,
    StreamEvent,
    Text,
)
from localspec.chat.request import Request
from localspec.decoding.round import Draft, Round, Spent, StopReason, Verdict
from localspec.decoding.stats import AcceptanceStats
from localspec.engine.protocol import Embed, EngineDied, Failed, ReplyEvents
from localspec.errors import EngineGone
from localspec.messages import Infill, Message
from localspec.plugins.serve import answering
from localspec.plugins.serve import anthropic as messages
from localspec.plugins.serve.http import Guard
from localspec.plugins.serve.metrics import Metrics
from tests.plugins.serve.clients import anthropic, openai
from tests.plugins.serve.serving import (
    CHAT,
    FIM,
    INFILL,
    MESSAGES,
    OLLAMA,
    TALK,
    Served,
    bodies,
    served,
    user,
)
from tests.toy import Stopwatch
from tests.waiting import until

pytestmark = pytest.mark.slow


def stories(begin: Path, pass_s: float) -> dict[str, Any]:
    """Return a script of stories that do not begin before a file is there."""
    told = {"answers": {"story": "x" * 40}, "otherwise": ["Hello there."], "pass_s": pass_s}
    return {**told, "rests": {"at": 0, "until": str(begin)}}


@pytest.mark.first(1)
@pytest.mark.parametrize("guard", [None, Guard(keys=("one", "two"))], ids=["named", "keys"])
def test_who_asks_for_little_does_not_wait_for_who_asks_for_much(
    guard: Guard | None, tmp_path: Path
) -> None:
    begin = tmp_path / "begin"
    with served(stories(begin, 0.01), most=20, guard=guard) as server:
        server.client.headers["x-api-key"] = "one"
        with server.asking(*[{"text": "a story"}] * 6) as answers:
            server.client.headers["x-api-key"] = "two"
            begin.touch()
            assert server.chat("hello").status_code == 200
            assert server.under_way() >= 3, "most of the other's are still to come"
            server.client.headers["x-api-key"] = "one"
            assert server.chat("hello").status_code == 200
            assert server.under_way() == 0, "who came later, and asks for much, comes last"
        assert [each.result().status_code for each in answers] == [200] * 6


def test_clients_are_told_apart_and_cannot_be_read() -> None:
    let_in, keyed = Guard(), Guard(keys=("one", "two"))

    def name(guard: Guard, key: str, agent: str = "a", peer: str = "127.0.0.1") -> str:
        return guard.client(Headers({"authorization": f"Bearer {key}", "user-agent": agent}), peer)

    names = {name(let_in, "one"), name(let_in, "two"), name(let_in, "one", "b")}
    names.add(name(let_in, "one", peer="10.0.0.1"))
    assert len(names) == 4
    assert not any("one" in each for each in names)
    # Behind keys nobody gets a second share by calling itself something else.
    assert name(keyed, "one") == name(keyed, "one", "b", "10.0.0.1") != name(keyed, "two")
    by_header = keyed.client(Headers({"x-api-key": "one"}), "127.0.0.1")
    assert by_header == name(keyed, "one")


@pytest.mark.slow
def test_who_waited_too_long_is_told_to_try_later(tmp_path: Path) -> None:
    begin = tmp_path / "begin"
    with served(stories(begin, 0.0), max_wait_s=0.3) as server:
        with server.asking({"text": "a story"}) as (running,):
            for stream in (False, True):  # before the first event it is an error of its own
                refused = server.chat("hello", stream=stream)
                assert refused.status_code == 503
                assert int(refused.headers["retry-after"]) > 0
                assert refused.json()["error"]["type"] == "overloaded_error"
                assert "0.3 s" in refused.json()["error"]["message"]
            begin.touch()
        assert running.result().status_code == 200, "who runs may take longer"
        assert server.chat("a story").status_code == 200


QUESTION = "How long is the Rhine? " + "word " * 60
STREAMS = bodies(QUESTION)
EVENTS = [path for path in STREAMS if path not in OLLAMA]
EVERY = pytest.mark.parametrize("path", EVENTS)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "HEADERS_WITHIN_S", 0.1)
    monkeypatch.setattr(answering, "PING_EVERY_S", 0.1)


@contextmanager
def resting(at: int, go_on: Path, **more: Any) -> Iterator[Served]:
    """Serve answers that do not go on before a file is there."""
    script = {"answers": {"Rhine": "It is 1233 km long."}, "otherwise": ["Hello."], "fim": FIM}
    with served({**script, "rests": {"at": at, "until": str(go_on)}}, **more) as server:
        try:
            yield server
        finally:
            go_on.touch()


@pytest.mark.usefixtures("impatient")
@EVERY
def test_while_a_prompt_is_read_a_line_says_how_far(path: str, tmp_path: Path) -> None:
    with resting(128, tmp_path / "go on") as server:
        with server.client.stream("POST", path, json={**STREAMS[path], "stream": True}) as answer:
            assert answer.status_code == 200
            lines = answer.iter_lines()
            ping = next(line for line in lines if line.startswith(": reading"))
            assert (found := re.fullmatch(r": reading (\d+) of (\d+) tokens", ping))
            assert 0 <= int(found[1]) < int(found[2])
            if path == MESSAGES:
                assert next(lines) == "event: ping"
                ping = json.loads(next(lines).removeprefix("data: "))
                assert [*ping] == ["type", "prompt_tokens", "read_tokens"]
                assert ping["read_tokens"] < ping["prompt_tokens"]
            (reading,) = server.client.get("/health").json()["reading"]
            assert 128 <= reading["read_tokens"] < reading["prompt_tokens"]
            (tmp_path / "go on").touch()
            rest = [line for line in lines if line and not line.startswith(":")]
        assert "_error" not in "".join(rest)
        assert rest[-1].startswith("data: ")
        assert server.client.get("/health").json()["reading"] == []


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("path", OLLAMA)
def test_while_a_prompt_is_read_ollamas_stream_has_pieces_without_a_word(
    path: str, tmp_path: Path
) -> None:
    with resting(128, tmp_path / "go on") as server:
        with server.client.stream("POST", path, json={**STREAMS[path], "stream": True}) as answer:
            assert answer.headers["content-type"] == "application/x-ndjson"
            lines = answer.iter_lines()
            pieces = [json.loads(next(lines)) for _ in range(2)]
            (tmp_path / "go on").touch()
            rest = [json.loads(line) for line in lines]
        assert not any(text_of(each) or each["done"] for each in pieces)
        assert "".join(map(text_of, rest)) == "It is 1233 km long."
        assert [each["done"] for each in rest].index(True) == len(rest) - 1


def text_of(piece: dict[str, Any]) -> str:
    return str(piece["response"] if "response" in piece else piece["message"]["content"])


@pytest.mark.usefixtures("impatient")
def test_anthropics_client_reads_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_DELTA_EVERY", 2)
    given = {"model": "a-pair", "max_tokens": 99, "messages": [user(QUESTION)]}
    events, own = list[Any](), {"api_key": "none", "max_retries": 0}
    with (
        resting(128, tmp_path / "go on") as server,
        anthropic.Anthropic(base_url=server.url, **own) as claude,
        claude.messages.stream(**given) as stream,
    ):
        for event in stream:
            events.append(event)
            if event.type == "message_delta":
                (tmp_path / "go on").touch()
    assert events[0].type == "message_start"
    assert events[0].message.usage.input_tokens > 300
    # Their client leaves pings out, and Claude Code counts the seconds without an event.
    assert [events[1].type, events[1].delta.stop_reason] == ["message_delta", None]
    assert events[-1].message.stop_reason == "end_turn"
    assert events[-1].message.content[0].text == "It is 1233 km long."


@pytest.mark.usefixtures("impatient")
def test_a_message_of_others_has_no_delta_before_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """litellm takes the first one for the end."""
    monkeypatch.setattr(messages, "_DELTA_EVERY", 1)
    body = {**STREAMS[MESSAGES], "stream": True}
    with (
        resting(128, tmp_path / "go on") as server,
        server.client.stream("POST", MESSAGES, json=body) as answer,
    ):
        kinds = list[str]()
        for line in answer.iter_lines():
            kinds += [line.removeprefix("event: ")] * line.startswith("event: ")
            if line.startswith(": reading 128"):
                (tmp_path / "go on").touch()
    assert "ping" in kinds
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("message_delta") == 1


@pytest.mark.usefixtures("impatient")
def test_openais_client_reads_on(tmp_path: Path) -> None:
    with (
        resting(128, tmp_path / "go on") as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        threading.Timer(0.5, (tmp_path / "go on").touch).start()
        chunks = client.chat.completions.create(model="", messages=[user(QUESTION)], stream=True)
        assert "".join(each.choices[0].delta.content or "" for each in chunks) == "It is 1233 km long."  # fmt: skip
        with client.responses.stream(model="", input=QUESTION) as stream:
            assert stream.get_final_response().output_text == "It is 1233 km long."


@pytest.mark.usefixtures("impatient")
def test_who_waits_hears_it_and_an_error_of_a_prompt_has_its_status() -> None:
    with served({"answers": {"story": "x" * 900}, "pass_s": 0.02, "fim": FIM}) as server:
        story = {**bodies("a story", 999)[CHAT], "stream": True}
        with server.client.stream("POST", CHAT, json=story):
            for path, body in STREAMS.items():
                with server.client.stream("POST", path, json={**body, "stream": True}) as answer:
                    assert answer.status_code == 200
                    waits = (": waiting for a slot", '{"model"')
                    assert any(line.startswith(waits) for line in answer.iter_lines())
                server.wait_until(1)  # it went away
            for path, body in bodies("x" * 5000).items():
                if path != INFILL:  # which takes what fits
                    server.refuse(path, "the context holds 4000", **{**body, "stream": True})


@pytest.mark.usefixtures("impatient")
def test_where_the_engine_does_not_hear_headers_are_sent_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "CHECKED_WITHIN_S", 0.1)
    with resting(0, tmp_path / "go on", most=2) as server, server.asking({"text": "hello"}):
        long = {**bodies("x" * 5000)[CHAT], "stream": True}
        with server.client.stream("POST", CHAT, json=long) as answer:
            assert answer.status_code == 200
            assert server.chat("hello", stream=True).status_code == 429
            (tmp_path / "go on").touch()
            last = [line for line in answer.iter_lines() if line.startswith("data: ")][-1]
        # An error in a stream has the code of one with a status.
        assert json.loads(last[6:])["error"]["code"] == "context_length_exceeded"


@pytest.mark.usefixtures("impatient")
def test_a_model_that_is_unloaded_while_a_prompt_is_checked_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unloaded(*_: object) -> None:
        raise EngineGone("no model is loaded")

    monkeypatch.setattr(answering.Service, "check", unloaded)
    body = {**bodies("hi")[CHAT], "stream": True}
    with resting(0, tmp_path / "go on") as server, server.asking({"text": "hello"}):
        with server.client.stream("POST", CHAT, json=body) as answer:
            (tmp_path / "go on").touch()
            answer.read()
        assert answer.status_code == 200


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("path", [CHAT, MESSAGES, TALK])
def test_what_goes_wrong_later_is_an_event(path: str, tmp_path: Path) -> None:
    rests = {"at": 128, "until": str(tmp_path / "go on")}
    with (
        served({"rests": rests, "fails": {"Rhine": ["model", 0]}}) as server,
        server.client.stream("POST", path, json={**STREAMS[path], "stream": True}) as answer,
    ):
        lines = answer.iter_lines()
        next(line for line in lines if line.startswith((": reading", '{"model"')))
        (tmp_path / "go on").touch()
        rest = [line for line in lines if line and not line.startswith(":")]
    assert ('"api_error"' if path != TALK else '{"error":"this is a bug') in rest[-1]
    assert ("event: error" in rest) is (path == MESSAGES)
    assert "[DONE]" not in rest[-1]


CODE_QUESTION = Request(0, (Message.user("Write a function that reverses a list in Python."),))
FIRST = RoundDone(Round(Draft(drafter="prompt"), Verdict(0, 5), (5,)), ("a",))
STATS = AcceptanceStats(
    3, 8, 6, 9, by_drafter={"lookup": AcceptanceStats(2, 8, 6, 8), "off": AcceptanceStats(1)}
)


def reply(reason: StopReason = StopReason.EOG) -> Reply:
    return Reply("def f():\n    return 1", "", (5,), reason, 7, 10, 4, 9, 0.1, 0.1, 0.5, Spent(), "auto", STATS)  # fmt: skip


def value(metrics: Metrics, name: str) -> float:
    text = metrics.text().decode()
    (figure,) = re.findall(rf"^localspec_{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(figure)


@pytest.mark.parametrize("first", [FIRST, Text("a"), Text("a", thinking=True), CallBegun("1", "f")])
def test_times_are_those_that_the_client_waits(first: StreamEvent) -> None:
    clock = Stopwatch(0)
    metrics = Metrics(clock)
    metrics.ask(1, CODE_QUESTION)
    assert (metrics.running(), metrics.waiting()) == (0, 1)
    clock.now_s = 3.0
    metrics.see(ReplyEvents(1, (Started(10, 4),)))
    assert (metrics.running(), metrics.waiting()) == (1, 0)
    metrics.see(ReplyEvents(1, (Prefilling(3, 6),)))
    clock.now_s = 7.0
    metrics.see(ReplyEvents(1, (first,)))
    clock.now_s = 8.0
    metrics.see(ReplyEvents(1, (first,)))
    metrics.see(Finished(reply(), Message.assistant(""), id=1, widths=((1, 4), (5, 2))))
    assert (metrics.running(), metrics.waiting()) == (0, 0)
    assert value(metrics, "wait_seconds_sum") == 3.0
    assert value(metrics, "first_token_seconds_sum") == 7.0
    assert value(metrics, "first_token_seconds_count") == 1
    assert value(metrics, 'pass_tokens_bucket{le="1.0"}') == 4
    assert value(metrics, "pass_tokens_sum") == 14
    assert value(metrics, "pass_tokens_count") == 6
    kinds = {"prompt": 10, "cached": 4, "completion": 9}
    assert {each: value(metrics, f'tokens_total{{kind="{each}"}}') for each in kinds} == kinds
    assert value(metrics, 'seconds_total{kind="decode"}') == 0.5


def test_acceptance_is_told_by_drafter_and_kind_of_text() -> None:
    metrics = Metrics()
    gap = Request(0, (), infill=Infill("def f():\n    return", ""))
    for number, each in enumerate((CODE_QUESTION, Request(0, (), raw="Say: abc"), gap)):
        metrics.ask(number, each)
        metrics.see(Finished(reply(), Message.assistant(""), id=number))
    text = metrics.text().decode()
    found = re.findall(r'accepted_tokens_total\{drafter="lookup",workload="(\w+)"\} (\S+)', text)
    assert float(dict(found)["code"]) >= 6
    assert sum(float(each) for _, each in found) == 18
    assert sum(map(float, re.findall(r'drafted_tokens_total\{drafter="off".* (\S+)', text))) == 0


def test_who_fails_dies_or_is_unloaded_is_under_way_no_more_and_engines_are_counted_apart() -> None:
    metrics = Metrics()
    writes, embeds = object(), object()
    for number, engine in ((0, writes), (1, writes), (1, embeds)):
        metrics.ask(number, CODE_QUESTION, "a", engine)
    metrics.see(Failed(0, "UsageError", "no"), "a", writes)
    assert metrics.waiting("a") == 2
    assert value(metrics, 'requests_total{outcome="failed"}') == 1
    metrics.ask(2, Embed(2, ("tea",)), "a", embeds)
    metrics.see(Failed(2, "UsageError", "no"), "a", embeds)
    assert value(metrics, 'requests_total{outcome="failed"}') == 1, "of requests for texts"
    metrics.see(EngineDied("gone"), "a", embeds)
    assert metrics.waiting("a") == 1
    assert value(metrics, "engine_deaths_total") == 1
    metrics.see(ReplyEvents(1, (Started(10, 4),)), "a", writes)
    assert metrics.running("a") == 1
    metrics.see(Finished(reply(StopReason.CANCELLED), Message.assistant(""), id=1), "a", embeds)
    metrics.see(ReplyEvents(1, (Started(1, 0),)), "a", embeds)
    assert (metrics.running(), metrics.waiting()) == (1, 0), "the dead say nothing that counts"
    assert value(metrics, 'requests_total{outcome="cancelled"}') == 1
    metrics.leave(writes)
    assert metrics.running() == metrics.waiting() == 0
    assert value(metrics, 'requests_total{outcome="cancelled"}') == 2, "its client went away"


@pytest.mark.slow
def test_what_was_refused_and_who_waits_is_told_over_http(tmp_path: Path) -> None:
    begin = tmp_path / "begin"
    slow = {"answers": {"story": "x" * 150}, "pass_s": str(begin), "drafts": 1}
    with served(slow, guard=Guard(keys=("sesame",))) as server:
        assert server.chat("hello").status_code == 401
        server.client.headers["x-api-key"] = "sesame"
        assert server.client.get("/nope").status_code == 404
        assert server.chat("hello", temperature=-1).status_code == 400
        with server.asking(*[{"text": "a story"}] * 3):
            assert until(lambda: server.client.get("/health").json()["waiting"] == 2)
            assert server.client.get("/health").json()["running"] == 1
            text = server.client.get("/metrics").text
            assert "localspec_requests_running 1.0" in text
            assert "localspec_requests_waiting 2.0" in text
            begin.touch()
        text = server.client.get("/metrics").text
    for status in (400, 401, 404):
        assert f'localspec_refused_total{{status="{status}"}} 1.0' in text
    assert "localspec_wait_seconds_count 3.0" in text
    assert 'localspec_accepted_tokens_total{drafter="model",workload=' in text
