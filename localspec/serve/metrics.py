"""Metrics: what the server does, as Prometheus reads it."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from localspec.chat.events import Reply
from localspec.engine.protocol import EngineDied, Failed, Notice, ReplyDone

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """Counts what the engine tells."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "localspec_requests", "Requests by what became of them.", ["outcome"], registry=registry
        )
        self._tokens = Counter(
            "localspec_tokens", "Tokens: prompt, cached, completion.", ["kind"], registry=registry
        )
        self._drafted = Counter(
            "localspec_drafted_tokens", "Drafted tokens by drafter.", ["drafter"], registry=registry
        )
        self._accepted = Counter(
            "localspec_accepted_tokens",
            "Drafted tokens that were accepted.",
            ["drafter"],
            registry=registry,
        )
        self._rounds = Counter(
            "localspec_rounds", "Rounds by drafter.", ["drafter"], registry=registry
        )
        self._deaths = Counter(
            "localspec_engine_deaths", "How often the engine died.", registry=registry
        )
        self._first_token_s = Histogram(
            "localspec_first_token_seconds",
            "From the request to the first token.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._under_way = Gauge(
            "localspec_requests_under_way", "Requests that run or wait.", registry=registry
        )

    def see(self, notice: Notice) -> None:
        """Take in what the engine tells."""
        match notice:
            case ReplyDone(reply=reply):
                self._replied(reply)
            case Failed(id=int()):
                self._requests.labels("failed").inc()
            case EngineDied():
                self._deaths.inc()

    def text(self, under_way: int) -> bytes:
        """Return all of it."""
        self._under_way.set(under_way)
        return generate_latest(self._registry)

    def _replied(self, reply: Reply) -> None:
        self._requests.labels(reply.stop_reason.value).inc()
        self._tokens.labels("prompt").inc(reply.prompt_tokens)
        self._tokens.labels("cached").inc(reply.cached_tokens)
        self._tokens.labels("completion").inc(reply.completion_tokens)
        if reply.first_token_s is not None:
            self._first_token_s.observe(reply.first_token_s)
        for name, stats in reply.acceptance.by_drafter.items():
            self._rounds.labels(name).inc(stats.rounds)
            self._drafted.labels(name).inc(stats.drafted)
            self._accepted.labels(name).inc(stats.accepted)
