"""Waiting for what an engine says."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from localspec.chat.events import Finished, RoundDone, Started, StreamEvent, Text
from localspec.decoding.round import Round
from tests.engine.client import EngineClient
from localspec.engine.protocol import EngineDied, Failed, Notice, Ready, ReplyEvents
from localspec.options import LaunchOptions
from tests.engine.double import command

M = TypeVar("M")
E = TypeVar("E", bound=StreamEvent)
POLL_S = 0.005
PATIENCE = 48_000
# What was drained together with the notice that somebody waited for.
_UNHEARD: WeakKeyDictionary[EngineClient, list[Notice]] = WeakKeyDictionary()


class Heard(list[Notice]):
    """Notices, in order."""

    def of(self, kind: type[M]) -> list[M]:
        """Return the notices of a kind."""
        return [each for each in self if isinstance(each, kind)]

    def about(self, request: int) -> "Heard":
        """Return the notices about a request."""
        return Heard(each for each in self if getattr(each, "id", None) == request)

    def events(self, kind: type[E]) -> list[E]:
        """Return what happened of replies, as far as it is of a kind."""
        events = (event for each in self.of(ReplyEvents) for event in each.events)
        return [event for event in events if isinstance(event, kind)]

    @property
    def text(self) -> str:
        """The answer as it was streamed, without thoughts."""
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
        """Where each token of the text came from."""
        return [
            origin
            for each in self.events(RoundDone)
            for origin, _ in zip(each.round.origins, each.texts, strict=False)
        ]

    @property
    def started(self) -> Started:
        """What was told of the only reply when its prompt was taken up."""
        (started,) = self.events(Started)
        return started


def hear(engine: EngineClient, until: Callable[[Notice], bool]) -> Heard:
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


def _state(engine: EngineClient) -> str:
    """Return what an engine's process does, in the system's letters: R, S, D, T where it is stopped; empty if unknown."""
    try:
        return Path(f"/proc/{engine.pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def hear_of(engine: EngineClient, *kinds: type[Notice]) -> Heard:
    """Collect what the engine says up to a notice of one of these kinds, a failure, or its death."""
    return hear(engine, lambda notice: isinstance(notice, (*kinds, Failed, EngineDied)))


def hear_event(engine: EngineClient, kind: type[StreamEvent]) -> Heard:
    """Collect what the engine says up to an event of a reply."""
    return hear(engine, lambda notice: bool(Heard([notice]).events(kind)))


def hear_all(engine: EngineClient, request: int) -> Heard:
    """Collect what the engine says up to the end of a request."""

    def ends(notice: Notice) -> bool:
        if isinstance(notice, EngineDied):
            return True
        return isinstance(notice, Finished | Failed) and notice.id == request

    return hear(engine, ends)


@contextmanager
def double(script: dict[str, Any] | None = None, *, load: bool = True) -> Iterator[EngineClient]:
    """Start a double, and load what it has."""
    engine = EngineClient(command(script))
    engine.start()
    try:
        if load:
            engine.load(LaunchOptions(pair="a-pair"))
            last = hear_of(engine, Ready)[-1]
            assert isinstance(last, Ready), last
        yield engine
    finally:
        engine.close()
