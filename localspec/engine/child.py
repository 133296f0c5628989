"""The engine's own process: commands come from one pipe, notices leave by another, and the main thread answers.

Several requests are answered at once, and all else is done one after the other. Whatever goes wrong with a command
becomes one `Failed`, and the next one is served.
"""

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import BinaryIO, NoReturn, Protocol

import msgspec

from localspec.chat.request import Request
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.engine.embedding import EmbeddingQueue, LoadedEmbedder
from localspec.engine.outbox import Outbox
from localspec.engine.protocol import (
    COMMANDS,
    MAX_FRAME_BYTES,
    Bye,
    Cancel,
    Command,
    Count,
    Detokenize,
    Embed,
    Failed,
    FrameError,
    Hello,
    Load,
    LoadCancelled,
    Notice,
    Progress,
    Propose,
    Question,
    Tokenize,
    encode,
)
from localspec.engine.request_runner import Loaded, RequestRunner, failure, ready_of
from localspec.errors import ModelChanged, UsageError

_GRACE_S = 3.0
_LOOK_FOR_PARENT_S = 1.0
_LAST_NOTICES_S = 2.0


class Factory(Protocol):
    """Loads what a client wants; raises the errors of `localspec.launch`."""

    def fetch(self, load: Load, send: Callable[[Progress], None]) -> None:
        """Obtain the files and check that they fit each other. A KeyboardInterrupt may end it anywhere."""

    def load(
        self, load: Load, cancel: CancelFlag, send: Callable[[Progress], None]
    ) -> Loaded | LoadedEmbedder:
        """Load them into the memory that is free now.

        Raises:
            Cancelled: `cancel` was set.
        """


def serve(factory: Factory, version: str, at_end: Callable[[], None] = lambda: None) -> NoReturn:
    """Serve the process at the other end of stdin and stdout until it says bye or is gone; then end this one.

    Args:
        factory: loads models.
        version: of localspec.
        at_end: called before this process ends; it must not take long.
    """
    commands, notices = private_pipes()

    def write(notice: Notice) -> None:
        notices.write(encode(notice))

    outbox = Outbox(write, notices.flush)  # in one go: the reader is woken once
    server = Server(factory, commands, outbox)
    threading.Thread(target=_end_with_parent, args=(server,), daemon=True).start()
    outbox.put(Hello(version, os.getpid()))
    server.serve()
    at_end()
    outbox.close(_LAST_NOTICES_S)
    sys.stderr.flush()
    os._exit(0)  # threads may still stand at a pipe, and the system frees faster than we


