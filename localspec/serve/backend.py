"""Backend: the engine's process for many clients at once. Everything here runs on one event loop.

A request that its client gives up ends within a pass. When the engine dies, what was being answered ends with an
error, and a new process loads the same models.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress

import msgspec

from localspec.calls import Tool
from localspec.chat.events import StreamEvent, Told
from localspec.chat.request import Request
from localspec.engine.client import EngineClient
from localspec.engine.protocol import (
    Count,
    Counted,
    Detokenize,
    EngineDied,
    Failed,
    LoadCancelled,
    Notice,
    Question,
    Ready,
    ReplyDone,
    ReplyEvents,
    Tokenize,
    Tokens,
)
from localspec.errors import LocalspecError
from localspec.messages import Message
from localspec.options import LaunchOptions

Answer = ReplyEvents | ReplyDone | Counted | Tokens
"""What the engine says of a question that it can do."""
_MOST_DEATHS, _WITHIN_S = 5, 60.0
"""An engine that dies so often, and never gets ready in between, stays down."""
_AGAIN_S = 5.0
"""An engine whose worker was away tries to load again at a request, but no sooner."""
_LAST_WORDS_S = 20.0
"""How long the engine may take to write down what it has evaluated."""


class Busy(LocalspecError):
    """As many requests wait as may wait."""


class WaitedTooLong(LocalspecError):
    """No sequence was free in time.

    Args:
        within_s: that time.
    """

    def __init__(self, within_s: float | None) -> None:
        super().__init__(
            f"no answer could begin within {within_s:g} s, there are too many before it: try later"
        )


class EngineLost(LocalspecError):
    """The engine's process died, or is not there."""


