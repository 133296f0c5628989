"""Engine: the one way to an answer. Its models are in this process, in a child, or in a server of the user; the caller cannot tell.

Cheap to import: a program that asks a server loads nothing, and no event loop. Where one runs, `RemoteEngine.follow` makes
it one of the loop's; elsewhere waiting for an answer is waiting at the pipe.
"""

import sys
import time
import types
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    aclosing,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from localspec import errors
from localspec.calls import Tool
from localspec.chat.events import Event, Finished
from localspec.chat.request import Answered, Request, at_once
from localspec.engine.link import ChildLink, Link, ServerLink
from localspec.engine.protocol import (
    NOTICES,
    Cancel,
    Command,
    Count,
    Counted,
    Detokenize,
    Embed,
    EngineDied,
    Failed,
    FrameError,
    Held,
    Load,
    LoadCancelled,
    Notice,
    Question,
    Ready,
    ReplyEvents,
    RestoreState,
    SaveState,
    Tokenize,
    Tokens,
    Vectors,
    encode,
)
from localspec.errors import ContextOverflow, LocalspecError, ModelChanged
from localspec.messages import Message
from localspec.options import LaunchOptions, ReplyOptions

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

T = TypeVar("T")
Answer = ReplyEvents | Finished | Counted | Tokens | Vectors
"""What answers a question, unless something is wrong with it."""
_AGAIN_S = 0.1
"""After so long a server of this program that had no room for any request is asked again."""
_LEAST_BACK_S, _MOST_BACK_S, _MOST_BUSY_S = 0.5, 30.0, 300.0
"""Another server is asked again after twice as long each time, unless it says when, and so long in all."""


_NOT_RUNNING = "the engine is not running: restart it"


class EngineGone(LocalspecError):
    """The engine died, or the server is gone."""


class EngineFault(LocalspecError):
    """A fault in the engine, due to no request."""


class Busy(LocalspecError):
    """As many requests wait as may wait.

    Attributes:
        again_s: seconds after which another program's server may be asked again, 0 where it does not say; None of this program's.
    """

    again_s: float | None = None


class Interrupted(LocalspecError):
    """Loading was stopped."""


_KINDS: dict[str, type[LocalspecError]] = {
    each.__name__: each for each in (EngineGone, EngineFault, Busy)
}
_FAULTS = {"Fault", "FrameError"}


class Inbox(deque[Notice]):
    """Notices about one question, in their order."""

    waiter: "Future[None] | None" = None

    def put(self, notice: Notice) -> None:
        """Add a notice, and wake the coroutine that waits for it."""
        self.append(notice)
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


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


