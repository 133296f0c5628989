"""EngineClient: the engine's other end. Starts the process, says what is asked, collects what it tells.

Nothing here waits: starting, asking and draining return at once, whatever the engine does; only a server that has the
models in memory already is looked for a moment. Knows no llama.cpp and no screen.
"""

import sys
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import msgspec

from localspec.calls import Tool
from localspec.calls.policy import CallPolicy
from localspec.chat.events import Withheld
from localspec.chat.request import Request
from localspec.engine.process import EngineProcess
from localspec.engine.protocol import (
    Cancel,
    Command,
    Count,
    EngineDied,
    Failed,
    Load,
    Notice,
    Question,
    Ready,
    ReplyEvents,
    RestoreState,
    SaveState,
)
from localspec.engine.wire import FrameError, encode
from localspec.messages import Message
from localspec.options import LaunchOptions, ReplyOptions

if TYPE_CHECKING:
    from localspec.engine.shared import SharedEngine

# A string and no import: the child's main wires everything together, and lies above this floor.
COMMAND = (sys.executable, "-P", "-m", "localspec.launch.child")


class EngineClient:
    """An engine, told what to do and asked what it did.

    Args:
        command: starts the engine's process.
        find: returns the engine of a server that has in memory what is to be loaded; None where there is none. With it,
            the process is started only when it is needed.
        settings: how to load, whatever it is.
    """

    def __init__(
        self,
        command: Sequence[str] = COMMAND,
        find: "Callable[[LaunchOptions], SharedEngine | None] | None" = None,
        settings: Load | None = None,
        gate: str = "",
    ) -> None:
        self._settings = settings or Load()
        self._gate = gate
        self.withheld: list[Withheld] = []
        self._command = tuple(command)
        self._find = find
        self._inbox: SimpleQueue[Notice] = SimpleQueue()
        self._deliver: Callable[[Notice], None] = self._inbox.put
        self._process: EngineProcess | SharedEngine | None = None
        self._asked_load: LaunchOptions | None = None
        self._last_loaded: LaunchOptions | None = None
        self._next_id = 1

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.alive

    @property
    def pid(self) -> int | None:
        """The process, for people who look for it."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process; `Hello` comes when it is there. Trouble becomes `EngineDied`."""
        if self._find is None:
            self._start()

    def _start(self) -> None:
        try:
            self._process = EngineProcess(self._command, self._take)
        except OSError as error:
            reason = error.strerror or str(error)
            self._deliver(EngineDied(f"the engine cannot be started: {reason}"))

    def restart(self) -> None:
        """Start a new process in place of one that died or hangs, and load what was loaded last.

        Where nothing ever was, what was asked for last; a pair that it died of is not loaded again.
        """
        self.close(wait_s=0)
        self.start()
        options = self._last_loaded or self._asked_load
        if options is not None:
            self.load(options)

    def load(self, options: LaunchOptions) -> None:
        """Load a pair, in place of another if one is loaded."""
        self._asked_load = options
        shared = None if self._find is None else self._find(options)
        if shared is not None:
            self._take(shared.ready)
            self.attach(shared)
            return
        if self._find is not None and not isinstance(self._process, EngineProcess):
            self.close()
            self._start()
        self._say(msgspec.structs.replace(self._settings, options=options))

    def attach(self, shared: "SharedEngine") -> None:
        """Ask the engine of a server from now on, in place of one's own."""
        self.close()
        self._process = shared
        shared.listen(self._take)

    def ask(
        self,
        messages: Sequence[Message],
        options: ReplyOptions | None = None,
        *,
        draft: str | None = None,
        keep: int | None = None,
        ephemeral: bool = False,
        drop_oldest: bool = False,
        raw: str | None = None,
        tools: Sequence[Tool] = (),
        call_policy: CallPolicy | None = None,
        conversation: int | None = None,
    ) -> int:
        """Ask for a reply, see `Request`; return the id that its notices bear."""
        return self.question(
            Request(
                0,
                tuple(messages),
                options or ReplyOptions(),
                draft,
                keep,
                ephemeral,
                drop_oldest,
                raw,
                tools=tuple(tools),
                call_policy=call_policy or CallPolicy(),
                conversation=conversation,
            )
        )

    def count(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> int:
        """Ask how many tokens a conversation takes; return the id that the answer bears."""
        return self.question(Count(0, tuple(messages), tuple(tools)))

    def question(self, asked: Question) -> int:
        """Ask something, whatever id it has; return the one that the answer bears."""
        number, self._next_id = self._next_id, self._next_id + 1
        if isinstance(asked, Request):
            asked = msgspec.structs.replace(asked, gate=asked.gate or self._gate)
            self.withheld = self.withheld if asked.ephemeral else []
        self._say(msgspec.structs.replace(asked, id=number))
        return number

    def cancel(self, id: int | None = None) -> None:  # noqa: A002 - the protocol's word
        """Stop a request; None stops a load."""
        self._say(Cancel(id))

    def save_state(self, directory: str) -> None:
        """Have what was evaluated written into a directory."""
        self._say(SaveState(directory))

    def restore_state(self, directory: str) -> None:
        """Have it put back, where it fits."""
        self._say(RestoreState(directory))

    def drain(self) -> list[Notice]:
        """Return what came in since the last call, in order; made to be called ten times a second."""
        notices: list[Notice] = []
        while True:
            try:
                notices.append(self._inbox.get_nowait())
            except Empty:
                return notices

    def wait(self, timeout_s: float) -> Notice | None:
        """Return the next notice as soon as it is there, None if none comes; for a thread that does nothing else."""
        try:
            return self._inbox.get(timeout=timeout_s)
        except Empty:
            return None

    def next(self) -> Notice:
        """Return the next notice as soon as it is there."""
        return self._inbox.get()

    def listen(self, deliver: Callable[[Notice], None]) -> None:
        """Have what comes in delivered by threads from now on, in place of `drain`, `wait` and `next`."""
        self._deliver = deliver

    def _take(self, notice: Notice) -> None:
        if isinstance(notice, Ready):
            self._last_loaded = self._asked_load
        elif isinstance(notice, ReplyEvents):
            self.withheld += (each for each in notice.events if isinstance(each, Withheld))
        self._deliver(notice)

    def close(self, wait_s: float = 3.0) -> None:
        """End the process, by force if it takes longer than `wait_s`; closing twice is harmless."""
        process, self._process = self._process, None
        if process is not None:
            process.end(wait_s)

    def _say(self, command: Command) -> None:
        if self._process is None:
            self._deliver(EngineDied("the engine is not running: restart it"))
            return
        try:
            self._process.say(encode(command))
        except FrameError as error:
            number = command.id if isinstance(command, Question) else None
            self._deliver(Failed(number, "FrameError", str(error)))
