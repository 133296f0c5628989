"""RemoteEngine: the models are in another process, a child or a server of the user.

Loads no event loop: where one runs, `RemoteEngine.follow` makes it one of the loop's; elsewhere waiting for an answer is
waiting at the pipe.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from localspec import errors
from localspec.engine.drafts import DraftProposal
from localspec.engine.engine import Engine, Inbox, trouble_of
from localspec.engine.link import ChildLink, Link, ServerLink
from localspec.engine.protocol import (
    NOTICES,
    Cancel,
    Command,
    EngineDied,
    Failed,
    FrameError,
    Load,
    LoadCancelled,
    Notice,
    Propose,
    Question,
    Ready,
    encode,
)
from localspec.errors import EngineGone, Interrupted, LocalspecError
from localspec.messages import Held
from localspec.options import LaunchOptions

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

COMMAND = (sys.executable, "-P", "-m", "localspec.launch.child")
"""A string and no import: the child's main wires everything together, and lies above this floor."""
_MOST_DEATHS, _WITHIN_S = 5, 60.0
"""An engine that dies so often, and never gets ready in between, stays down."""
_NOT_RUNNING = "the engine is not running: restart it"


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
        self.can = self._settings.options.can
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
        """Attach to a running event loop, whose coroutines may then use this side by side."""
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
        """Return what is loaded, as soon as the last load has ended; see `Engine.loaded`."""
        if self._link is None and self._requested is None:
            self.load(self._settings.options)
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
        """End the process, by force if it takes longer than `wait_s`, or loads; closing twice is harmless."""
        wait_s = 0 if self._outcome is None else wait_s
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

    def stop(self) -> None:
        """End all answers with what there is of them, and a load."""
        super().stop()
        if self._outcome is None:
            self.cancel()

    def cancel(self, number: int | None = None) -> None:
        """End an answer with what there is of it; None stops a load. Any thread may call it."""
        self._send(Cancel(number))

    def propose(self, number: int, proposal: DraftProposal) -> None:
        """Give an answer what its client proposes, see `Propose`."""
        self._send(Propose(number, proposal))

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
