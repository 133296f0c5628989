"""Backend: an engine for many clients at once. Everything here runs on one event loop.

A request that its client gives up ends within a pass. When the engine dies, what was being answered ends with an
error, and a new process loads the same models.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

import msgspec

from localspec.chat.request import Request
from localspec.engine.engine import Answer, Busy, EngineGone, RemoteEngine, Respondent
from localspec.engine.protocol import Question, Ready
from localspec.errors import LocalspecError
from localspec.options import LaunchOptions

_AGAIN_S = 5.0
"""An engine whose worker was away tries to load again at a request, but no sooner."""
_LAST_NOTICES_S = 20.0
"""How long the engine may take to write down what it has evaluated."""
_STOPS = "the server stops"


class WaitedTooLong(LocalspecError):
    """No sequence was free in time.

    Args:
        within_s: that time.
    """

    def __init__(self, within_s: float | None) -> None:
        super().__init__(
            f"no answer could begin within {within_s:g} s, there are too many before it: try later"
        )


class Backend(Respondent):
    """Answers requests with one pair of models.

    Args:
        engine: in another process; started here.
        launch: what to load.
        most: requests that may run or wait; one more is refused.
        on_ask: gets every question, with the number of its notices.
        max_wait_s: how long a request may wait until it begins; None lets it wait.
    """

    def __init__(
        self,
        engine: RemoteEngine,
        launch: LaunchOptions,
        most: int,
        on_ask: Callable[[int, Question], None] = lambda _number, _question: None,
        max_wait_s: float | None = None,
    ) -> None:
        self._engine = engine
        self._launch = launch
        self._most = most
        self._on_ask = on_ask
        self._max_wait_s = max_wait_s
        self._again_s = 0.0
        self._stops = False
        self._unloaded = True
        self.under_way = 0
        engine.follow(asyncio.get_running_loop())

    @property
    def ready(self) -> Ready | None:
        """What is loaded; None while nothing is."""
        return self._engine.ready if self._engine.has_loaded else None

    @property
    def exact(self) -> bool:
        """Whether no bit depends on drafting, see `LaunchOptions`."""
        return self._launch.exact

    @property
    def last_ready(self) -> Ready | None:
        """What was loaded last, whether it still is or not; None where nothing ever was."""
        return self._engine.last_ready

    @property
    def lost(self) -> str:
        """Why the engine stays down; empty while it does not, and where nothing is to be loaded."""
        return "" if self._unloaded else self._engine.lost

    async def start(self) -> Ready:
        """Start the engine and load.

        Raises:
            EngineGone: the engine died of it.
            LocalspecError: the models cannot be loaded.
        """
        self._unloaded = False
        self._engine.load(self._launch)
        return await self._engine.loaded()

    async def load(self, launch: LaunchOptions) -> Ready:
        """Load other models in place of those that are loaded; to be called while nothing is under way.

        Raises:
            EngineGone: the engine died of it.
            LocalspecError: they cannot be loaded; then nothing is.
        """
        with suppress(LocalspecError):  # first comes what is loaded again after a death
            await self._engine.loaded()
        if self._stops:
            raise EngineGone(_STOPS)
        self._launch, self._unloaded = launch, False
        self._engine.load(launch)
        try:
            return await self._engine.loaded()
        except LocalspecError:
            self._unloaded = True  # others may be had
            raise

    async def unload(self) -> None:
        """End the engine, which gives all its memory back; `load` starts it again."""
        self._unloaded = True
        await self._engine.end(_LAST_NOTICES_S)

    async def close(self) -> None:
        """End the engine, and at once what still waits."""
        self._stops = True
        await self._engine.end(_LAST_NOTICES_S, _STOPS)

    async def answers(
        self, question: Question, began: Callable[[int], None] = lambda _number: None
    ) -> AsyncGenerator[Answer]:
        """Yield the notices that answer a question; `began` gets its number. Closing the iterator ends the request.

        Raises:
            Busy: too many requests are under way.
            WaitedTooLong: it did not begin in time.
            EngineGone: the engine died meanwhile.
            LocalspecError: it cannot be answered.
        """
        within_s = None
        if isinstance(question, Request):
            question = msgspec.structs.replace(question, deterministic=self.exact)
            within_s = self._max_wait_s
        self._require_engine()
        if self.under_way >= self._most:
            raise Busy(f"{self.under_way} requests are under way, as many as may be: try later")

        def begin(number: int) -> None:
            self._on_ask(number, question)
            began(number)

        self.under_way += 1
        try:
            async with aclosing(self._engine.answers(question, begin)) as answers:
                try:  # the first says that it begins
                    async with asyncio.timeout(within_s):
                        first = await anext(answers)
                except TimeoutError:
                    raise WaitedTooLong(within_s) from None
                yield first
                async for notice in answers:
                    yield notice
        finally:
            self.under_way -= 1

    def cancel(self, number: int) -> None:
        """End an answer with what there is of it."""
        self._engine.cancel(number)

    def _require_engine(self) -> None:
        """Raise EngineGone where none will answer; what a worker was missing for is loaded once more: it may be back."""
        if self._stops:
            raise EngineGone(_STOPS)
        if not self.lost:
            return
        lost, now = self.lost, time.monotonic()
        if self._launch.workers and now >= self._again_s:
            self._again_s = now + _AGAIN_S
            self._engine.load(self._launch)
        raise EngineGone(lost)
