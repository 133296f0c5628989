"""Engine: what answers requests, in this process, in a child, or in a server; the caller cannot tell.

Cheap to import: no event loop, and nothing that loads models.
"""

import types
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from localspec import errors
from localspec.calls import Tool
from localspec.chat.events import Event, Finished
from localspec.chat.request import Request
from localspec.engine.protocol import (
    Count,
    Counted,
    Detokenize,
    Embed,
    EngineDied,
    Failed,
    Notice,
    Question,
    Ready,
    ReplyEvents,
    Response,
    Tokenize,
    Tokens,
    Vectors,
)
from localspec.errors import Busy, ContextOverflow, EngineFault, EngineGone, LocalspecError
from localspec.messages import Message
from localspec.options import Abilities, ReplyOptions

if TYPE_CHECKING:
    from asyncio import Future

    from localspec.plan.load_plan import LoadPlan

T = TypeVar("T")
_FAULTS = {"Fault", "FrameError"}


class Inbox(deque[Notice]):
    """Notices about one question, in their order."""

    waiter: "Future[None] | None" = None

    def put(self, notice: Notice) -> None:
        """Add a notice, and wake the coroutine that waits for it."""
        self.append(notice)
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Respondent(ABC):
    """What answers questions, one notice or several each."""

    @abstractmethod
    def notices(
        self, question: Question, began: Callable[[int], None] = lambda _number: None
    ) -> AsyncGenerator[Response]:
        """Yield the notices that answer a question, as they come."""

    async def count(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        options: ReplyOptions | None = None,
        owner: str = "",
    ) -> int:
        """Return how many tokens a conversation of an owner takes, with the functions that its model may call, where the reply is made so."""
        asked = Count(0, tuple(messages), tuple(tools), options or ReplyOptions(), owner)
        return (await self._one(asked, Counted)).tokens

    async def tokens(self, question: Tokenize | Detokenize) -> Tokens:
        """Return the ids of a text, or the texts of ids."""
        return await self._one(question, Tokens)

    async def vectors(self, question: Embed) -> Vectors:
        """Return rows of texts."""
        return await self._one(question, Vectors)

    async def _one(self, question: Question, kind: type[T]) -> T:
        async with aclosing(self.notices(question)) as notices:
            async for notice in notices:
                if isinstance(notice, kind):
                    return notice
        raise EngineFault(f"the engine answered {type(question).__name__} with something else")