def private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Take stdin and stdout for the protocol, so that no stray print or child process gets at them."""
    commands = os.fdopen(os.dup(0), "rb")
    notices = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return commands, notices


def _end_with_parent(server: "Server") -> None:
    """End when the client is gone, also where a process that it left behind keeps the pipe open.

    What does not stop by itself within a grace, such as a native call that watches no flag, is ended with us.
    """
    parent = os.getppid()
    while not server.cut_off.wait(_LOOK_FOR_PARENT_S):
        if os.getppid() != parent:
            server.end()
    time.sleep(_GRACE_S)
    os._exit(1)


@dataclass(slots=True, eq=False)
class QueuedCommand:
    """A command that waits, or is being done."""

    command: Command
    cancelled: bool = False


class Server:
    """Serves one client: its commands are done one after the other, a cancel overtakes them, and the end of the pipe ends all.

    A thread reads, so that a cancel is noticed while replies are made or models are loaded. To be made in the main
    thread, which SIGINT interrupts where a library watches no flag, as in a download, and nowhere else.

    Args:
        factory: loads models.
        pipe: where commands come from.
        outbox: takes what is sent to the client.

    Attributes:
        cut_off: set when the client is gone.
    """

    def __init__(self, factory: Factory, pipe: BinaryIO, outbox: Outbox) -> None:
        self.cut_off = threading.Event()
        self._factory = factory
        self._pipe = pipe
        self._outbox = outbox
        self._send = outbox.put
        self._answering: RequestRunner | EmbeddingQueue | None = None
        self._last: Load | None = None
        self._lost: Exception | None = None
        self._cancel = CancelFlag()
        self._changed = threading.Condition()
        self._waiting: deque[QueuedCommand] = deque()
        self._current: QueuedCommand | None = None
        self._ended = False
        self._interruptible = False
        signal.signal(signal.SIGINT, self._on_signal)

    def serve(self) -> None:
        """Serve until the client ends it.

        Answers go on between two commands; what changes the models waits until none is left.
        """
        threading.Thread(target=self._read, daemon=True, name="localspec-commands").start()
        while True:
            answering = self._answering if self._answering and self._answering.busy else None
            entry = self._next(busy=answering is not None)
            if entry is not None:
                self._do(entry)
            elif answering is not None:
                self._step(answering)
            else:
                return

    def end(self) -> None:
        """Stop everything and drop what waits, as when the client is gone."""
        self._bye()
        self.cut_off.set()

    # The thread that reads.

    def _read(self) -> None:
        while line := self._pipe.readline(MAX_FRAME_BYTES + 1):
            try:
                if not line.endswith(b"\n"):
                    if len(line) <= MAX_FRAME_BYTES:
                        break  # the client died in the middle of it
                    while not (piece := self._pipe.readline(1 << 16)).endswith(b"\n") and piece:
                        pass
                    raise FrameError(f"a frame has more than {MAX_FRAME_BYTES} bytes")  # noqa: TRY301
                command = COMMANDS.decode(line)
            except FrameError as error:
                self._send(Failed(None, "FrameError", str(error)))
                continue
            match command:
                case Bye():
                    self._bye()
                    return
                case Cancel(id=number):
                    self._cancel_by(number)
                case Propose() as proposal:
                    if isinstance(self._answering, RequestRunner):
                        self._answering.propose(proposal)
                case _:
                    with self._changed:
                        self._waiting.append(QueuedCommand(command))
                        self._changed.notify()
        self.end()

    def _cancel_by(self, number: int | None) -> None:
        """Cancel a request by its id, waiting or running; None cancels all loads."""
        with self._changed:
            current = () if self._current is None else (self._current,)
            for each in (*current, *self._waiting):
                match each.command:
                    case Load() if number is None:
                        each.cancelled = True
                        if each is self._current:
                            self._cancel.set()
                            _interrupt()
                    case Request(id=its) | Embed(id=its) if its == number:
                        each.cancelled = True
        if number is not None and self._answering is not None:
            self._answering.cancel(number)

    def _bye(self) -> None:
        """End; what was read is kept once nothing is answered any more."""
        with self._changed:
            self._waiting.clear()
            self._ended = True
            self._cancel.set()
            _interrupt()
            self._changed.notify()

    # The main thread.

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._interruptible:
            self._interruptible = False
            raise KeyboardInterrupt

    def _next(self, *, busy: bool) -> QueuedCommand | None:
        """Return the next command, for a load with the flag as it stands for it.

        Args:
            busy: answers are under way: do not wait, and leave alone what cannot be done beside them.

        Returns:
            None at the end, or if there is nothing to be done now.
        """
        with self._changed:
            self._current = None
            while not busy and not self._waiting and not self._ended:
                self._changed.wait()
            if not self._waiting or (busy and not isinstance(self._waiting[0].command, Question)):
                return None
            self._current = entry = self._waiting.popleft()
            if isinstance(entry.command, Load):
                self._cancel.clear()
                if entry.cancelled:
                    self._cancel.set()
            return entry

    def _step(self, answering: RequestRunner | EmbeddingQueue) -> None:
        """Go on with what is being answered; a fault in a pass ends all of it, and not the models."""
        if self._ended:
            self._cancel.set()
        try:
            answering.step()
        except Exception as error:
            answering.abandon(error)
            if isinstance(error, ModelChanged):
                self._load_anew()

    def _do(self, entry: QueuedCommand) -> None:
        """Do it; whatever goes wrong becomes one `Failed`, and the next command is served."""
        try:
            self._try(entry)
        except Exception as error:  # one request must not cost the models, nor the chat
            command = entry.command
            self._send(failure(command.id if isinstance(command, Question) else None, error))

    def _try(self, entry: QueuedCommand) -> None:
        match entry.command:
            case Load() as load:
                self._outbox.pace(load.text_every_s)
                self._load(load)
            case Request() | Embed() as request:
                answering = self._loaded()
                try:
                    answering.submit(request)
                except ModelChanged as error:
                    self._send(failure(request.id, error))
                    answering.abandon(error)  # what others get would be of both files
                    self._load_anew()
                    return
                if entry.cancelled:
                    answering.cancel(request.id)
            case Count() | Tokenize() | Detokenize() as question:
                self._send(self._loaded().answer(question))

    def _load(self, load: Load) -> None:
        try:
            self._interruptible = True
            try:
                if not self._cancel.is_set:
                    self._factory.fetch(load, self._send)
            finally:
                self._interruptible = False
            # Also where a library took the interruption for an error of its own.
            if self._cancel.is_set:
                raise Cancelled  # noqa: TRY301
            # Only now does the old pair go, and its memory is free before the new one is planned.
            if self._answering is not None:
                self._answering.close()
                self._answering = self._last = None
            loaded = self._factory.load(load, self._cancel, self._send)
        except (Cancelled, KeyboardInterrupt):
            stays = self._answering
            self._send(LoadCancelled(None if stays is None else stays.target_name))
            return
        if isinstance(loaded, LoadedEmbedder):
            self._answering = EmbeddingQueue(loaded, self._send)
            self._send(self._answering.ready)
        else:
            self._answering = RequestRunner(loaded, self._send)
            self._send(ready_of(loaded))
        self._last = load

    def _load_anew(self) -> None:
        """Load again what was loaded last; where that fails, as beside a copy that is not done, the next request tries it."""
        load = self._last
        assert load is not None, "it changed"  # noqa: S101
        try:
            self._load(msgspec.structs.replace(load, others=None))
        except Exception as error:
            self._last, self._lost = load, error

    def _loaded(self) -> RequestRunner | EmbeddingQueue:
        if self._answering is None and self._last is not None:
            self._load_anew()
            if self._answering is None and self._lost is not None:
                raise self._lost
        if self._answering is None:
            raise UsageError("no model loaded: choose one with F8 or /model")
        return self._answering


def _interrupt() -> None:
    """Interrupt the main thread from another one; it wakes from a system call, too."""
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, signal.SIGINT)
