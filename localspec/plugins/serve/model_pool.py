"""ModelPool: pool of loaded models with LRU eviction, each with an engine of its own.

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

from localspec.api import LaunchOptions, LocalspecError, ReplyOptions
from localspec.engine.protocol import Ready
from localspec.errors import Busy, EngineGone, NoRoom
from localspec.messages import Held
from localspec.plugins.serve.backend import STOPS, Backend, WaitedTooLong

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
class PooledModel:
    """A model that is in memory, is being loaded, or was unloaded.

    Args:
        model: the model.
        backend: its engine.
        users: requests that are being answered.
        is_loaded: whether it is in memory.
        evicting: whether it is let go when nothing uses it.
        unloaded: whether it was unloaded for want of requests, and is loaded again with the next one.
        expired: whether it is to be unloaded for want of requests.
        used: a number that grows with every use.
        keep_alive_s: seconds after its last request in which it stays in memory; None keeps it.
        timer: of its rest.
    """

    model: ServedModel
    backend: Backend
    users: int = 0
    is_loaded: bool = False
    evicting: bool = False
    unloaded: bool = False
    expired: bool = False
    used: int = 0
    keep_alive_s: float | None = None
    timer: asyncio.TimerHandle | None = None

    @property
    def ready(self) -> Ready | None:
        """What is loaded, or what an unloaded model had loaded; None where neither is."""
        return self.backend.last_ready if self.unloaded else self.backend.ready

    @property
    def admits(self) -> bool:
        """Whether a request may use it now."""
        return self.is_loaded and not self.evicting

    @property
    def left_s(self) -> float | None:
        """Seconds until it is unloaded if no request comes; None where it stays."""
        if self.timer is None:
            return self.keep_alive_s
        return self.timer.when() - asyncio.get_running_loop().time()

    def reset_timer(self) -> None:
        """Keep it in memory until it is unloaded again."""
        self.expired = False
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A request for a model that is not loaded, or is about to leave."""

    model: ServedModel
    admitted: asyncio.Future[PooledModel] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class ModelPool:
    """Has engines load and unload models.

    Args:
        backend_of: makes a model's engine, which has nothing loaded yet.
        keep_alive_s: seconds after its last request in which a model stays in memory; None keeps it.
        most: requests that may run or wait, for all models together; one more is refused.
        max_wait_s: how long a request may wait for its model; None lets it wait.

    Attributes:
        entries: models in memory, or at rest, in the order in which they came.
    """

    def __init__(
        self,
        backend_of: Callable[[ServedModel], Backend],
        keep_alive_s: float | None,
        most: int,
        max_wait_s: float | None = None,
    ) -> None:
        self.entries: list[PooledModel] = []
        self._backend_of = backend_of
        self._keep_alive_s = keep_alive_s
        self._most = most
        self._max_wait_s = max_wait_s
        self._line: deque[_Waiting] = deque()
        self._change: asyncio.Task[Any] | None = None
        self._loading: PooledModel | None = None
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
        return len(self._line) + sum(each.users for each in self.entries)

    @property
    def loaded(self) -> list[ServedModel]:
        """The models in memory that write, in the order in which they came."""
        return [e.model for e in self.entries if e.is_loaded and not e.model.embeds]

    @property
    def states(self) -> dict[str, State]:
        """The states of the models that are or were in memory, by name; one that also makes vectors has its own."""
        embedding_first = sorted(self.entries, key=lambda each: not each.model.embeds)
        return {each.model.name: self._state(each) for each in embedding_first}

    def entry(self, model: ServedModel) -> PooledModel | None:
        """Return a model's entry; None where it has none."""
        return next((each for each in self.entries if each.model == model), None)

    def ready(self, model: ServedModel) -> Ready | None:
        """Return what is loaded of a model; None while nothing is."""
        entry = self.entry(model)
        return entry.backend.ready if entry is not None and entry.is_loaded else None

    def set_keep_alive(self, model: ServedModel, keep_alive_s: float) -> None:
        """Keep a model in memory so long after each request, infinity for ever, until it is loaded again; nothing where it is not there."""
        entry = self.entry(model)
        if entry is not None and entry.is_loaded:
            entry.keep_alive_s = None if keep_alive_s == math.inf else keep_alive_s
            entry.reset_timer()
            self._advance()

    async def start(self, models: Sequence[ServedModel]) -> None:
        """Load models, one after the other; what has little room gets what is left. Requests wait meanwhile.

        Raises:
            EngineGone: an engine died of it.
            LocalspecError: one of them cannot be loaded; then nothing is loaded any more.
        """
        if self._stops:
            raise EngineGone(STOPS)
        self._change = asyncio.current_task()  # nothing else is loaded meanwhile
        try:
            for model in models:
                await self._start(model)
        except LocalspecError as error:
            self._stops = True
            self._refuse(model, error)
            raise
        finally:
            self._change = self._loading = None
        for entry in reversed(self.entries):
            entry.used = next(self._uses)  # of those that are never used, the first stays longest
        self._advance()

    async def _start(self, model: ServedModel) -> None:
        """Load a model beside those that are loaded, and let in what waits for it."""
        self._loading = entry = self._add(model)
        held = await self._held()
        try:
            await entry.backend.load(held)
        except NoRoom:
            await entry.backend.load()
        self._loading, entry.is_loaded = None, True
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
        for entry in self.entries:
            entry.reset_timer()
        await asyncio.gather(*(each.backend.close() for each in self.entries))

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
            raise Busy(f"too many requests (limit {self._most}): try again later")
        entry = self.entry(model)
        if entry is not None and entry.admits:
            entry.users += 1
        else:
            entry = await self._turn(model)
        entry.reset_timer()
        try:
            yield entry.backend
        finally:
            entry.users -= 1
            entry.used = next(self._uses)
            self._advance()

    async def _turn(self, model: ServedModel) -> PooledModel:
        """Return a model's entry once it is loaded and one may use it."""
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
            idle = [each for each in self.entries if each.expired and not each.users]
            if idle:
                idle[0].is_loaded, idle[0].unloaded = False, True  # at once: its task begins later
                self._begin(self._rest(idle[0]))
            elif self._line:
                self._begin(self._load(self._line[0].model))
        for each in self.entries:
            if each.admits and not each.users and not self._stops:
                self._start_timer(each)

    def _begin(self, change: Coroutine[Any, Any, None]) -> None:
        self._change = asyncio.create_task(change)

    def _admit(self) -> None:
        """Let all in that wait for what is loaded."""
        staying = deque[_Waiting]()
        for each in self._line:
            entry = self.entry(each.model)
            if entry is None or not entry.admits:
                staying.append(each)
            elif not each.admitted.done():
                entry.users += 1
                each.admitted.set_result(entry)
        self._line = staying

    def _add(self, model: ServedModel) -> PooledModel:
        entry = PooledModel(model, self._backend_of(model), keep_alive_s=self._keep_alive_s)
        self.entries.append(entry)
        return entry

    async def _load(self, model: ServedModel) -> None:
        """Load a model that requests wait for, or tell them why it cannot be."""
        entry = self.entry(model)
        try:
            self._loading = entry = entry or self._add(model)
            entry.unloaded, entry.keep_alive_s = False, self._keep_alive_s
            if await self._has_loaded(entry):
                entry.is_loaded = True
                entry.used = next(self._uses)
            else:
                await self._let_go(entry)
        except Exception as error:  # a fault, too: else its requests would wait for ever
            try:
                if entry is not None:
                    await self._let_go(entry)
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

    async def _has_loaded(self, entry: PooledModel) -> bool:
        """Load a model as soon as there is room for it; return False where no request waits for it any more."""
        while True:
            held = await self._held()
            try:
                await entry.backend.load(held)
            except NoRoom:
                if held is None:
                    raise
            else:
                return True
            if not await self._make_room(entry.model):
                return False

    async def _make_room(self, model: ServedModel) -> bool:
        """Let go what was used longest ago, if possible of what nothing uses; return False where no request waits for the model any more.

        Where all are in use, that one takes no more, unless another is free before it.
        """
        loaded = [each for each in self.entries if each.is_loaded]
        leaving = min(loaded, key=lambda each: each.used)
        try:
            while wanted := any(each.model == model for each in self._line):
                former = leaving
                leaving = min(
                    loaded, key=lambda each: (each.users > 0, not each.evicting, each.used)
                )
                former.evicting, leaving.evicting = False, True
                self._admit()
                if not leaving.users:
                    await self._let_go(leaving)
                    for each in [each for each in self.entries if each.unloaded]:
                        self.entries.remove(each)  # there would be no room for it either
                    break
                self._changed.clear()
                await self._changed.wait()
        finally:
            leaving.evicting = False
        return wanted

    async def _held(self) -> Held | None:
        """Return the memory that loaded models hold; None where none is loaded."""
        loaded = [each for each in self.entries if each.is_loaded]
        held = [await each.backend.held() for each in loaded]
        return sum(held, Held()) if held else None

    async def _let_go(self, entry: PooledModel) -> None:
        """End an engine, which gives all its memory back."""
        entry.is_loaded = False
        entry.reset_timer()
        await entry.backend.unload()
        self.entries.remove(entry)

    async def _rest(self, entry: PooledModel) -> None:
        """Unload a model until the next request."""
        entry.reset_timer()
        try:
            await entry.backend.unload()
        finally:
            self._change = None
            self._advance()

    def _start_timer(self, entry: PooledModel) -> None:
        """Unload a model after a while without requests."""
        if entry.keep_alive_s is None or entry.timer is not None or entry.expired:
            return

        def expire() -> None:
            entry.timer = None
            entry.expired = True
            self._advance()

        loop = asyncio.get_running_loop()
        entry.timer = loop.call_later(entry.keep_alive_s, expire)

    def _state(self, entry: PooledModel) -> State:
        if entry is self._loading:
            return "loading"
        if not entry.is_loaded:
            return "unloaded"
        if entry.backend.lost:
            return "lost"
        return "loaded" if entry.backend.ready else "loading"
