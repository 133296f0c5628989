"""What the server tells of itself: who runs and who waits, how long that took, what was drafted of which kind of text."""

import re
import threading
from pathlib import Path

import pytest

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
from localspec.engine.protocol import EngineDied, Failed, ReplyEvents
from localspec.messages import Infill, Message
from localspec.serve.http import Guard
from localspec.serve.metrics import Metrics
from tests.serve.serving import served
from tests.waiting import until


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


QUESTION = Request(0, (Message.user("Write a function that reverses a list in Python."),))
FIRST = RoundDone(Round(Draft(drafter="prompt"), Verdict(0, 5), (5,)), ("a",))
STATS = AcceptanceStats(
    3, 8, 6, 9, by_drafter={"lookup": AcceptanceStats(2, 8, 6, 8), "off": AcceptanceStats(1)}
)


def reply(reason: StopReason = StopReason.EOG) -> Reply:
    return Reply("def f():\n    return 1", "", (5,), reason, 7, 10, 4, 9, 0.1, 0.1, 0.5, Spent(), "auto", STATS)  # fmt: skip


def value(metrics: Metrics, name: str) -> float:
    """Return a figure by its name and labels."""
    text = metrics.text().decode()
    (figure,) = re.findall(rf"^localspec_{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(figure)


@pytest.mark.parametrize("first", [FIRST, Text("a"), Text("a", thinking=True), CallBegun("1", "f")])
def test_times_are_those_that_the_client_waits(first: StreamEvent) -> None:
    clock = Clock()
    metrics = Metrics(clock)
    metrics.ask(1, QUESTION)
    assert (metrics.running, metrics.waiting) == (0, 1)
    clock.now_s = 3.0
    metrics.see(ReplyEvents(1, (Started(10, 4),)))
    assert (metrics.running, metrics.waiting) == (1, 0)
    metrics.see(ReplyEvents(1, (Prefilling(3, 6),)))
    clock.now_s = 7.0
    metrics.see(ReplyEvents(1, (first,)))
    clock.now_s = 8.0
    metrics.see(ReplyEvents(1, (first,)))
    metrics.see(Finished(reply(), Message.assistant(""), id=1, widths=((1, 4), (5, 2))))
    assert (metrics.running, metrics.waiting) == (0, 0)
    assert value(metrics, "wait_seconds_sum") == 3.0
    assert value(metrics, "first_token_seconds_sum") == 7.0
    assert value(metrics, "first_token_seconds_count") == 1
    assert value(metrics, 'pass_tokens_bucket{le="1.0"}') == 4
    assert value(metrics, "pass_tokens_sum") == 14
    assert value(metrics, "pass_tokens_count") == 6
    kinds = {"prompt": 10, "cached": 4, "completion": 9}
    assert {each: value(metrics, f'tokens_total{{kind="{each}"}}') for each in kinds} == kinds


def test_acceptance_is_told_by_drafter_and_kind_of_text() -> None:
    metrics = Metrics()
    asked = (
        QUESTION,
        Request(0, (), raw="Say: abc"),
        Request(0, (), infill=Infill("def f():\n    return", "")),
    )
    for number, each in enumerate(asked):
        metrics.ask(number, each)
        metrics.see(Finished(reply(), Message.assistant(""), id=number))
    text = metrics.text().decode()
    found = re.findall(r'accepted_tokens_total\{drafter="lookup",workload="(\w+)"\} (\S+)', text)
    assert float(dict(found)["code"]) >= 6
    assert sum(float(each) for _, each in found) == 18
    assert sum(map(float, re.findall(r'drafted_tokens_total\{drafter="off".* (\S+)', text))) == 0


def test_who_fails_or_dies_is_under_way_no_more() -> None:
    metrics = Metrics()
    for number in range(3):
        metrics.ask(number, QUESTION)
    metrics.see(Failed(0, "UsageError", "no"))
    assert metrics.waiting == 2
    metrics.see(EngineDied("gone"))
    assert metrics.waiting == 0
    metrics.see(Finished(reply(StopReason.CANCELLED), Message.assistant(""), id=1))
    metrics.see(ReplyEvents(1, (Started(1, 0),)))
    assert value(metrics, 'requests_total{outcome="failed"}') == 1
    assert value(metrics, 'requests_total{outcome="cancelled"}') == 1
    assert value(metrics, "engine_deaths_total") == 1


@pytest.mark.slow
def test_what_was_refused_and_who_waits_is_told_over_http(tmp_path: Path) -> None:
    begin = tmp_path / "begin"
    slow = {"answers": {"story": "x" * 150}, "pass_s": str(begin), "drafts": 1}
    with served(slow, guard=Guard(keys=("sesame",))) as server:
        assert server.chat("hello").status_code == 401
        server.client.headers["x-api-key"] = "sesame"
        assert server.client.get("/nope").status_code == 404
        assert server.chat("hello", temperature=-1).status_code == 400
        threads = [threading.Thread(target=server.chat, args=("a story",)) for _ in range(3)]
        for thread in threads:
            thread.start()

        def who() -> tuple[int, int]:
            health = server.client.get("/health").json()
            return health["running"], health["waiting"]

        assert until(lambda: who() == (1, 2)), who()
        text = server.client.get("/metrics").text
        assert "localspec_requests_running 1.0" in text
        assert "localspec_requests_waiting 2.0" in text
        begin.touch()
        for thread in threads:
            thread.join()
        text = server.client.get("/metrics").text
    for status in (400, 401, 404):
        assert f'localspec_refused_total{{status="{status}"}} 1.0' in text
    assert "localspec_wait_seconds_count 3.0" in text
    assert 'localspec_accepted_tokens_total{drafter="model",workload=' in text


def test_an_answer_says_why_it_was_drafted_as_it_was() -> None:
    with served({"drafts": 4}) as server:
        told = server.chat("hello").json()["speculation"]["reason"]
        assert re.fullmatch(r"on: .* drafted in \d+ of \d+ rounds", told)
        told = server.chat("hello", localspec={"draft": "off"}).json()["speculation"]["reason"]
        assert told.startswith("off: it was asked for without drafts")
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 9}
        told = server.client.post("/v1/messages", json=body).json()["speculation"]["reason"]
        assert told.startswith("on: ")
