"""Requests: commands wait here for their turn; a cancel overtakes them, and the end of the pipe ends all.

A thread reads, so that a cancel is heard while a reply is made. It sets the flag that a running pass
watches, and interrupts what watches no flag (a download).
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import BinaryIO

from localspec.decoding.cancel import CancelFlag
from localspec.engine.protocol import Ask, Bye, Cancel, Command, Count, Load, SaveState
from localspec.engine.wire import COMMANDS, MAX_FRAME_BYTES, FrameError, decode


class Requests:
    """The commands of one client, one after the other.

    Args:
        pipe: where they come from.
        cancel: set while the current request, or the client, is to stop; clear otherwise.
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
        self._cancelled: set[int] = set()  # of waiting commands, by identity
        self._current: Command | None = None
        self._ended = False
        self.cut_off = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True, name="localspec-requests")

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def next(self) -> Command | None:
        """Wait for a command and return it, with the flag as it stands for this one; None at the end."""
        with self._changed:
            self._current = None
            while not self._waiting and not self._ended:
                self._changed.wait()
            if not self._waiting:
                return None
            self._current = self._waiting.popleft()
            if id(self._current) in self._cancelled:
                self._cancelled.remove(id(self._current))
                self._cancel.set()
            else:
                self._cancel.clear()
            return self._current

    def end(self) -> None:
        """Stop the current request and drop the others, as when the client is gone."""
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
                command = decode(line, COMMANDS)
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
                return
            self._cancelled.update(id(each) for each in self._waiting if _meant(each, command))
            if self._current is not None and _meant(self._current, command):
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


def _meant(command: Command, cancel: Cancel) -> bool:
    if cancel.id is None:
        return isinstance(command, Load)
    return isinstance(command, Ask | Count) and command.id == cancel.id