class Respondent(ABC):
    """What answers questions, one notice or several each."""

    @abstractmethod
    def answers(
        self, question: Question, began: Callable[[int], None] = lambda _number: None
    ) -> AsyncGenerator[Answer]:
        """Yield the notices that answer a question, as they come."""

    async def count(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        options: ReplyOptions | None = None,
    ) -> int:
        """Return how many tokens a conversation takes, with the functions that its model may call, where the reply is made so."""
        asked = Count(0, tuple(messages), tuple(tools), options or ReplyOptions())
        return (await self._one(asked, Counted)).tokens

    async def tokens(self, question: Tokenize | Detokenize) -> Tokens:
        """Return the ids of a text, or the texts of ids."""
        return await self._one(question, Tokens)

    async def vectors(self, question: Embed) -> Vectors:
        """Return rows of texts."""
        return await self._one(question, Vectors)

    async def _one(self, question: Question, kind: type[T]) -> T:
        async with aclosing(self.answers(question)) as notices:
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
        no_drafting: of the last `Finished` of `stream`.
        notify: prints that a server is busy, once.
    """

    def __init__(
        self, ready: Ready | None = None, parallel: int = 1, *, is_shared: bool = False
    ) -> None:
        self._ready = ready
        self.parallel = parallel
        self.is_shared = is_shared
        self._inboxes: dict[int, Inbox] = {}
        self._ids = count(1)
        self._stopped = False
        self.no_drafting = ""
        self.notify: Callable[[str], None] | None = None

    @property
    def ready(self) -> Ready:
        """What is loaded.

        Raises:
            EngineGone: nothing is.
        """
        if self._ready is None:
            raise EngineGone("no model is loaded")
        return self._ready

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
        async with aclosing(self.answers(request, began)) as notices:
            async for notice in notices:
                if isinstance(notice, ReplyEvents):
                    for each in notice.events:
                        yield each
                elif isinstance(notice, Finished):
                    self.no_drafting = notice.no_drafting
                    yield notice

    async def answers(
        self, question: Question, began: Callable[[int], None] = lambda _number: None
    ) -> AsyncGenerator[Answer]:
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
                if isinstance(notice, Answer):
                    yield notice
        finally:
            if self._inboxes.pop(number, None) is not None:
                self.cancel(number)

    def answer(
        self, requests: Iterator[Request], ready: Callable[[], bool] = at_once
    ) -> Iterator[Answered]:
        """Answer several requests at a time, see `Answerer`; one that a server has no room for waits. Not for event loops.

        Raises:
            EngineGone: the engine died, or the server is gone.
        """
        replies: list[Coroutine[Any, Any, Answered | None]] = []
        taking = True
        try:
            while replies or (taking and not self._stopped):
                while taking and not self._stopped and len(replies) < self.parallel:
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
                if replies and not self._inboxes:  # none runs, so nothing would be received
                    time.sleep(_AGAIN_S)
        finally:
            for reply in replies:
                reply.close()

    async def _reply(self, request: Request) -> Answered | None:
        """Return the outcome of a request; one that a server has no room for is sent again later.

        None where it is stopped before there was room.
        """
        waiting = _Waiting()
        while True:
            try:
                async with aclosing(self.stream(request)) as events:
                    async for event in events:
                        if isinstance(event, Finished):
                            return Answered(request.id, event.reply)
            except Busy as busy:
                again_s = waiting.end_of(busy)
                if again_s is None:
                    return Answered(request.id, None, busy)
                self._report_busy(busy)
                while not self._stopped and time.monotonic() < again_s:
                    await pause()
                if self._stopped:
                    return None
            except (EngineGone, EngineFault, ModelChanged):  # due to no request
                raise
            except LocalspecError as error:
                return Answered(request.id, None, error)

    def _report_busy(self, busy: Busy) -> None:
        if self.notify is not None and busy.again_s is not None:
            self.notify(f"{busy}; each line asks again for {_MOST_BUSY_S / 60:.0f} minutes")
            self.notify = None

    def stop(self) -> None:
        """End all answers with what there is of them, and take no more; any thread may call it."""
        self._stopped = True
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
        if self._stopped:  # meanwhile, when it was not among those to cancel
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


COMMAND = (sys.executable, "-P", "-m", "localspec.launch.child")
"""A string and no import: the child's main wires everything together, and lies above this floor."""
_MOST_DEATHS, _WITHIN_S = 5, 60.0
"""An engine that dies so often, and never gets ready in between, stays down."""


