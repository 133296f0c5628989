"""Waiting for what an engine says."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from localspec.engine.client import EngineClient
from localspec.engine.protocol import EngineDied, Failed, Finished, Notice, Ready, Streamed
from localspec.options import LaunchOptions
from tests.engine.double import command

M = TypeVar("M")
POLL_S = 0.005
PATIENCE = 48_000
# What was drained together with the message that somebody waited for.
_UNHEARD: WeakKeyDictionary[EngineClient, list[Notice]] = WeakKeyDictionary()


class Heard(list[Notice]):
    """Messages, in order."""

    def of(self, kind: type[M]) -> list[M]:
        return [each for each in self if isinstance(each, kind)]

    @property
    def text(self) -> str:
        """The answer as it was streamed, without thoughts."""
        spans = [span for each in self.of(Streamed) for span in each.spans]
        return "".join(span.text for span in spans if not span.thinking)


def hear(engine: EngineClient, until: Callable[[Notice], bool]) -> Heard:
    """Collect what the engine says up to the first message that `until` is true of."""
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
    """Collect what the engine says up to a message of one of these kinds, a failure, or its death."""
    return hear(engine, lambda message: isinstance(message, (*kinds, Failed, EngineDied)))


def hear_all(engine: EngineClient, request: int) -> Heard:
    """Collect what the engine says up to the end of a request."""

    def ends(message: Notice) -> bool:
        if isinstance(message, EngineDied):
            return True
        return isinstance(message, Finished | Failed) and message.id == request

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