class Engine(Respondent):
    """Answers questions, several at a time.

    Args:
        ready: what is loaded; None where nothing is yet.
        parallel: how many requests are answered at once.
        is_shared: it is a server's.

    Attributes:
        can: what it can do.
        plan: what it loads; None where that is another process's to know.
        no_drafting: of the last `Finished` of `stream`, as is `reason`.
        stopped: whether `stop` was called.
    """

    def __init__(
        self, ready: Ready | None = None, parallel: int = 1, *, is_shared: bool = False
    ) -> None:
        self._ready = ready
        self.parallel = parallel
        self.is_shared = is_shared
        self._inboxes: dict[int, Inbox] = {}
        self._ids = count(1)
        self.stopped = False
        self.no_drafting = self.reason = ""
        self.can = Abilities()
        self.plan: LoadPlan | None = None

    async def loaded(self) -> Ready:
        """Return what is loaded, once it is; loads what the engine was opened for, where that has not begun.

        Raises:
            Interrupted: it was stopped.
            EngineGone: the engine died of it, or there is nothing to load.
            LocalspecError: it cannot be loaded.
        """
        return self.ready

    @property
    def ready(self) -> Ready:
        """What is loaded.

        Raises:
            EngineGone: nothing is.
        """
        if self._ready is None:
            raise EngineGone("no model is loaded")
        return self._ready

    @property
    def idle(self) -> bool:
        """Whether nothing is being answered."""
        return not self._inboxes

    async def stream(
        self, request: Request, began: Callable[[int], None] = lambda _number: None
    ) -> AsyncGenerator[Event]:
        """Answer, yielding events as they happen and `Finished` at the end; closed before, the answer ends.

        Args:
            request: of whatever id.
            began: called with the number that `cancel` takes.

        Raises:
            EngineGone: the engine died, or the server is gone.
            LocalspecError: it cannot be answered, as `Assistant.stream` says.
        """
        async with aclosing(self.notices(request, began)) as notices:
            async for notice in notices:
                if isinstance(notice, ReplyEvents):
                    for each in notice.events:
                        yield each
                elif isinstance(notice, Finished):
                    self.no_drafting, self.reason = notice.no_drafting, notice.reason
                    yield notice

    async def notices(
        self, question: Question, began: Callable[[int], None] = lambda _number: None
    ) -> AsyncGenerator[Response]:
        """Yield the notices that answer a question, as they come; see `stream`."""
        number, inbox = self._begin(question)
        began(number)
        try:
            while number in self._inboxes:
                notice = await self._next(inbox)
                if not isinstance(notice, ReplyEvents):
                    del self._inboxes[number]
                if isinstance(notice, Failed | EngineDied):
                    raise trouble_of(notice)
                if isinstance(notice, Response):
                    yield notice
        finally:
            if self._inboxes.pop(number, None) is not None:
                self.cancel(number)

    def stop(self) -> None:
        """End all answers with what there is of them, and take no more; any thread may call it."""
        self.stopped = True
        for number in list(self._inboxes):
            self.cancel(number)

    def require_template(self) -> None:
        """Raise TemplateError where it is known that no conversation can be rendered."""

    @abstractmethod
    def cancel(self, number: int) -> None:
        """End an answer with what there is of it; any thread may call it."""

    @abstractmethod
    def close(self) -> None:
        """Leave it; what was asked ends."""

    @abstractmethod
    def _submit(self, question: Question) -> None:
        """Send a question."""

    @abstractmethod
    def _receive(self) -> None:
        """Wait until something happens, and `_deliver` it."""

    def _begin(self, question: Question) -> tuple[int, Inbox]:
        number = next(self._ids)
        inbox = self._inboxes[number] = Inbox()
        self._submit(msgspec.structs.replace(question, id=number))
        if self.stopped:  # meanwhile, when it was not among those to cancel
            self.cancel(number)
        return number, inbox

    async def _next(self, inbox: Inbox) -> Notice:
        while not inbox:
            self._receive()
            await pause()
        return inbox.popleft()

    def _deliver(self, notice: Notice) -> None:
        """Give a notice to the question that it is about; the end of the engine, or a frame that it cannot read, concerns all."""
        number = getattr(notice, "id", None)
        if isinstance(notice, EngineDied) or (isinstance(notice, Failed) and number is None):
            for inbox in self._inboxes.values():
                inbox.put(notice)
        elif number in self._inboxes:
            self._inboxes[number].put(notice)


OnProgress = Callable[[Notice], None]
"""Gets how far a download, loading or measuring is."""


class Signals(Protocol):
    """How the user ends the work."""

    def planning(self) -> AbstractContextManager[object]:
        """Let it end by an exception while this lasts."""

    def running(self, stop: Callable[[], None]) -> AbstractContextManager[object]:
        """Let it call `stop`, from another thread, while this lasts."""


class NoSignals:
    """No user who could end it."""

    def planning(self) -> AbstractContextManager[object]:
        """Do nothing."""
        return nullcontext()

    def running(self, stop: Callable[[], None]) -> AbstractContextManager[object]:  # noqa: ARG002 - the protocol's signature
        """Do nothing."""
        return nullcontext()


@dataclass(frozen=True, slots=True, eq=False)
class Needs:
    """What a caller needs of an engine beside answers.

    Args:
        plan: `Engine.plan`, also where another process loads.
        prompt: what is asked first: where no size of the context was asked for, it and its answer fit.
    """

    plan: bool = False
    prompt: Request | None = None


def trouble_of(notice: Failed | EngineDied) -> LocalspecError:
    """Return the error that a notice tells, of its own class, with the exit code of that."""
    if isinstance(notice, EngineDied):
        return EngineGone(notice.reason)
    kind = "EngineFault" if notice.kind in _FAULTS else notice.kind
    error: LocalspecError = getattr(errors, kind, LocalspecError)(notice.reason)
    if isinstance(error, Busy) and isinstance(notice, Failed):
        error.again_s = notice.again_s
    if isinstance(error, ContextOverflow) and isinstance(notice, Failed):
        error.sizes = notice.sizes
    return error


@types.coroutine
def pause() -> Generator[None]:
    """Let others go on that run beside this."""
    yield
