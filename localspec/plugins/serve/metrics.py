"""Metrics: what the server does, as Prometheus reads it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from localspec.api import Finished, Reply, Request, RoundDone
from localspec.chat.events import Delta, Started
from localspec.engine.protocol import EngineDied, Failed, Notice, Question, ReplyEvents
from localspec.launch.observe import workload_of
from localspec.plugins.serve.answering import PromptProgress

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_GAUGES = {
    "requests_running": "Requests being answered.",
    "requests_waiting": "Requests waiting for a sequence.",
}
_Metric = TypeVar("_Metric", Counter, Gauge, Histogram)
_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512)


@dataclass(slots=True)
class _Running:
    """A request, as far as it is."""

    request: Request
    model: str
    since_s: float
    began: bool = False
    wrote: bool = False
    progress: PromptProgress = field(default_factory=PromptProgress)


class Metrics:
    """Counts questions, and the notices of the engine.

    Args:
        clock: seconds, monotonic.
        by_model: have a label for the model.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, by_model: bool = False
    ) -> None:
        self._clock = clock
        self._by_model = by_model
        self._under_way: dict[tuple[object, int], _Running] = {}
        self._models = set[str]()
        self._registry = registry = CollectorRegistry()
        of_model = ("model",) * by_model

        def counter(name: str, help_: str, *labels: str) -> Counter:
            return Counter(f"localspec_{name}", help_, (*of_model, *labels), registry=registry)

        def histogram(name: str, help_: str, buckets: tuple[float, ...]) -> Histogram:
            name = f"localspec_{name}"
            return Histogram(name, help_, of_model, buckets=buckets, registry=registry)

        self._requests = counter("requests", "Requests by what became of them.", "outcome")
        self._refused = Counter(
            "localspec_refused", "Requests refused, by HTTP status.", ("status",), registry=registry
        )
        self._loaded = Gauge(
            "localspec_model_loaded", "Whether a model is loaded.", ("model",), registry=registry
        )
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
            name: Gauge(f"localspec_{name}", help_, of_model, registry=registry)
            for name, help_ in _GAUGES.items()
        }

    def running(self, model: str | None = None) -> int:
        """Return how many requests are being answered, of a model or of all."""
        return sum(each.began for each in self._of(model))

    def waiting(self, model: str | None = None) -> int:
        """Return how many requests wait for a sequence, of a model or of all."""
        return sum(not each.began for each in self._of(model))

    @property
    def reading(self) -> list[dict[str, int]]:
        """How far the prompts are that are being read."""
        jobs = self._under_way.values()
        return [each.progress.figures for each in jobs if each.began and not each.wrote]

    def _of(self, model: str | None) -> list[_Running]:
        return [each for each in self._under_way.values() if model in {None, each.model}]

    def ask(self, number: int, question: Question, model: str = "", engine: object = None) -> None:
        """Count a question to an engine of a model."""
        if isinstance(question, Request):
            self._under_way[engine, number] = _Running(question, model, self._clock())

    def leave(self, engine: object) -> None:
        """Count the requests to an engine that is unloaded: they were cancelled, and nothing more comes of them."""
        for job in self._ended(engine):
            self._labelled(self._requests, job.model, "cancelled").inc()

    def _ended(self, engine: object) -> list[_Running]:
        """Return the requests to an engine, which are under way no more."""
        keys = [key for key in self._under_way if key[0] is engine]
        return [self._under_way.pop(key) for key in keys]

    def see(self, notice: Notice, model: str = "", engine: object = None) -> None:
        """Count a notice of an engine of a model."""
        match notice:
            case ReplyEvents(id=number):
                self._happened(self._under_way.get((engine, number)), notice)
            case Finished(id=number, reply=reply, widths=widths):
                self._replied(self._under_way.pop((engine, number), None), reply, model)
                for width, passes in widths:
                    for _ in range(passes):
                        self._labelled(self._widths, model).observe(width)
            case Failed(id=int(number)):
                if self._under_way.pop((engine, number), None) is not None:
                    self._labelled(self._requests, model, "failed").inc()
            case EngineDied():
                self._ended(engine)
                self._labelled(self._deaths, model).inc()

    def refuse(self, status: int) -> None:
        """Take in that a request was refused."""
        self._refused.labels(str(status)).inc()

    def text(self, states: Mapping[str, str] | None = None) -> bytes:
        """Return all of it, as of now; `states` are those of models."""
        states = states or {}
        self._models |= states.keys()
        for model in self._models:
            self._loaded.labels(model).set(states.get(model) == "loaded")
        for model in self._models if self._by_model else ("",):
            only = model if self._by_model else None
            running, waiting = (self._gauges[name] for name in _GAUGES)
            self._labelled(running, model).set(self.running(only))
            self._labelled(waiting, model).set(self.waiting(only))
        return generate_latest(self._registry)

    def _labelled(self, metric: _Metric, model: str, *values: str) -> _Metric:
        """Return the series of a metric."""
        labels = (model,) * self._by_model + values
        return metric.labels(*labels) if labels else metric

    def _happened(self, job: _Running | None, notice: ReplyEvents) -> None:
        if job is None:
            return
        seconds = self._clock() - job.since_s
        for each in notice.events:
            job.progress.note(each)
        if not job.began and any(isinstance(each, Started) for each in notice.events):
            job.began = True
            self._labelled(self._waited_s, job.model).observe(seconds)
        if not job.wrote and any(isinstance(each, RoundDone | Delta) for each in notice.events):
            job.wrote = True
            self._labelled(self._first_token_s, job.model).observe(seconds)

    def _replied(self, job: _Running | None, reply: Reply, model: str) -> None:
        self._labelled(self._requests, model, reply.stop_reason.value).inc()
        for kind in ("prompt", "cached", "completion"):
            count: int = getattr(reply, f"{kind}_tokens")
            self._labelled(self._tokens, model, kind).inc(count)
        for kind in ("prefill", "decode"):
            self._labelled(self._seconds, model, kind).inc(getattr(reply, f"{kind}_s"))
        workload = "chat" if job is None else workload_of(job.request.question, reply.text)
        for name, stats in reply.acceptance.by_drafter.items():
            self._labelled(self._rounds, model, name, workload).inc(stats.rounds)
            self._labelled(self._drafted, model, name, workload).inc(stats.drafted)
            self._labelled(self._accepted, model, name, workload).inc(stats.accepted)
