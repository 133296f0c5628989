"""Engine: the one way to an answer. Its models are in this process, in a child, or in a server of the user; the caller cannot tell.

Cheap to import: a program that asks a server loads nothing.
"""

import time
import types
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from localspec import errors
from localspec.chat.events import Event, Finished
from localspec.chat.request import Answered, Request, at_once
from localspec.engine.client import EngineClient
from localspec.engine.protocol import (
    EngineDied,
    Failed,
    Notice,
    Ready,
    ReplyDone,
    ReplyEvents,
)
from localspec.engine.shared import SharedEngine
from localspec.errors import LocalspecError

T = TypeVar("T")
_AGAIN_S = 0.1
"""After so long a server that had no room for any request is asked again."""
_ENDS_ALL = {"EngineLost", "Fault", "FrameError"}
"""What is not due to a request alone."""


class EngineGone(LocalspecError):
    """The engine died, or the server is gone."""


class Interrupted(LocalspecError):
    """Loading was stopped."""


class Engine(ABC):
    """Answers requests, one or several at a time.

    Args:
        ready: what is loaded.
        count: how many requests are answered at once.
        is_shared: it is a server's.

    Attributes:
        no_drafting: why nothing was drafted in the last reply of `stream`, in about five words; empty where something was.
    """

    def __init__(self, ready: Ready, count: int = 1, *, is_shared: bool = False) -> None:
        self.ready = ready
        self.count = count
        self.is_shared = is_shared
        self.no_drafting = ""
        self._inboxes: dict[int, deque[Notice]] = {}
        self._stopped = False

    @abstractmethod
    def _submit(self, request: Request) -> int:
        """Have a request answered, whatever id it has; return the one that its notices bear."""

    @abstractmethod
    def _receive(self) -> Notice:
        """Return what happened next, as soon as something did."""

    @abstractmethod
    def cancel(self, number: int) -> None:
        """End an answer with what there is of it; any thread may ask for it."""

    @abstractmethod
    def close(self) -> None:
        """Leave it; what was asked ends."""

    def stop(self) -> None:
        """End all answers with what there is of them, and take no more; any thread may ask for it."""
        self._stopped = True
        for number in list(self._inboxes):
            self.cancel(number)

    def require_template(self) -> None:  # noqa: B027 - most know nothing of it
        """Raise TemplateError where it is known that no conversation can be rendered."""

    async def stream(self, request: Request) -> AsyncGenerator[Event]:
        """Answer, yielding events as they happen and `Finished` at the end; closed before, the answer ends.

        Raises:
            EngineGone: the engine died, or the server is gone.
            LocalspecError: it cannot be answered, as `Assistant.stream` says.
        """
        number, inbox = self._begin(request)
        try:
            while True:
                while not inbox:
                    self._deliver()
                    await pause()
                match inbox.popleft():
                    case ReplyEvents(events=events):
                        for each in events:
                            yield each
                    case ReplyDone() as done:
                        self.no_drafting = done.no_drafting
                        self._inboxes.pop(number)
                        yield Finished(done.reply, done.message)
                        return
                    case Failed() | EngineDied() as trouble:
                        self._inboxes.pop(number)
                        raise trouble_of(trouble)
        finally:
            if self._inboxes.pop(number, None) is not None:
                self.cancel(number)

    def answer(
        self, requests: Iterator[Request], ready: Callable[[], bool] = at_once
    ) -> Iterator[Answered]:
        """Answer several requests at a time, see `Answerer`; one that a server has no room for waits.

        Raises:
            EngineGone: the engine died, or the server is gone.
        """
        under_way: dict[int, Request] = {}
        waiting: deque[Request] = deque()  # a server had no room for them
        again_s = 0.0
        taking = True
        try:
            while taking or under_way or waiting:
                if self._stopped:
                    taking = False
                    waiting.clear()
                if waiting:
                    self._ask_again(waiting, under_way, again_s)
                elif taking:
                    taking = self._take(requests, ready, under_way)
                if under_way:
                    self._deliver()
                for outcome in self._outcomes(under_way):
                    if isinstance(outcome, Request):
                        waiting.append(outcome)
                        again_s = time.monotonic() + _AGAIN_S
                        continue
                    taking = taking and not outcome.is_cancelled
                    yield outcome
        finally:
            for number in under_way:
                if self._inboxes.pop(number, None) is not None:
                    self.cancel(number)

    def _ask_again(
        self, waiting: deque[Request], under_way: dict[int, Request], again_s: float
    ) -> None:
        """Begin a request that a server had no room for, once it is time; wait for that only where nothing goes on."""
        if not under_way:
            time.sleep(max(0.0, again_s - time.monotonic()))
        if not under_way or time.monotonic() >= again_s:
            request = waiting.popleft()
            under_way[self._begin(request)[0]] = request

    def _take(
        self,
        requests: Iterator[Request],
        ready: Callable[[], bool],
        under_way: dict[int, Request],
    ) -> bool:
        """Begin as much as may be answered at once; return whether there may be more."""
        while len(under_way) < self.count and (not under_way or ready()):
            request = next(requests, None)
            if request is None:
                return False
            under_way[self._begin(request)[0]] = request
        return True

    def _outcomes(self, under_way: dict[int, Request]) -> Iterator[Answered | Request]:
        """Yield what came of requests that are under way no more, see `_outcome`."""
        for number, request in list(under_way.items()):
            outcome = self._outcome(number, request)
            if outcome is not None:
                del under_way[number], self._inboxes[number]
                yield outcome

    def _outcome(self, number: int, request: Request) -> Answered | Request | None:
        """Return what came of a request; the request itself where there was no room for it, None while it goes on."""
        while inbox := self._inboxes[number]:
            match inbox.popleft():
                case ReplyDone(reply=reply):
                    return Answered(request.id, reply)
                case Failed(kind="Busy"):
                    return request
                case Failed(kind=kind) as failed if kind not in _ENDS_ALL:
                    return Answered(request.id, None, trouble_of(failed))
                case Failed() | EngineDied() as trouble:
                    raise trouble_of(trouble)
        return None

    def _begin(self, request: Request) -> tuple[int, deque[Notice]]:
        number = self._submit(request)
        inbox = self._inboxes.setdefault(number, deque())
        if self._stopped:  # meanwhile, when it was not among those to cancel
            self.cancel(number)
        return number, inbox

    def _deliver(self) -> None:
        """Wait for what happens next, and give it to whom it concerns; the end of the engine, or a frame that it cannot read, concerns all."""
        notice = self._receive()
        number = getattr(notice, "id", None)
        if isinstance(notice, EngineDied) or (isinstance(notice, Failed) and number is None):
            for inbox in self._inboxes.values():
                inbox.append(notice)
        elif number in self._inboxes:
            self._inboxes[number].append(notice)