class Refused(LocalspecError):
    """The engine cannot do what a request asks for.

    Args:
        kind: name of the error's class, see `localspec.errors`.
        reason: one line.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class Backend:
    """Answers requests with one pair of models.

    Args:
        client: the engine's other end; started here.
        launch: what to load.
        most: requests that may run or wait; one more is refused.
        watch: sees every notice, for progress and figures.
        on_ask: sees every question, with the number that its notices bear.
        max_wait_s: how long a request may wait until it begins; None lets it wait.

    Attributes:
        last_ready: what was loaded last, whether it still is or not; None where nothing ever was.
    """

    def __init__(
        self,
        client: EngineClient,
        launch: LaunchOptions,
        most: int,
        watch: Callable[[Notice], None] = lambda _notice: None,
        on_ask: Callable[[int, Question], None] = lambda _number, _asked: None,
        max_wait_s: float | None = None,
    ) -> None:
        self._client = client
        self._launch = launch
        self._most = most
        self._watch = watch
        self._on_ask = on_ask
        self._max_wait_s = max_wait_s
        self._loop = asyncio.get_running_loop()
        client.listen(self._receive)
        self._asked: dict[int, asyncio.Queue[Notice]] = {}
        self._deaths: deque[float] = deque(maxlen=_MOST_DEATHS)
        self._loaded: asyncio.Future[Ready] = self._loop.create_future()
        self.last_ready: Ready | None = None
        self._lost = ""
        self._again_s = 0.0
        self._closed = False
        self._resting = False

    @property
    def ready(self) -> Ready | None:
        """What is loaded; None while nothing is."""
        if not self._loaded.done() or self._loaded.exception() is not None:
            return None
        return self._loaded.result()

    @property
    def exact(self) -> bool:
        """Whether no bit depends on drafting, see `LaunchOptions`."""
        return self._launch.exact

    @property
    def lost(self) -> str:
        """Why the engine stays down; empty while it does not."""
        return self._lost

    @property
    def under_way(self) -> int:
        """Requests that run or wait."""
        return len(self._asked)

    async def start(self) -> Ready:
        """Start the engine and load.

        Raises:
            Refused: the models cannot be loaded.
            EngineLost: the engine died of it.
        """
        self._client.start()
        self._client.load(self._launch)
        return await asyncio.shield(self._loaded)

    async def wait(self) -> None:
        """Begin without a model, in place of `start`; `load` brings one."""
        await self.unload()

    async def load(self, launch: LaunchOptions) -> Ready:
        """Load other models in place of those that are loaded; to be called while nothing is under way.

        Raises:
            Refused: they cannot be loaded; then nothing is.
            EngineLost: the engine died of it.
        """
        with suppress(LocalspecError):  # what is loaded again after a death is told first
            await asyncio.shield(self._loaded)
        self._launch, self._lost, self._resting = launch, "", False
        self._deaths.clear()
        self._loaded = self._loop.create_future()
        if not self._client.alive:
            await asyncio.to_thread(self._client.close, 0)
            self._client.start()
        self._client.load(launch)
        try:
            return await asyncio.shield(self._loaded)
        except LocalspecError:
            self._lost = ""  # others may be had
            raise

    async def unload(self) -> None:
        """End the engine, which gives all its memory back; `load` starts it again."""
        self._resting = True
        await asyncio.to_thread(self._client.close, _LAST_WORDS_S)
        self._settle(EngineLost("no model is loaded"))
        self._lost = ""

    async def close(self) -> None:
        """End the engine; whoever still waits is told."""
        self._closed = True
        self._end_all("the server stops")
        await asyncio.to_thread(self._client.close, _LAST_WORDS_S)

    async def notices(
        self, asked: Question, began: Callable[[int], None] = lambda _number: None
    ) -> AsyncGenerator[Answer]:
        """Yield all that the engine says of a question; `began` is told its number. Closing the iterator ends the request.

        Raises:
            Busy: too many requests are under way.
            WaitedTooLong: it did not begin in time.
            Refused: it cannot be answered.
            EngineLost: the engine died meanwhile.
        """
        within_s = None
        if isinstance(asked, Request):
            asked = msgspec.structs.replace(asked, deterministic=self.exact)
            within_s = self._max_wait_s
        number = self._ask(asked)
        began(number)
        try:
            while number in self._asked:
                notice = await self._next(number, within_s)
                within_s = None  # the first says that it begins
                if not isinstance(notice, ReplyEvents):
                    self._forget(number)
                yield notice
        finally:
            if self._forget(number):
                self._client.cancel(number)

    def cancel(self, number: int) -> None:
        """End an answer with what there is of it."""
        self._client.cancel(number)

    async def count(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> int:
        """Return how many tokens a conversation takes; raises as `notices` does."""
        notice = await self._told(Count(0, tuple(messages), tuple(tools)))
        assert isinstance(notice, Counted), notice  # noqa: S101 - the protocol says so
        return notice.tokens

    async def tokens(self, asked: Tokenize | Detokenize) -> Tokens:
        """Return the ids of a text, or what ids stand for; raises as `notices` does."""
        notice = await self._told(asked)
        assert isinstance(notice, Tokens), notice  # noqa: S101 - the protocol says so
        return notice

    async def _told(self, asked: Question) -> Answer:
        """Return the one notice that answers a question."""
        async with aclosing(self.notices(asked)) as notices:
            return await anext(notices)

    def _ask(self, asked: Question) -> int:
        if self._lost or self._closed:
            self._try_again()
            raise EngineLost(self._lost or "the server stops")
        if len(self._asked) >= self._most:
            raise Busy(f"{len(self._asked)} requests are under way, as many as may be: try later")
        number = self._client.question(asked)
        self._asked[number] = asyncio.Queue()
        self._on_ask(number, asked)
        return number

    def _try_again(self) -> None:
        """Load once more what a worker was missing for: it may be back, and the next request finds it."""
        now = time.monotonic()
        if self._launch.workers and not self._closed and now >= self._again_s:
            self._again_s = now + _AGAIN_S
            if self._client.alive:
                self._client.load(self._launch)
            else:
                self._client.restart()

    async def _next(self, number: int, within_s: float | None = None) -> Answer:
        try:
            notice = await asyncio.wait_for(self._asked[number].get(), within_s)
        except TimeoutError:
            raise WaitedTooLong(within_s) from None
        if isinstance(notice, Failed):
            self._forget(number)
            raise Refused(notice.kind, notice.reason)
        if isinstance(notice, EngineDied):
            self._forget(number)
            raise EngineLost(notice.reason)
        assert isinstance(notice, Answer), notice  # noqa: S101 - the protocol says so
        return notice

    def _forget(self, number: int) -> bool:
        return self._asked.pop(number, None) is not None

    def _receive(self, notice: Notice) -> None:
        """Take a notice from the thread that reads."""
        with suppress(RuntimeError):  # the loop is closed: nobody is there any more
            self._loop.call_soon_threadsafe(self._heard, notice)

    def _heard(self, notice: Notice) -> None:
        self._watch(notice)
        match notice:
            case Ready():
                self.last_ready = notice
                self._deaths.clear()
                self._settle(notice)
            case EngineDied():
                self._died(notice.reason)
            case LoadCancelled():
                self._settle(Refused("Cancelled", "loading was stopped"))
            case Failed(id=None) if self.ready is None:
                self._settle(Refused(notice.kind, notice.reason))
            case Failed(id=int(number)) | ReplyEvents(id=number) | ReplyDone(id=number):
                self._tell(number, notice)
            case Counted(id=number) | Tokens(id=number):
                self._tell(number, notice)

    def _tell(self, number: int, notice: Notice) -> None:
        if number in self._asked:
            self._asked[number].put_nowait(notice)

    def _settle(self, outcome: Ready | LocalspecError) -> None:
        if self._loaded.done():
            self._loaded = self._loop.create_future()
        if isinstance(outcome, Ready):
            self._lost = ""
            self._loaded.set_result(outcome)
            return
        self._lost = str(outcome)
        self._loaded.set_exception(outcome)
        self._loaded.exception()  # seen: it is told by whoever starts, and by `lost`
        self._end_all(self._lost)

    def _died(self, reason: str) -> None:
        if self._closed or self._resting:
            return
        first = self.ready is None and not self._deaths
        self._deaths.append(time.monotonic())
        self._end_all(reason)
        often = len(self._deaths) == _MOST_DEATHS
        if first or (often and self._deaths[-1] - self._deaths[0] < _WITHIN_S):
            self._settle(EngineLost(reason))
            return
        self._loaded = self._loop.create_future()
        self._client.restart()

    def _end_all(self, reason: str) -> None:
        for queue in self._asked.values():
            queue.put_nowait(EngineDied(reason))


async def pieces(
    answers: AsyncGenerator[Answer], watch: Callable[[StreamEvent], None] = lambda _event: None
) -> AsyncGenerator[Told | ReplyDone]:
    """Yield of what the engine says the pieces of an answer, and in the end the whole; `watch` takes all else that happens."""
    async with aclosing(answers) as notices:
        async for notice in notices:
            if isinstance(notice, ReplyDone):
                yield notice
            elif isinstance(notice, ReplyEvents):
                for event in notice.events:
                    if isinstance(event, Told):
                        yield event
                    else:
                        watch(event)
