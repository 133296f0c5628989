"""Residence: the model in memory: the one that requests name, as soon as nothing runs on another, and none after a while.

Requests for a model that is not loaded wait in a line. None overtakes it but those for what is loaded next, and
those only if they came before it was: so every model has its turn, and changes are as few as fairness allows.
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from localspec.engine.engine import Busy
from localspec.errors import LocalspecError
from localspec.options import LaunchOptions, ReplyOptions
from localspec.serve.backend import Backend, WaitedTooLong


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that requests may name.

    Args:
        name: how answers call it.
        launch: what loads it.
        options: how it answers where a request does not say.
    """

    name: str
    launch: LaunchOptions
    options: ReplyOptions


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A request for a model that is not loaded, or whose turn it is not."""

    model: ServedModel
    admitted: asyncio.Future[None]


class Residence:
    """Has a backend load and unload models.

    Args:
        backend: has loaded `model` already.
        model: what is loaded first; None where nothing is.
        keep_alive_s: seconds after the last request in which the model stays in memory; None keeps it.
        most: requests that may run or wait; one more is refused.
        max_wait_s: how long a request may wait for its model; None lets it wait.

    Attributes:
        loaded: what is in memory; None where nothing is, or something else is being loaded.
        resting: the model that was unloaded for want of requests, and is loaded again with the next one; None where
            a request named another one since.
    """

    def __init__(
        self,
        backend: Backend,
        model: ServedModel | None,
        keep_alive_s: float | None,
        most: int,
        max_wait_s: float | None = None,
    ) -> None:
        self.loaded: ServedModel | None = model
        self.resting: ServedModel | None = None
        self._backend = backend
        self._usual_keep_alive_s = self._keep_alive_s = keep_alive_s
        self._most = most
        self._max_wait_s = max_wait_s
        self._users = 0
        self._line: deque[_Waiting] = deque()
        self._change: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._start_timer()

    @property
    def waiting(self) -> int:
        """Requests that wait for their model."""
        return len(self._line)

    @property
    def changing(self) -> bool:
        """Whether a model is being loaded, or let go."""
        return self._change is not None

    @property
    def left_s(self) -> float | None:
        """Seconds until the model is unloaded if no request comes; None where it stays."""
        if self._timer is not None:
            return self._timer.when() - asyncio.get_running_loop().time()
        return self._keep_alive_s

    def keep(self, model: ServedModel, keep_alive_s: float) -> None:
        """Keep a model, if it is the one in memory, so long after the last request, infinity for ever, until it is loaded again."""
        if model == self.loaded:
            self._keep_alive_s = None if keep_alive_s == math.inf else keep_alive_s
            self._stop_timer()
            self._advance()

    @asynccontextmanager
    async def use(self, model: ServedModel) -> AsyncIterator[None]:
        """Keep a model in memory while this lasts, once it is there.

        Raises:
            Busy: too many requests wait.
            WaitedTooLong: it was not its turn in time.
            EngineGone: the engine died of it.
            LocalspecError: it cannot be loaded.
        """
        if model != self.loaded or self._line or self._change is not None:
            await self._turn(model)
        else:
            self._users += 1
        self._stop_timer()
        try:
            yield
        finally:
            self._users -= 1
            self._advance()

    async def _turn(self, model: ServedModel) -> None:
        """Wait until a model is loaded and one may use it."""
        if len(self._line) + self._backend.under_way >= self._most:
            raise Busy(f"{self._most} requests are under way, as many as may be: try later")
        waiting = _Waiting(model, asyncio.get_running_loop().create_future())
        self._line.append(waiting)
        self._advance()
        try:
            async with asyncio.timeout(self._max_wait_s):
                await waiting.admitted
        except (asyncio.CancelledError, TimeoutError) as error:
            admitted = waiting.admitted
            if waiting in self._line:
                self._line.remove(waiting)
            elif not admitted.cancelled() and admitted.exception() is None:
                self._users -= 1  # it was its turn at the very moment
            self._advance()
            if isinstance(error, TimeoutError):
                raise WaitedTooLong(self._max_wait_s) from None
            raise

    def _advance(self) -> None:
        """Go on with the line; where none waits, begin to rest."""
        if self._change is not None:
            return
        if not self._line:
            if not self._users:
                self._start_timer()
            return
        if self._line[0].model == self.loaded:
            self._admit()
        elif not self._users:
            self._begin(self._load(self._line[0].model))

    def _admit(self) -> None:
        """Let all in that wait for what is loaded."""
        staying = deque(each for each in self._line if each.model != self.loaded)
        for each in self._line:
            if each.model == self.loaded and not each.admitted.done():
                self._users += 1
                each.admitted.set_result(None)
        self._line = staying

    def _begin(self, change: Coroutine[Any, Any, None]) -> None:
        self._stop_timer()
        self._change = asyncio.create_task(change)

    async def _load(self, model: ServedModel) -> None:
        self.loaded = self.resting = None
        self._keep_alive_s = self._usual_keep_alive_s
        try:
            await self._backend.load(model.launch)
        except LocalspecError as error:
            refused = [each for each in self._line if each.model == model]
            self._line = deque(each for each in self._line if each.model != model)
            for each in refused:
                if not each.admitted.done():
                    each.admitted.set_exception(error)
        else:
            self.loaded = model
        finally:
            self._change = None
        self._advance()

    async def _unload(self) -> None:
        self.loaded, self.resting = None, self.loaded
        try:
            await self._backend.unload()
        finally:
            self._change = None
        self._advance()

    def _start_timer(self) -> None:
        """Unload the model after a while without requests."""
        if self._keep_alive_s is None or self.loaded is None or self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._keep_alive_s, self._idle_expired)

    def _idle_expired(self) -> None:
        self._timer = None
        if not (self._users or self._line or self._change):
            self._begin(self._unload())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
