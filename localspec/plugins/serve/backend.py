"""Backend: an engine for many clients at once. Everything here runs on one event loop.

A request that its client gives up ends within a pass. When the engine dies, what was being answered ends with an
error, and a new process loads the same models.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

import msgspec

from localspec.api import LaunchOptions, LocalspecError, Request
from localspec.engine.drafts import DraftProposal
from localspec.engine.engine import Respondent
from localspec.engine.protocol import Question, Ready, Response
from localspec.engine.remote_engine import RemoteEngine
from localspec.errors import EngineGone
from localspec.messages import Held

_AGAIN_S = 5.0
"""An engine whose worker was away tries to load again at a request, but no sooner."""
_LAST_NOTICES_S = 20.0
"""How long the engine may take to write down what it has evaluated."""
STOPS = "the server stops"


class WaitedTooLong(LocalspecError):
    """No sequence was free in time.

    Args:
        within_s: that time.
    """

    def __init__(self, within_s: float | None) -> None:
        super().__init__(f"queue full: not started within {within_s:g} s: try again later")


class Backend(Respondent):
    """Answers requests with one pair of models.

    Args:
        engine: in another process; started here.
        launch: what to load.
        on_ask: gets every question, with the number of its notices.
        max_wait_s: how long a request may wait until it begins; None lets it wait.
        on_unload: called when it is unloaded, after which no notice comes.
    """

    def __init__(
        self,
        engine: RemoteEngine,
        launch: LaunchOptions,
        on_ask: Callable[[int, Question], None] = lambda _number, _question: None,
        max_wait_s: float | None = None,
        on_unload: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._launch = launch
        self._on_ask = on_ask
        self._max_wait_s = max_wait_s
        self._on_unload = on_unload
        self._again_s = 0.0
        self._stops = False
        self._unloaded = True
        engine.follow(asyncio.get_running_loop())

    @property
    def ready(self) -> Ready | None:
        """What is loaded; None while nothing is."""
        return self._engine.ready if self._engine.has_loaded else None

    @property
    def last_ready(self) -> Ready | None:
        """What was loaded last, whether it still is or not; None where nothing ever was."""
        return self._engine.last_ready

    @property
    def lost(self) -> str:
        """Why the engine stays down; empty while it does not, and where nothing is to be loaded."""
        return "" if self._unloaded else self._engine.lost

    async def load(self, others: Held | None = None) -> Ready:
        """Start the engine and load; to be called while nothing is loaded.

        Args:
            others: what others hold that could be let go, see `Load`.

        Raises:
            NoRoom: it would fit better without those others.
            EngineGone: the engine died of it.
            LocalspecError: the models cannot be loaded.
        """
        if self._stops:
            raise EngineGone(STOPS)
        self._unloaded = False
        self._engine.load(self._launch, others)
        try:
            return await self._engine.loaded()
        except LocalspecError:
            self._unloaded = True
            raise

    async def held(self) -> Held:
        """Return the memory that is held, as soon as what is loaded again after a death is there."""
        with suppress(LocalspecError):
            return (await self._engine.loaded()).held
        return Held()

    async def unload(self) -> None:
        """End the engine, which gives all its memory back; `load` starts it again."""
        self._unloaded = True
        self._on_unload()
        await self._engine.end(_LAST_NOTICES_S)

    async def close(self) -> None:
        """End the engine, and at once what still waits."""
        self._stops = True
        await self._engine.end(_LAST_NOTICES_S, STOPS)

    async def notices(
        self, question: Question, began: Callable[[int], None] = lambda _number: None
    ) -> AsyncGenerator[Response]:
        """Yield the notices that answer a question; `began` gets its number. Closing the iterator ends the request.

        Raises:
            WaitedTooLong: it did not begin in time.
            EngineGone: the engine died meanwhile.
            LocalspecError: it cannot be answered.
        """
        within_s = None
        if isinstance(question, Request):
            question = msgspec.structs.replace(question, deterministic=self._launch.exact)
            within_s = self._max_wait_s
        self._require_engine()

        def begin(number: int) -> None:
            self._on_ask(number, question)
            began(number)

        async with aclosing(self._engine.notices(question, begin)) as answers:
            try:  # the first says that it begins
                async with asyncio.timeout(within_s):
                    first = await anext(answers)
            except TimeoutError:
                raise WaitedTooLong(within_s) from None
            yield first
            async for notice in answers:
                yield notice

    def propose(self, number: int, proposal: DraftProposal) -> None:
        """Give an answer what its client proposes."""
        self._engine.propose(number, proposal)

    def cancel(self, number: int) -> None:
        """End an answer with what there is of it."""
        self._engine.cancel(number)

    def _require_engine(self) -> None:
        """Raise EngineGone where none will answer; what a worker was missing for is loaded once more: it may be back."""
        if self._stops:
            raise EngineGone(STOPS)
        if not self.lost:
            return
        lost, now = self.lost, time.monotonic()
        if self._launch.workers and now >= self._again_s:
            self._again_s = now + _AGAIN_S
            self._engine.load(self._launch)
        raise EngineGone(lost)
