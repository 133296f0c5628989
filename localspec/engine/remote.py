"""RemoteAssistant: answers as an `Assistant` does, by an engine in another process."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from localspec import errors
from localspec.chat.events import Event, Finished
from localspec.chat.request import Request
from localspec.engine.client import EngineClient
from localspec.engine.protocol import EngineDied, Failed, ReplyDone, ReplyEvents
from localspec.engine.shared import SharedEngine
from localspec.errors import LocalspecError

if TYPE_CHECKING:
    from localspec.chat.request import Answered

_LOOK_S = 0.1


class EngineGone(LocalspecError):
    """Whoever answered is gone."""


def error_named(kind: str, reason: str) -> LocalspecError:
    """Return the error that an engine told, of its own class, with the exit code of that."""
    error: LocalspecError = getattr(errors, kind, LocalspecError)(reason)
    return error


class RemoteAssistant:
    """Answers with what a server has in memory, or an engine of one's own.

    Args:
        engine: the server's; or one that has loaded, which is this one's to close.
        stopped: says whether answers are to end with what there is of them; asked ten times a second.
        count: how many requests are answered at once.

    Attributes:
        no_drafting: why nothing was drafted in the last reply of `stream`, in about five words.
    """

    def __init__(
        self,
        engine: SharedEngine | EngineClient,
        stopped: Callable[[], bool] = lambda: False,
        count: int = 1,
    ) -> None:
        self.no_drafting = ""
        self._stopped = stopped
        self._count = count
        self._client = engine if isinstance(engine, EngineClient) else EngineClient()
        if isinstance(engine, SharedEngine):
            self._client.attach(engine)

    def close(self) -> None:
        """Leave it; what was asked ends."""
        self._client.close()

    def stream(self, asked: Request, ended: Callable[[], bool] = lambda: False) -> Iterator[Event]:
        """Answer, yielding events as they happen and `Finished` at the end; see `Assistant.stream`.

        Raises:
            EngineGone: the server is gone, or its engine died.
            LocalspecError: it cannot be answered, as `Assistant.stream` says.
        """
        number, told = self._client.question(asked), False
        while True:
            match self._client.wait(_LOOK_S):
                case ReplyEvents(events=events):
                    yield from events
                case ReplyDone(reply=reply, no_drafting=why):
                    self.no_drafting = why
                    yield Finished(reply)
                    return
                case Failed() | EngineDied() as trouble:
                    raise trouble_of(trouble)
            if not told and (self._stopped() or ended()):
                told = True
                self._client.cancel(number)

    def answer(
        self, requests: Iterator[Request], ready: Callable[[], bool] = lambda: True
    ) -> "Iterator[Answered]":
        """Answer several requests at a time, see `Answerer`; one that the server has no room for waits.

        Raises:
            EngineGone: the server is gone, or its engine died.
        """
        from localspec.chat.request import Answered  # noqa: PLC0415 - numpy comes with it

        under_way: dict[int, Request] = {}
        waiting: list[Request] = []  # the server had no room for them
        taking, told = True, False
        while taking or under_way or waiting:
            if taking and not waiting:
                taking = self._take(requests, ready, under_way)
            match self._client.wait(_LOOK_S):
                case None:
                    under_way |= {self._client.question(each): each for each in waiting}
                    waiting.clear()
                case ReplyDone(id=number, reply=reply):
                    yield Answered(under_way.pop(number).id, reply)
                case Failed(id=int(number), kind="Busy"):
                    waiting.append(under_way.pop(number))
                case Failed(id=int(number), kind=kind) as failed if kind not in _ENDS_ALL:
                    yield Answered(under_way.pop(number).id, None, error_named(kind, failed.reason))
                case Failed() | EngineDied() as trouble:
                    raise trouble_of(trouble)
            if not told and self._stopped():
                taking, told = False, True
                waiting.clear()
                for number in under_way:
                    self._client.cancel(number)

    def _take(
        self,
        requests: Iterator[Request],
        ready: Callable[[], bool],
        under_way: dict[int, Request],
    ) -> bool:
        """Ask as much as may be asked at once; return whether there may be more."""
        while len(under_way) < self._count and (not under_way or ready()):
            request = next(requests, None)
            if request is None:
                return False
            under_way[self._client.question(request)] = request
        return True


_ENDS_ALL = {"EngineLost", "Fault"}
"""What is not due to a request alone."""


def trouble_of(notice: Failed | EngineDied) -> LocalspecError:
    """Return the error that a notice tells."""
    if isinstance(notice, EngineDied) or notice.kind == "EngineLost":
        return EngineGone(notice.reason)
    return error_named(notice.kind, notice.reason)
