"""Waiting for what an engine says."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from localspec.chat.events import Finished, RoundDone, Started, StreamEvent, Text
from localspec.chat.request import Request
from localspec.decoding.round import Round
from localspec.engine.protocol import (
    Count,
    EngineDied,
    Failed,
    Notice,
    Question,
    Ready,
    ReplyEvents,
)
from localspec.engine.remote_engine import COMMAND, RemoteEngine
from localspec.messages import Message
from localspec.options import LaunchOptions, ReplyOptions, SamplingParams
from tests.engine.double import command

M = TypeVar("M")
E = TypeVar("E", bound=StreamEvent)
POLL_S = 0.005
PATIENCE = 48_000
# What was drained together with the notice that somebody waited for.
_UNHEARD: WeakKeyDictionary[Any, list[Notice]] = WeakKeyDictionary()
GREEDY = ReplyOptions(SamplingParams(temperature=0))


class Drained(Protocol):
    @property
    def pid(self) -> int | None: ...

    def drain(self) -> list[Notice]: ...


class Talker(RemoteEngine):
    """An engine whose notices are collected, those of its models and of all requests, in their order."""

    def __init__(self, command: Sequence[str] = COMMAND, gate: str = "", **more: Any) -> None:
        super().__init__(command, **more)
        self.gate, self.collected = gate, list[Notice]()

    def ask(
        self, messages: str | Sequence[Message], options: ReplyOptions = GREEDY, **more: Any
    ) -> int:
        said = (Message.user(messages),) if isinstance(messages, str) else tuple(messages)
        return self.question(Request(0, said, options, gate=self.gate, **more))

    def count_of(self, *messages: Message) -> int:
        return self.question(Count(0, messages))

    def question(self, question: Question) -> int:
        number = next(self._ids)
        if self._link is None:
            self._deliver(EngineDied("the engine is not running: restart it"))
        self._send(msgspec.structs.replace(question, id=number))
        return number

    def reply(
        self, messages: str | Sequence[Message], options: ReplyOptions = GREEDY, **more: Any
    ) -> "Heard":
        return hear_all(self, self.ask(messages, options, **more))

    def drain(self) -> list[Notice]:
        while self.receive() and self._link is not None and self._link.wait(0):
            pass
        collected, self.collected = self.collected, []
        return collected

    def _deliver(self, notice: Notice) -> None:
        super()._deliver(notice)
        self.collected.append(notice)


class Heard(list[Notice]):
    def of(self, kind: type[M]) -> list[M]:
        return [each for each in self if isinstance(each, kind)]

    def about(self, request: int) -> "Heard":
        return Heard(each for each in self if getattr(each, "id", None) == request)

    def events(self, kind: type[E]) -> list[E]:
        events = (event for each in self.of(ReplyEvents) for event in each.events)
        return [event for event in events if isinstance(event, kind)]

    @property
    def done(self) -> Finished:
        assert isinstance(self[-1], Finished), self[-1]
        return self[-1]

    @property
    def text(self) -> str:
        return "".join(each.text for each in self.events(Text) if not each.thinking)

    @property
    def written(self) -> str:
        """All that was written, tags of thoughts included, token by token."""
        return "".join(text for each in self.events(RoundDone) for text in each.texts)

    @property
    def rounds(self) -> list[Round]:
        """The rounds, the first token's not among them."""
        return [each.round for each in self.events(RoundDone) if not each.round.is_first]

    @property
    def origins(self) -> list[str]:
        return [
            origin
            for each in self.events(RoundDone)
            for origin, _ in zip(each.round.origins, each.texts, strict=False)
        ]

    @property
    def started(self) -> Started:
        (started,) = self.events(Started)
        return started


def hear(engine: Drained, until: Callable[[Notice], bool]) -> Heard:
    """Collect what the engine says up to the first notice that `until` is true of."""
    heard = Heard()
    waiting = _UNHEARD.setdefault(engine, [])
    # Counted, not timed: a virtual machine that is paused must not use the patience up, nor an engine that is.
    looks = 0
    while looks < PATIENCE:
        looks += looks % 100 > 0 or _state(engine) != "T"
        waiting += engine.drain()
        while waiting:
            heard.append(waiting.pop(0))
            if until(heard[-1]):
                return heard
        time.sleep(POLL_S)
    raise AssertionError(f"waited in vain after {heard[-3:]}; its process: {_state(engine)}")


def _state(engine: Drained) -> str:
    """Return what an engine's process does, in the system's letters: R, S, D, T where it is stopped; empty if unknown."""
    try:
        return Path(f"/proc/{engine.pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def hear_of(engine: Drained, *kinds: type[Notice]) -> Heard:
    """Collect what the engine says up to a notice of one of these kinds, a failure, or its death."""
    return hear(engine, lambda notice: isinstance(notice, (*kinds, Failed, EngineDied)))


def hear_last(engine: Drained, kind: type[M]) -> M:
    last = hear_of(engine, kind)[-1]  # type: ignore[arg-type]  # kinds of notices
    assert isinstance(last, kind), last
    return last


def hear_event(engine: Drained, kind: type[StreamEvent]) -> Heard:
    return hear(engine, lambda notice: bool(Heard([notice]).events(kind)))


def hear_all(engine: Drained, request: int) -> Heard:
    def ends(notice: Notice) -> bool:
        if isinstance(notice, EngineDied):
            return True
        return isinstance(notice, Finished | Failed) and notice.id == request

    return hear(engine, ends)


@contextmanager
def double(script: dict[str, Any] | None = None, *, load: bool = True) -> Iterator[Talker]:
    """Start a double, and load what it has."""
    engine = Talker(command(script))
    engine.start()
    try:
        if load:
            engine.load(LaunchOptions(pair="a-pair"))
            hear_last(engine, Ready)
        yield engine
    finally:
        engine.close()
