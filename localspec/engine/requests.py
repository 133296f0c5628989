"""Requests: commands wait here for their turn; a cancel overtakes them, and the end of the pipe ends all.

A thread reads, so that a cancel is heard while replies are made or models are loaded. It has one reply
ended, sets the flag that loading and every pass watch, and interrupts what watches no flag (a download).
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import BinaryIO

from localspec.chat.request import Request
from localspec.decoding.cancel import CancelFlag
from localspec.engine.protocol import Bye, Cancel, Command, Load, Question, SaveState
from localspec.engine.wire import COMMANDS, MAX_FRAME_BYTES, FrameError


class Requests:
    """The commands of one client, one after the other.

    Args:
        pipe: where they come from.
        cancel: set while a load, or the client, is to stop.
        interrupt: called when it was set, and at the end: stops what does not watch the flag.
        complain: called with what is no frame.
    """

    def __init__(
        self,
        pipe: BinaryIO,
        cancel: CancelFlag,
        interrupt: Callable[[], None],
        complain: Callable[[FrameError], None],
    ) -> None:
        self._pipe = pipe
        self._cancel = cancel
        self._interrupt = interrupt
        self._complain = complain
        self._changed = threading.Condition()
        self._waiting: deque[Command] = deque()
        self._cancelled: set[int] = set()  # ids of requests
        self._cancelled_loads: set[int] = set()  # of waiting commands, by identity
        self._current: Command | None = None
        self._ended = False
        self._cancel_reply: Callable[[int], None] = lambda _number: None
        self.cut_off = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True, name="localspec-requests")

    def start(self, cancel_reply: Callable[[int], None]) -> None:
        """Begin to read.

        Args:
            cancel_reply: ends the answer to a request, by its id, that is being made.
        """
        self._cancel_reply = cancel_reply
        self._thread.start()

    def next(self, *, busy: bool) -> Command | None:
        """Return the next command, with the flag as it stands for it.

        Args:
            busy: answers are under way: do not wait, and leave alone what cannot be done beside them.

        Returns:
            None at the end, or if there is nothing to be done now.
        """
        with self._changed:
            self._current = None
            while not busy and not self._waiting and not self._ended:
                self._changed.wait()
            if not self._waiting or (busy and not isinstance(self._waiting[0], Question)):
                return None
            self._current = self._waiting.popleft()
            if isinstance(self._current, Load):
                self._cancel.clear()
                if id(self._current) in self._cancelled_loads:
                    self._cancelled_loads.remove(id(self._current))
                    self._cancel.set()
            return self._current

    @property
    def ended(self) -> bool:
        """Whether the client is gone, or said goodbye."""
        return self._ended

    def is_cancelled(self, number: int) -> bool:
        """Say whether a request was cancelled before it was taken; once."""
        with self._changed:
            if number not in self._cancelled:
                return False
            self._cancelled.remove(number)
            return True

    def end(self) -> None:
        """Stop everything and drop what waits, as when the client is gone."""
        with self._changed:
            self._waiting.clear()
            self._stop()
        self.cut_off.set()

    def _read(self) -> None:
        while line := self._pipe.readline(MAX_FRAME_BYTES + 1):
            if not line.endswith(b"\n"):
                if len(line) <= MAX_FRAME_BYTES:
                    break  # the client died in the middle of it
                self._skip_line()
                self._complain(FrameError(f"a frame has more than {MAX_FRAME_BYTES} bytes"))
                continue
            try:
                command = COMMANDS.decode(line)
            except FrameError as error:
                self._complain(error)
                continue
            if isinstance(command, Bye):
                self._bye()
                return
            self._take(command)
        self.end()

    def _skip_line(self) -> None:
        while not (piece := self._pipe.readline(1 << 16)).endswith(b"\n") and piece:
            pass

    def _take(self, command: Command) -> None:
        with self._changed:
            if not isinstance(command, Cancel):
                self._waiting.append(command)
                self._changed.notify()
            elif command.id is None:
                self._cancel_loads()
            elif self._waits(command.id) or self._is_current(command.id):
                self._cancelled.add(command.id)
        if isinstance(command, Cancel) and command.id is not None:
            self._cancel_reply(command.id)

    def _waits(self, number: int) -> bool:
        return any(isinstance(each, Request) and each.id == number for each in self._waiting)

    def _is_current(self, number: int) -> bool:
        return isinstance(self._current, Request) and self._current.id == number

    def _cancel_loads(self) -> None:
        waiting = (each for each in self._waiting if isinstance(each, Load))
        self._cancelled_loads.update(id(each) for each in waiting)
        if isinstance(self._current, Load):
            self._cancel.set()
            self._interrupt()

    def _bye(self) -> None:
        """End, but save first what is still to be saved."""
        with self._changed:
            to_save = [each for each in self._waiting if isinstance(each, SaveState)]
            self._waiting = deque(to_save)
            if not isinstance(self._current, SaveState):
                self._stop()
            self._ended = True
            self._changed.notify()

    def _stop(self) -> None:
        self._ended = True
        self._cancel.set()
        self._interrupt()
        self._changed.notify()