class RemoteEngine(Engine):
    """An engine in another process: a child, or a server that has in memory what is to be loaded.

    Args:
        command: starts a child.
        find: returns the engine of a server that has in memory what is to be loaded; None without one. With it, a child
            is started only when it is needed.
        settings: how to load, whatever it is.
        watch: gets every notice, for progress and figures.
        revives: whether a child that dies is started again, with what was loaded.
        parallel: as for `Engine`.
        is_shared: as for `Engine`.

    Attributes:
        last_ready: what was loaded last, whether it still is or not; None where nothing ever was.
    """

    def __init__(
        self,
        command: Sequence[str] = COMMAND,
        find: Callable[[LaunchOptions], ServerLink | None] | None = None,
        settings: Load | None = None,
        watch: Callable[[Notice], None] = lambda _notice: None,
        *,
        revives: bool = False,
        parallel: int = 1,
        is_shared: bool = False,
    ) -> None:
        super().__init__(None, parallel, is_shared=is_shared)
        self._command = tuple(command)
        self._find = find
        self._settings = settings or Load()
        self.watch = watch
        self._revives = revives
        self._link: Link | None = None
        self._loop: AbstractEventLoop | None = None
        self._followed: set[int] = set()
        self._requested: LaunchOptions | None = None
        self._last_loaded: LaunchOptions | None = None
        self.last_ready: Ready | None = None
        self._outcome: Ready | LocalspecError | None = EngineGone("no model is loaded")
        self._loads: list[Inbox] = []
        self._deaths: deque[float] = deque(maxlen=_MOST_DEATHS)

    @classmethod
    def of_server(cls, link: ServerLink, parallel: int = 1) -> "RemoteEngine":
        """Return the engine of a server."""
        engine = cls(parallel=parallel, is_shared=True)
        engine.attach(link)
        return engine

    # Its life.

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._link is not None and self._link.alive

    @property
    def pid(self) -> int | None:
        """The process, for people who look for it."""
        return None if self._link is None else self._link.pid

    @property
    def has_loaded(self) -> bool:
        """Whether something is loaded."""
        return self._ready is not None

    @property
    def lost(self) -> str:
        """Why nothing is loaded; empty while something is, or is being loaded."""
        lost = self._ready is None and isinstance(self._outcome, LocalspecError)
        return str(self._outcome) if lost else ""

    def follow(self, loop: "AbstractEventLoop") -> None:
        """Be one of a running event loop's from now on, whose coroutines may then use this side by side."""
        self._loop = loop

    def start(self) -> None:
        """Start the child, unless servers are looked for first; `Hello` comes when it is there. Trouble becomes `EngineDied`."""
        if self._find is None:
            self._start()

    def _start(self) -> None:
        try:
            self._attach(ChildLink(self._command))
        except OSError as error:
            reason = f"the engine cannot be started: {error.strerror or error}"
            self._deliver(EngineDied(reason))

    def attach(self, link: ServerLink) -> None:
        """Ask the engine of a server from now on, in place of what was asked before."""
        self.close()
        self._attach(link)
        self._deliver(link.ready)

    def _attach(self, link: Link) -> None:
        self._link = link
        self._watch_link()

    def load(self, options: LaunchOptions, others: Held | None = None) -> None:
        """Load a pair, in place of another if one is loaded: `Ready`, `LoadCancelled` or `Failed`; `loaded` waits for it.

        Args:
            options: what.
            others: what other engines hold that could be let go, see `Load`.
        """
        self._deaths.clear()  # of what was loaded before: dying of this one, it is not revived
        self._requested, self._outcome, self._ready = options, None, None
        server = None if self._find is None else self._find(options)
        if server is not None:
            self.attach(server)
            return
        if not isinstance(self._link, ChildLink) or not self._link.alive:
            self.close(0)
            self._outcome = None
            self._start()
        self._send(msgspec.structs.replace(self._settings, options=options, others=others))

    async def loaded(self) -> Ready:
        """Return what is loaded, as soon as the last load has ended.

        Raises:
            Interrupted: it was stopped.
            EngineGone: the engine died of it.
            LocalspecError: it cannot be loaded.
        """
        news = Inbox()
        self._loads.append(news)
        try:
            while self._outcome is None:
                await self._next(news)
        finally:
            self._loads.remove(news)
        if isinstance(self._outcome, LocalspecError):
            raise self._outcome
        return self._outcome

    def restart(self) -> None:
        """Start a new process in place of one that died or hangs, and load what was loaded last.

        Where nothing ever was, what was requested last; a pair that it died of is not loaded again.
        """
        self.close(0)
        self.start()
        options = self._last_loaded or self._requested
        if options is not None:
            self.load(options)

    def close(self, wait_s: float = 3.0) -> None:
        """End the process, by force if it takes longer than `wait_s`; closing twice is harmless."""
        link = self._leave()
        if link is not None:
            link.end(wait_s)

    async def end(self, wait_s: float, reason: str = "no model is loaded") -> None:
        """Do as `close`, beside other coroutines of the loop; what waits gets the reason at once."""
        link = self._leave()
        self._outcome = EngineGone(reason)
        for inbox in (*self._loads, *self._inboxes.values()):
            inbox.put(EngineDied(reason))
        if link is not None and self._loop is not None:
            await self._loop.run_in_executor(None, link.end, wait_s)

    def _leave(self) -> Link | None:
        """Return the link, which is no longer used; an end that was asked for is no death."""
        link, self._link, self._ready = self._link, None, None
        self._unwatch_link(link)
        self._deaths.clear()
        self._outcome = EngineGone("no model is loaded")
        return link

    # What is sent.

    def cancel(self, number: int | None = None) -> None:
        """End an answer with what there is of it; None stops a load. Any thread may call it."""
        self._send(Cancel(number))

    def save_state(self, directory: str) -> None:
        """Have what was evaluated written into a directory: `StateSaved`, or `StateLeft`."""
        self._send(SaveState(directory))

    def restore_state(self, directory: str) -> None:
        """Have it put back, where it fits: `StateRestored`, or `StateLeft`."""
        self._send(RestoreState(directory))

    def _submit(self, question: Question) -> None:
        self._send(question)

    def _send(self, command: Command) -> None:
        number = command.id if isinstance(command, Question) else None
        if self._link is None or self._link.ended:
            if number in self._inboxes:
                again = "the engine died and is being started again: try later"
                reason = self.lost or (again if self._revives else _NOT_RUNNING)
                self._inboxes[number].put(EngineDied(reason))
            return
        try:
            self._link.send(encode(command))
        except FrameError as error:
            kind = type(error) if number is None else errors.UsageError  # of one question alone
            self._deliver(Failed(number, kind.__name__, str(error)))
        if self._loop is not None and self._link.blocked:
            self._loop.add_writer(self._link.sink, self._go_on_sending)

    def _go_on_sending(self) -> None:
        if self._link is not None and self._loop is not None:
            self._link.send()
            if not self._link.blocked:
                self._loop.remove_writer(self._link.sink)

    # What comes.

    async def _next(self, inbox: Inbox) -> Notice:
        if self._loop is None:
            return await super()._next(inbox)
        while not inbox:
            inbox.waiter = self._loop.create_future()
            await inbox.waiter
        return inbox.popleft()

    def _receive(self) -> None:
        if not self.receive(None):
            super()._deliver(EngineDied(self.lost or _NOT_RUNNING))

    def receive(self, timeout_s: float | None = 0.0) -> bool:
        """Take what has come, or comes within a time, for callers without a loop; return whether anything can come."""
        link = self._link
        if link is None or link.ended:
            return False
        if link.wait(timeout_s):
            self._take(link, lambda take, *notice: take(*notice))
        return True

    def _watch_link(self) -> None:
        """Have the loop follow the link's descriptors, as many as are open."""
        if self._loop is None or self._link is None:
            return
        for each in self._followed - {*self._link.sources}:
            self._loop.remove_reader(each)
        for each in {*self._link.sources} - self._followed:
            self._loop.add_reader(each, self._take, self._link, self._loop.call_soon)
        self._followed = {*self._link.sources}

    def _unwatch_link(self, link: Link | None) -> None:
        if self._loop is not None and link is not None:
            for each in self._followed:
                self._loop.remove_reader(each)
            self._loop.remove_writer(link.sink)
            self._followed = set()

    def _take(self, link: Link, call: Callable[..., object]) -> None:
        """Take what a link has; `call` delivers a notice, so that a fault of one disturbs no other."""
        if link.ended:
            return
        try:
            notices = [NOTICES.decode(line) for line in link.read()]
        except FrameError as error:  # what follows cannot be trusted
            call(self._lose, link, f"the engine sent an invalid message: {error}")
            return
        except Exception as error:  # memory, mostly; else everything would wait for ever
            reason = " ".join(f"{type(error).__name__} {error}".split())[:200]
            call(self._lose, link, f"lost contact with the engine ({reason})")
            return
        for notice in notices:
            call(self._accept, link, notice)
        if link.ended:
            self._unwatch_link(link)
            call(self._lose, link)
        elif self._loop is not None:
            self._watch_link()

    def _accept(self, link: Link, notice: Notice) -> None:
        """Deliver what a link said, unless it was left meanwhile."""
        if link is self._link:
            self._deliver(notice)

    def _lose(self, link: Link, reason: str = "") -> None:
        """Leave a link that has ended, or is of no use any more for a reason."""
        if link is self._link:  # else it was left meanwhile
            self._unwatch_link(link)
            link.ended, reason = True, reason or link.cause()
            link.end(0)
            self._die(reason)

    def _die(self, reason: str) -> None:
        """Tell of the engine's death, and start it again where that is wanted."""
        now, first = time.monotonic(), self._ready is None and not self._deaths
        deaths = deque([*self._deaths, now], _MOST_DEATHS)
        often = len(deaths) == _MOST_DEATHS and now - deaths[0] < _WITHIN_S
        self._deliver(EngineDied(reason))
        if self._revives and not (first or often):
            self.restart()
        self._deaths = deaths

    def _deliver(self, notice: Notice) -> None:
        match notice:
            case Ready():
                self._ready = self.last_ready = self._outcome = notice
                self._last_loaded = self._requested
                self._deaths.clear()
            case LoadCancelled(target=target):
                self._outcome = Interrupted("loading was stopped")
                self._ready = self.last_ready if target else None
            case Failed(id=None) if self._outcome is None:
                self._outcome = trouble_of(notice)
                super()._deliver(EngineDied(notice.reason))  # to what waits for the models
            case EngineDied():
                self._ready, self._outcome = None, EngineGone(notice.reason)
        for each in self._loads:
            each.put(notice)
        super()._deliver(notice)
        self.watch(notice)


OnProgress = Callable[[Notice], None]
"""Gets how far a download, loading or measuring is."""


class Signals(Protocol):
    """How the user ends the work."""

    def planning(self) -> AbstractContextManager[object]:
        """Let it end by an exception while this lasts."""
        ...

    def running(self, stop: Callable[[], None]) -> AbstractContextManager[object]:
        """Let it call `stop`, from another thread, while this lasts."""
        ...


class NoSignals:
    """No user who could end it."""

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
    if isinstance(notice, EngineDied):
        return EngineGone(notice.reason)
    kind = "EngineFault" if notice.kind in _FAULTS else notice.kind
    error: LocalspecError = getattr(errors, kind, _KINDS.get(kind, LocalspecError))(notice.reason)
    if isinstance(error, Busy) and isinstance(notice, Failed):
        error.again_s = notice.again_s
    if isinstance(error, ContextOverflow) and isinstance(notice, Failed):
        error.sizes = notice.sizes
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
