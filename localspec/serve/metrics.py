"""Metrics: what the server does, as Prometheus reads it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from localspec.chat.events import Delta, Finished, Reply, RoundDone, Started
from localspec.chat.request import Request
from localspec.engine.protocol import EngineDied, Failed, Notice, Question, ReplyEvents
from localspec.launch.observe import workload_of
from localspec.serve.answering import PromptProgress

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_GAUGES = {
    "requests_running": "Requests being answered.",
    "requests_waiting": "Requests waiting for a sequence.",
}
_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512)


@dataclass(slots=True)
class _UnderWay:
    """A request, as far as it is."""

    request: Request
    since_s: float
    began: bool = False
    wrote: bool = False
    progress: PromptProgress = field(default_factory=PromptProgress)


class Metrics:
    """Counts questions, and the notices of the engine.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._under_way: dict[int, _UnderWay] = {}
        self._registry = registry = CollectorRegistry()

        def counter(name: str, help_: str, *labels: str) -> Counter:
            return Counter(f"localspec_{name}", help_, labels, registry=registry)

        def histogram(name: str, help_: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"localspec_{name}", help_, buckets=buckets, registry=registry)

        self._requests = counter("requests", "Requests by what became of them.", "outcome")
        self._refused = counter("refused", "Requests refused, by HTTP status.", "status")
        self._tokens = counter("tokens", "Tokens: prompt, cached, completion.", "kind")
        self._seconds = counter("seconds", "Seconds of answers: prefill, decode.", "kind")
        by = ("drafter", "workload")
        self._rounds = counter("rounds", "Rounds by drafter and kind of text.", *by)
        self._drafted = counter(
            "drafted_tokens", "Drafted tokens by drafter and kind of text.", *by
        )
        self._accepted = counter(
            "accepted_tokens", "Drafted tokens accepted, by drafter and kind of text.", *by
        )
        self._deaths = counter("engine_deaths", "How often the engine died.")
        self._waited_s = histogram("wait_seconds", "From the request to its begin.", _SECONDS)
        self._first_token_s = histogram(
            "first_token_seconds",
            "From the request to the first of the answer, waiting included.",
            _SECONDS,
        )
        self._widths = histogram(
            "pass_tokens", "Tokens per pass of the target that gave logits.", _WIDTHS
        )
        self._gauges = {
            name: Gauge(f"localspec_{name}", help_, registry=registry)
            for name, help_ in _GAUGES.items()
        }

    @property
    def running(self) -> int:
        """Requests that are being answered."""
        return sum(each.began for each in self._under_way.values())

    @property
    def reading(self) -> list[dict[str, int]]:
        """How far the prompts are that are being read."""
        jobs = self._under_way.values()
        return [each.progress.figures for each in jobs if each.began and not each.wrote]

    @property
    def waiting(self) -> int:
        """Requests that wait for a sequence."""
        return len(self._under_way) - self.running

    def ask(self, number: int, question: Question) -> None:
        """Count a question to the engine."""
        if isinstance(question, Request):
            self._under_way[number] = _UnderWay(question, self._clock())

    def see(self, notice: Notice) -> None:
        """Count a notice of the engine."""
        match notice:
            case ReplyEvents(id=number):
                self._happened(number, notice)
            case Finished(id=number, reply=reply, widths=widths):
                self._replied(self._under_way.pop(number, None), reply)
                for width, passes in widths:
                    for _ in range(passes):
                        self._widths.observe(width)
            case Failed(id=int(number)):
                self._under_way.pop(number, None)
                self._requests.labels("failed").inc()
            case EngineDied():
                self._under_way.clear()
                self._deaths.inc()

    def refuse(self, status: int) -> None:
        """Take in that a request was refused."""
        self._refused.labels(str(status)).inc()

    def text(self) -> bytes:
        """Return all of it, as of now."""
        self._gauges["requests_running"].set(self.running)
        self._gauges["requests_waiting"].set(self.waiting)
        return generate_latest(self._registry)

    def _happened(self, number: int, notice: ReplyEvents) -> None:
        job = self._under_way.get(number)
        if job is None:
            return
        seconds = self._clock() - job.since_s
        for each in notice.events:
            job.progress.note(each)
        if not job.began and any(isinstance(each, Started) for each in notice.events):
            job.began = True
            self._waited_s.observe(seconds)
        if not job.wrote and any(isinstance(each, RoundDone | Delta) for each in notice.events):
            job.wrote = True
            self._first_token_s.observe(seconds)

    def _replied(self, job: _UnderWay | None, reply: Reply) -> None:
        self._requests.labels(reply.stop_reason.value).inc()
        self._tokens.labels("prompt").inc(reply.prompt_tokens)
        self._tokens.labels("cached").inc(reply.cached_tokens)
        self._tokens.labels("completion").inc(reply.completion_tokens)
        self._seconds.labels("prefill").inc(reply.prefill_s)
        self._seconds.labels("decode").inc(reply.decode_s)
        workload = "chat" if job is None else workload_of(job.request.question, reply.text)
        for name, stats in reply.acceptance.by_drafter.items():
            self._rounds.labels(name, workload).inc(stats.rounds)
            self._drafted.labels(name, workload).inc(stats.drafted)
            self._accepted.labels(name, workload).inc(stats.accepted)
