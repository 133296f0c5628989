"""Residence: the models in memory, each with an engine of its own: those that requests name, as many as fit, and each for a while.

A model that is loaded answers at once. Requests for another one wait in a line, whose first is loaded, too,
if there is room. Else the one that was used longest ago is let go, when what it answers has ended; requests for it that come
meanwhile wait behind, so that every model has its turn.
"""

import asyncio
import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from localspec.engine.engine import Busy, EngineGone
from localspec.engine.protocol import Held, Ready
from localspec.errors import NoRoom
from localspec.options import LaunchOptions, ReplyOptions
from localspec.serve.backend import STOPS, Backend, WaitedTooLong

State = Literal["loaded", "loading", "unloaded", "lost"]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that requests may name.

    Args:
        name: how answers call it.
        launch: what loads it.
        options: how it answers where a request does not say.
        names: others that it has.
        embeds: whether it is loaded to make vectors of texts, and writes none.
    """

    name: str
    launch: LaunchOptions
    options: ReplyOptions
    names: tuple[str, ...] = ()
    embeds: bool = False


@dataclass(slots=True, eq=False)
class Resident:
    """A model that is in memory, is being loaded, or rests.

    Args:
        model: the model.
        backend: its engine.
        users: requests that are being answered.
        is_loaded: whether it is in memory.
        leaves: whether it is let go when nothing uses it.
        rests: whether it was unloaded for want of requests, and is loaded again with the next one.
        expired: whether it is to be unloaded for want of requests.
        used: a number that grows with every use.
        keep_alive_s: seconds after its last request in which it stays in memory; None keeps it.
        timer: of its rest.
    """

    model: ServedModel
    backend: Backend
    users: int = 0
    is_loaded: bool = False
    leaves: bool = False
    rests: bool = False
    expired: bool = False
    used: int = 0
    keep_alive_s: float | None = None
    timer: asyncio.TimerHandle | None = None

    @property
    def ready(self) -> Ready | None:
        """What is loaded, or what a model that rests had loaded; None where neither is."""
        return self.backend.last_ready if self.rests else self.backend.ready

    @property
    def admits(self) -> bool:
        """Whether a request may use it now."""
        return self.is_loaded and not self.leaves

    @property
    def left_s(self) -> float | None:
        """Seconds until it is unloaded if no request comes; None where it stays."""
        if self.timer is None:
            return self.keep_alive_s
        return self.timer.when() - asyncio.get_running_loop().time()

    def keep(self) -> None:
        """Keep it in memory until it rests again."""
        self.expired = False
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A request for a model that is not loaded, or is about to leave."""

    model: ServedModel
    admitted: asyncio.Future[Resident] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Residence:
    """Has engines load and unload models.

    Args:
        backend_of: makes a model's engine, which has nothing loaded yet.
        keep_alive_s: seconds after its last request in which a model stays in memory; None keeps it.
        most: requests that may run or wait, for all models together; one more is refused.
        max_wait_s: how long a request may wait for its model; None lets it wait.

    Attributes:
        residents: models in memory, or at rest, in the order in which they came.
    """

    def __init__(
        self,
        backend_of: Callable[[ServedModel], Backend],
        keep_alive_s: float | None,
        most: int,
        max_wait_s: float | None = None,
    ) -> None:
        self.residents: list[Resident] = []
        self._backend_of = backend_of
        self._keep_alive_s = keep_alive_s
        self._most = most
        self._max_wait_s = max_wait_s
        self._line: deque[_Waiting] = deque()
        self._change: asyncio.Task[None] | None = None
        self._loading: Resident | None = None
        self._changed = asyncio.Event()
        self._uses = count(1)
        self._stops = False

    @property
    def waiting(self) -> Counter[str]:
        """How many requests wait for their model, by its name."""
        return Counter(each.model.name for each in self._line)

    @property
    def under_way(self) -> int:
        """Requests that run or wait."""
        return len(self._line) + sum(each.users for each in self.residents)

    @property
    def loaded(self) -> list[ServedModel]:
        """The models in memory that write, in the order in which they came."""
        return [e.model for e in self.residents if e.is_loaded and not e.model.embeds]

    @property
    def states(self) -> dict[str, State]:
        """The states of the models that are or were in memory, by name; one that also makes vectors has its own."""
        embedding_first = sorted(self.residents, key=lambda each: not each.model.embeds)
        return {each.model.name: self._state(each) for each in embedding_first}

    def resident(self, model: ServedModel) -> Resident | None:
        """Return a model's resident; None where it has none."""
        return next((each for each in self.residents if each.model == model), None)

    def ready(self, model: ServedModel) -> Ready | None:
        """Return what is loaded of a model; None while nothing is."""
        resident = self.resident(model)
        return resident.backend.ready if resident is not None and resident.is_loaded else None

    def keep(self, model: ServedModel, keep_alive_s: float) -> None:
        """Keep a model in memory so long after each request, infinity for ever, until it is loaded again; nothing where it is not there."""
        resident = self.resident(model)
        if resident is not None and resident.is_loaded:
            resident.keep_alive_s = None if keep_alive_s == math.inf else keep_alive_s
            resident.keep()
            self._advance()

    async def start(self, models: Sequence[ServedModel]) -> None:
        """Load models, one after the other; what has little room gets what is left.

        Raises:
            EngineGone: an engine died of it.
            LocalspecError: one of them cannot be loaded.
        """
        for model in models:
            resident = self._add(model)
            held = await self._held()
            try:
                await resident.backend.load(held)
            except NoRoom:
                await resident.backend.load()
            resident.is_loaded = True
        for resident in reversed(self.residents):
            resident.used = next(
                self._uses
            )  # of those that are never used, the first stays longest
        self._advance()

    async def close(self) -> None:
        """End all engines, and at once what still waits."""
        self._stops = True
        if self._change is not None:
            self._change.cancel()
            await asyncio.gather(self._change, return_exceptions=True)
        for each in self._line:
            if not each.admitted.done():
                each.admitted.set_exception(EngineGone(STOPS))
        for resident in self.residents:
            resident.keep()
        await asyncio.gather(*(each.backend.close() for each in self.residents))

    @asynccontextmanager
    async def use(self, model: ServedModel) -> AsyncIterator[Backend]:
        """Keep a model in memory while this lasts, once it is there, and yield its engine.

        Raises:
            Busy: too many requests run or wait.
            WaitedTooLong: it was not its turn in time.
            EngineGone: the engine died of it.
            LocalspecError: it cannot be loaded.
        """
        if self.under_way >= self._most:
            raise Busy(f"{self._most} requests are under way, as many as may be: try later")
        resident = self.resident(model)
        if resident is not None and resident.admits:
            resident.users += 1
        else:
            resident = await self._turn(model)
        resident.keep()
        try:
            yield resident.backend
        finally:
            resident.users -= 1
            resident.used = next(self._uses)
            self._advance()

    async def _turn(self, model: ServedModel) -> Resident:
        """Return a model's resident once it is loaded and one may use it."""
        if self._stops:
            raise EngineGone(STOPS)
        waiting = _Waiting(model)
        self._line.append(waiting)
        self._advance()
        try:
            async with asyncio.timeout(self._max_wait_s):
                return await waiting.admitted
        except (asyncio.CancelledError, TimeoutError) as error:
            admitted = waiting.admitted
            if waiting in self._line:
                self._line.remove(waiting)
            elif not admitted.cancelled() and admitted.exception() is None:
                admitted.result().users -= 1  # it was its turn at the very moment
            self._advance()
            if isinstance(error, TimeoutError):
                raise WaitedTooLong(self._max_wait_s) from None
            raise

    def _advance(self) -> None:
        """Let in who may, begin the next change of what is in memory, and let rest what nothing uses."""
        self._changed.set()
        self._admit()
        if self._change is None and not self._stops:
            idle = [each for each in self.residents if each.expired and not each.users]
            if idle:
                idle[0].is_loaded, idle[0].rests = False, True  # at once: its task begins later
                self._begin(self._rest(idle[0]))
            elif self._line:
                self._begin(self._load(self._line[0].model))
        for each in self.residents:
            if each.admits and not each.users and not self._stops:
                self._start_timer(each)

    def _begin(self, change: Coroutine[Any, Any, None]) -> None:
        self._change = asyncio.create_task(change)

    def _admit(self) -> None:
        """Let all in that wait for what is loaded."""
        staying = deque[_Waiting]()
        for each in self._line:
            resident = self.resident(each.model)
            if resident is None or not resident.admits:
                staying.append(each)
            elif not each.admitted.done():
                resident.users += 1
                each.admitted.set_result(resident)
        self._line = staying

    def _add(self, model: ServedModel) -> Resident:
        resident = Resident(model, self._backend_of(model), keep_alive_s=self._keep_alive_s)
        self.residents.append(resident)
        return resident

    async def _load(self, model: ServedModel) -> None:
        """Load a model that requests wait for, or tell them why it cannot be."""
        resident = self.resident(model)
        try:
            self._loading = resident = resident or self._add(model)
            resident.rests, resident.keep_alive_s = False, self._keep_alive_s
            if await self._has_loaded(resident):
                resident.is_loaded = True
                resident.used = next(self._uses)
            else:
                await self._let_go(resident)
        except Exception as error:  # a fault, too: else its requests would wait for ever
            try:
                if resident is not None:
                    await self._let_go(resident)
            finally:
                self._refuse(model, error)
        finally:
            self._change = self._loading = None
            self._advance()

    def _refuse(self, model: ServedModel, error: Exception) -> None:
        """End the wait of all requests for a model."""
        refused = [each for each in self._line if each.model == model]
        self._line = deque(each for each in self._line if each.model != model)
        for each in refused:
            if not each.admitted.done():
                each.admitted.set_exception(error)

    async def _has_loaded(self, resident: Resident) -> bool:
        """Load a model as soon as there is room for it; return False where no request waits for it any more."""
        while True:
            held = await self._held()
            try:
                await resident.backend.load(held)
            except NoRoom:
                if held is None:
                    raise
            else:
                return True
            if not await self._make_room(resident.model):
                return False

    async def _make_room(self, model: ServedModel) -> bool:
        """Let go what was used longest ago, if possible of what nothing uses; return False where no request waits for the model any more.

        Where all are in use, that one takes no more, unless another is free before it.
        """
        loaded = [each for each in self.residents if each.is_loaded]
        leaving = min(loaded, key=lambda each: each.used)
        try:
            while wanted := any(each.model == model for each in self._line):
                former = leaving
                leaving = min(loaded, key=lambda each: (each.users > 0, not each.leaves, each.used))
                former.leaves, leaving.leaves = False, True
                self._admit()
                if not leaving.users:
                    await self._let_go(leaving)
                    for each in [each for each in self.residents if each.rests]:
                        self.residents.remove(each)  # there would be no room for it either
                    break
                self._changed.clear()
                await self._changed.wait()
        finally:
            leaving.leaves = False
        return wanted

    async def _held(self) -> Held | None:
        """Return the memory that loaded models hold; None where none is loaded."""
        loaded = [each for each in self.residents if each.is_loaded]
        held = [await each.backend.held() for each in loaded]
        return sum(held, Held()) if held else None

    async def _let_go(self, resident: Resident) -> None:
        """End an engine, which gives all its memory back."""
        resident.is_loaded = False
        resident.keep()
        await resident.backend.unload()
        self.residents.remove(resident)

    async def _rest(self, resident: Resident) -> None:
        """Unload a model until the next request."""
        resident.keep()
        try:
            await resident.backend.unload()
        finally:
            self._change = None
            self._advance()

    def _start_timer(self, resident: Resident) -> None:
        """Unload a model after a while without requests."""
        if resident.keep_alive_s is None or resident.timer is not None or resident.expired:
            return

        def expire() -> None:
            resident.timer = None
            resident.expired = True
            self._advance()

        loop = asyncio.get_running_loop()
        resident.timer = loop.call_later(resident.keep_alive_s, expire)

    def _state(self, resident: Resident) -> State:
        if resident is self._loading:
            return "loading"
        if not resident.is_loaded:
            return "unloaded"
        if resident.backend.lost:
            return "lost"
        return "loaded" if resident.backend.ready else "loading"
