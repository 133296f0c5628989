"""Answers without an event loop: `run` and `batch` wait for nothing but an engine, and importing asyncio takes 30 ms, as long as a server's first token."""

import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, suppress
from typing import Any, TypeVar

from localspec.chat.events import Finished
from localspec.chat.request import Request, RequestOutcome, at_once
from localspec.engine.engine import Engine, pause
from localspec.errors import Busy, EngineFault, EngineGone, LocalspecError, ModelChanged

T = TypeVar("T")
_AGAIN_S = 0.1
"""After so long a server of this program that had no room for any request is asked again."""
_LEAST_BACK_S, _MOST_BACK_S, _MOST_BUSY_S = 0.5, 30.0, 300.0
"""Another server is asked again after twice as long each time, unless it says when, and so long in all."""


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that waits for nothing but an engine."""
    try:
        while True:
            work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value


@contextmanager
def entered(context: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter what `open_engine` returns; see `run_sync`."""
    value = run_sync(context.__aenter__())
    try:
        yield value
    except BaseException as error:
        if not run_sync(context.__aexit__(type(error), error, error.__traceback__)):
            raise
    else:
        run_sync(context.__aexit__(None, None, None))


def iterate(events: AsyncGenerator[T]) -> Iterator[T]:
    """Yield what an engine's stream yields."""
    try:
        while True:
            try:
                event = run_sync(events.asend(None))
            except StopAsyncIteration:
                return
            yield event
    finally:
        run_sync(events.aclose())


class _Waiting:
    """How long a request waits for a server that has no room for it."""

    def __init__(self) -> None:
        self._end_s, self._back_s = 0.0, _LEAST_BACK_S

    def end_of(self, busy: Busy) -> float | None:
        """Return when to ask again; None where that has been tried for long enough."""
        now_s = time.monotonic()
        if busy.again_s is None:
            return now_s + _AGAIN_S
        self._end_s = self._end_s or now_s + _MOST_BUSY_S
        if now_s >= self._end_s:
            return None
        wait_s, self._back_s = busy.again_s or self._back_s, min(2 * self._back_s, _MOST_BACK_S)
        return min(now_s + wait_s, self._end_s)


class _Left(BaseException):
    """A request is not waited for any more."""


class ParallelRequests:
    """Answers several requests at a time by one engine; see `RequestDriver`. One that a server has no room for waits.

    Args:
        engine: answers.
        notify: prints that a server is busy, once.
    """

    def __init__(self, engine: Engine, notify: Callable[[str], None] = lambda _text: None) -> None:
        self._engine = engine
        self._notify: Callable[[str], None] | None = notify

    def outcomes(
        self, requests: Iterator[Request], ready: Callable[[], bool] = at_once
    ) -> Iterator[RequestOutcome]:
        """Answer requests; see `RequestDriver`.

        Raises:
            EngineGone: the engine died, or the server is gone.
        """
        replies: list[Coroutine[Any, Any, RequestOutcome | None]] = []
        taking = True
        try:
            while replies or (taking and not self._engine.stopped):
                while taking and not self._engine.stopped and len(replies) < self._engine.parallel:
                    if replies and not ready():
                        break
                    request = next(requests, None)
                    taking = request is not None
                    replies += [] if request is None else [self._reply(request)]
                for reply in tuple(replies):
                    try:
                        reply.send(None)
                    except StopIteration as end:
                        replies.remove(reply)
                        if end.value is not None:
                            taking = taking and not end.value.is_cancelled
                            yield end.value
                    except BaseException:
                        replies.remove(reply)
                        raise
                if replies and self._engine.idle:  # none runs, so nothing would be received
                    time.sleep(_AGAIN_S)
        finally:
            for reply in replies:
                # Closing it would not reach a generator that it waits for, before Python 3.13.
                with suppress(_Left):
                    reply.throw(_Left)

    async def _reply(self, request: Request) -> RequestOutcome | None:
        """Return the outcome of a request; one that a server has no room for is sent again later.

        None where it is stopped before there was room.
        """
        waiting = _Waiting()
        while True:
            try:
                async with aclosing(self._engine.notices(request)) as notices:
                    async for notice in notices:
                        if isinstance(notice, Finished):
                            return RequestOutcome(request.id, notice.reply, reason=notice.reason)
            except Busy as busy:
                again_s = waiting.end_of(busy)
                if again_s is None:
                    return RequestOutcome(request.id, None, busy)
                self._report_busy(busy)
                while not self._engine.stopped and time.monotonic() < again_s:
                    await pause()
                if self._engine.stopped:
                    return None
            except (EngineGone, EngineFault, ModelChanged):  # due to no request
                raise
            except LocalspecError as error:
                return RequestOutcome(request.id, None, error)

    def _report_busy(self, busy: Busy) -> None:
        if self._notify is not None and busy.again_s is not None:
            self._notify(f"{busy}; each line asks again for {_MOST_BUSY_S / 60:.0f} minutes")
            self._notify = None
