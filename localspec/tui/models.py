"""Models: what is loaded, what is being loaded, and what to go back to if that fails. Reads no model, so that a start costs little."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from localspec.display import clean_line, measuring_text
from localspec.engine.protocol import Downloading, Loading, Measuring, Notice, Ready
from localspec.engine.remote_engine import RemoteEngine
from localspec.errors import EngineFault, EngineGone, Interrupted, LocalspecError, ModelLoadError
from localspec.models.requested import name_of, named, with_names
from localspec.options import LaunchOptions
from localspec.storage.files import size_text

STARTING = "loading the model"
# Errors of a load that come after the models before it were let go, to make room.
_AFTER_UNLOADING = (ModelLoadError, EngineFault, EngineGone)


class Models:
    """Loads models, and knows which ones are loaded.

    Args:
        engine: loads them.
        usual: what is loaded when nothing else is requested.
        requested: called when a load is on its way to the engine: what is sent then comes behind it.

    Attributes:
        ready: what the engine has loaded; None where it has nothing.
        progress: what is fetched or loaded now, for people.
        trouble: why nothing could be loaded, or why the engine is gone; None while something is loaded.
        loaded: the request that `ready` fulfils, or the last one that could be fulfilled.
        loads: how many loads were requested of the engine.
        replaced: why something else answers than what was requested last, on one line; empty where nothing does.
    """

    def __init__(
        self,
        engine: RemoteEngine,
        usual: LaunchOptions,
        requested: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine, self.usual, self._requested = engine, usual, requested
        self.ready: Ready | None = None
        self.trouble: LocalspecError | None = None
        self.loaded: LaunchOptions | None = None
        self.progress = self.replaced = ""
        self.loads = 0
        self.wanted: list[LaunchOptions] = []

    @property
    def name(self) -> str:
        """What is loaded, as `--pair` or `--target` names it; empty when nothing is."""
        return "" if self.loaded is None else name_of(self.loaded)

    @property
    def next_name(self) -> str:
        """What will be loaded if all goes well."""
        return name_of(self.wanted[-1]) if self.wanted else self.name

    @property
    def loading(self) -> bool:
        """Whether something is being loaded."""
        return bool(self.wanted)

    @property
    def dead(self) -> bool:
        """Whether the engine is gone."""
        return not self.loading and isinstance(self.trouble, EngineGone)

    @property
    def missing(self) -> bool:
        """Whether there is no model, and none on its way; the engine would have one."""
        idle = self.ready is None and not self.loading and not self.dead
        return idle and self.trouble is not None and self._engine.can.local_files

    @property
    def line(self) -> str:
        """The state for people, in a few words."""
        if self.loading:
            return self.progress or STARTING
        if self.ready is not None:
            return clean_line(self.ready.target)
        stopped = "the model has stopped: /restart starts it again"
        return stopped if self.dead else "no model loaded: /model chooses one"

    @property
    def title(self) -> str:
        """What will answer if all goes well, for people."""
        return self.next_name or f"the model of {self._engine.can.at}"

    def sized(self, n_ctx: int | None) -> LaunchOptions:
        """Load everything with so many tokens of context from now on; return what is loaded, with as many.

        Raises:
            UsageError: no context has so many.
        """
        self.usual = _sized(self.usual, n_ctx)
        return _sized(self.loaded or with_names(self.usual), n_ctx)

    def named(self, name: str) -> LaunchOptions:
        """Return what loads a pair, or else a target; without a name, what is loaded usually."""
        return named(self.usual, name) if name else with_names(self.usual)

    async def load(
        self, wanted: LaunchOptions, other: LaunchOptions | None = None, *, fetch: bool = True
    ) -> None:
        """Load models; where that fails, what was loaded before or else `other`, unless that is loaded still.

        Args:
            wanted: the models; also the first of `self.wanted`, until this ends.
            other: what is loaded where nothing was before.
            fetch: whether files that are not here may be fetched.
        """
        had, self.replaced, self.trouble = self.ready is not None, "", None
        error = await self._attempt(wanted, fetch=fetch)
        if error is None:
            return
        stays = had and not isinstance(error, _AFTER_UNLOADING)
        other = self.loaded or other
        if other is not None and (stays or other != wanted):
            self.usual = replace(self.usual, load=other.load)  # whose context could be had
            self.replaced = (
                f"{clean_line(str(error))}; {name_of(other) or 'the model before'} answers instead"
            )
            self.wanted[0] = other
            failure = None if stays else await self._attempt(other)
            if failure is None or isinstance(failure, EngineGone):
                error = failure
        if error is not None:  # of the models that were wanted, unless the engine is gone
            self.ready, self.loaded, self.trouble, self.replaced = None, None, error, ""

    async def _attempt(
        self, options: LaunchOptions, *, fetch: bool = True
    ) -> LocalspecError | None:
        """Load models; return what went wrong. A load that the user stops leaves what is loaded, if that is there still."""
        self.progress = ""
        self.loads += 1
        self._engine.load(options if fetch else replace(options, offline=True))
        self._requested()
        try:
            self.ready = await self._engine.loaded()
        except Interrupted:
            if not self._engine.has_loaded:
                self.ready = self.loaded = None
                self.trouble = Interrupted(
                    "loading was stopped: /model chooses one, /restart loads this one"
                )
        except LocalspecError as error:
            return error
        else:
            self.loaded = options
        return None

    def lose(self, reason: str) -> None:
        """Take note that the engine is gone."""
        self.ready, self.trouble = None, EngineGone(clean_line(reason))

    def watch(self, notice: Notice) -> None:
        """Take note of how far a load is."""
        match notice:
            case Downloading():
                done, total = size_text(notice.done_bytes), size_text(notice.total_bytes)
                self.progress = f"downloading {notice.name}: {done} of {total}"
            case Loading():
                self.progress = f"loading {notice.model}: {notice.share:.0%}"
            case Measuring():
                self.progress = f"{measuring_text(notice.model)}: {notice.share:.0%}"
            case Ready() if not self.loading:  # a file that was written over was loaded anew
                self.ready = notice
                return
            case _:
                return
        self.progress = clean_line(self.progress)


class LoadQueue:
    """Loads one thing after the other, beside what else is done.

    Args:
        engine: loads.
        models: takes note of what is loaded.
        spawn: runs a coroutine beside others.
        loaded: called when a load has ended, with whether it was for another context.
    """

    def __init__(
        self,
        engine: RemoteEngine,
        models: Models,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        loaded: Callable[[bool], None],
    ) -> None:
        self._engine, self._models, self._spawn, self._loaded = engine, models, spawn, loaded
        self._tasks: list[asyncio.Task[None]] = []
        self._begun: asyncio.Task[None] | None = None
        self._begins = asyncio.Event()

    async def wait(self) -> None:
        """Wait until what was requested is loaded, or cannot be."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def reach_last(self) -> None:
        """Wait until what was requested last is being loaded, if not loaded."""
        while self._tasks and self._begun is not self._tasks[-1]:
            self._begins.clear()
            await self._begins.wait()

    def load(
        self,
        wanted: LaunchOptions,
        other: LaunchOptions | None = None,
        *,
        fetch: bool = True,
        resized: bool = False,
    ) -> None:
        """Load behind what is being loaded; see `Models.load`."""
        self._add(self._load(wanted, other, [*self._tasks], fetch=fetch, resized=resized), wanted)

    def load_again(self, name: str, n_ctx: int | None, *, fetch: bool = True) -> None:
        """Load the models of a conversation; if that fails and nothing is loaded, the usual ones."""
        other = self._models.named("")
        if n_ctx is not None:
            self._models.sized(n_ctx)
        self.load(self._models.named(name), other, fetch=fetch)

    def restart(self) -> None:
        """Start the engine again in a new process, with what was loaded last, in place of all that is being loaded."""
        for each in self._tasks:
            each.cancel()
        self._models.wanted.clear()
        self._tasks.clear()
        wanted = self._models.loaded or self._models.named("")
        self._add(self._load(wanted, None, [], restarts=True), wanted)

    def _add(self, load: Coroutine[Any, Any, None], wanted: LaunchOptions) -> None:
        self._models.wanted.append(wanted)
        self._tasks.append(self._spawn(load))

    async def _load(
        self,
        wanted: LaunchOptions,
        other: LaunchOptions | None,
        before: list[asyncio.Task[None]],
        *,
        fetch: bool = True,
        restarts: bool = False,
        resized: bool = False,
    ) -> None:
        task = asyncio.current_task()
        try:
            if before:
                await asyncio.wait(before)
            if restarts:
                await self._engine.end(0)
            self._begun = task
            self._begins.set()
            await self._models.load(wanted, other, fetch=fetch)
        finally:
            if task in self._tasks:
                self._tasks.remove(task)
                self._models.wanted.pop(0)
            self._begins.set()
        self._loaded(resized)


def _sized(load: LaunchOptions, n_ctx: int | None) -> LaunchOptions:
    return replace(load, load=replace(load.load, n_ctx=n_ctx))