class RemoteEngine(Engine):
    """An engine in another process.

    Args:
        client: has it loaded.
        ready: as for `Engine`.
        count: likewise.
        is_shared: likewise.
    """

    def __init__(
        self, client: EngineClient, ready: Ready, count: int = 1, *, is_shared: bool = False
    ) -> None:
        super().__init__(ready, count, is_shared=is_shared)
        self._client = client

    @classmethod
    def of_server(cls, shared: SharedEngine, count: int = 1) -> "RemoteEngine":
        """Return the engine of a server."""
        client = EngineClient()
        client.attach(shared)
        return cls(client, shared.ready, count, is_shared=True)

    def close(self) -> None:
        """Leave a server; end a child."""
        self._client.close()

    def cancel(self, number: int) -> None:
        """End an answer with what there is of it."""
        self._client.cancel(number)

    def _submit(self, request: Request) -> int:
        return self._client.question(request)

    def _receive(self) -> Notice:
        return self._client.next()


OnProgress = Callable[[Notice], None]
"""Is told how far a download, loading or measuring is."""


class Signals(Protocol):
    """How the user ends the work."""

    def planning(self) -> AbstractContextManager[object]:
        """Let it end by an exception while this lasts."""
        ...

    def running(self, stop: Callable[[], None]) -> AbstractContextManager[object]:
        """Let it call `stop`, from another thread, while this lasts."""
        ...


class NoSignals:
    """Nobody ends it."""

    def planning(self) -> AbstractContextManager[object]:
        """Do nothing."""
        return nullcontext()

    def running(self, stop: Callable[[], None]) -> AbstractContextManager[object]:  # noqa: ARG002 - the protocol's signature
        """Do nothing."""
        return nullcontext()


@dataclass(frozen=True, slots=True, eq=False)
class FirstRequest:
    """What is asked first, by which the context is sized where no size was given.

    Args:
        text: all that a model reads of it, without what a template and tools add.
        request: returns it; called where it is answered here.
    """

    text: str
    request: Callable[[], Request]


def trouble_of(notice: Failed | EngineDied) -> LocalspecError:
    """Return the error that a notice tells, of its own class, with the exit code of that."""
    if isinstance(notice, EngineDied) or notice.kind == "EngineLost":
        return EngineGone(notice.reason)
    return error_named(notice.kind, notice.reason)


def error_named(kind: str, reason: str) -> LocalspecError:
    """Return an error of a class by its name."""
    error: LocalspecError = getattr(errors, kind, LocalspecError)(reason)
    return error


@types.coroutine
def pause() -> Generator[None]:
    """Let others go on that run beside this."""
    yield


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that waits for nothing but an engine.

    As `asyncio.run`, which takes 30 ms to import, as long as a server's first token.
    """
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
