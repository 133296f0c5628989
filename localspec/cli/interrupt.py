"""Ctrl-C while native code runs: a flag that llama.cpp watches. And signals that end the program."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localspec.decoding.cancel import CancelFlag


class Interrupts:
    """Ends an engine's work at Ctrl-C and other signals; see `launch.engine.Signals`.

    Args:
        also: further signals that do so during loading and answering.

    Attributes:
        is_set: whether one came.
        received: which ones did.
    """

    def __init__(self, also: Iterable[signal.Signals] = ()) -> None:
        self.is_set = False
        self.received: list[int] = []
        self._also = tuple(also)
        self._stop: Callable[[], None] = lambda: None
        self._runs = False

    def set(self) -> None:
        """End what runs."""
        self.is_set = True
        self._stop()

    def planning(self) -> AbstractContextManager[None]:
        """See `Signals`: Ctrl-C raises KeyboardInterrupt, others SystemExit."""
        return unwind_on_terminate()

    @contextmanager
    def running(self, stop: Callable[[], None]) -> Iterator[None]:
        """See `Signals`; a second signal ends the program. An outer block is stopped, too."""
        before = self._stop

        def both() -> None:
            before()
            stop()

        self._stop = both
        if self.is_set:
            stop()
        try:
            if self._runs:
                yield
                return
            self._runs = True
            try:
                with cancel_on_interrupt(self, self._also) as self.received:
                    yield
            finally:
                self._runs = False
        finally:
            self._stop = before


@contextmanager
def cancel_on_interrupt(
    cancel: "CancelFlag | Interrupts", also: Iterable[signal.Signals] = ()
) -> Iterator[list[int]]:
    """Let Ctrl-C set `cancel`, also in the middle of a native call; a second one ends the program.

    Python runs its signal handlers only between bytecodes of the main thread, and that thread
    may spend seconds in one prefill. So the signal's number is written to a pipe, which Python
    does at once, and a thread that reads the pipe sets the flag.

    An ignored signal, as Ctrl-C in a shell's background jobs, stays ignored.

    Args:
        cancel: to set.
        also: further signals that set it.

    Yields:
        The numbers of the signals that came.
    """
    watched = [
        number
        for number in (signal.SIGINT, *also)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    received: list[int] = []
    if not watched:
        yield received
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def watch() -> None:
        while number := os.read(reader, 1):
            if number[0] not in watched:
                continue
            received.append(number[0])
            if cancel.is_set:
                os._exit(code_of(number[0]))
            cancel.set()

    before = {number: signal.signal(number, lambda *_: None) for number in watched}
    fd_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watcher = threading.Thread(target=watch, daemon=True, name="localspec-interrupt")
    watcher.start()
    try:
        yield received
    finally:
        signal.set_wakeup_fd(fd_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(writer)
        watcher.join()
        os.close(reader)


def code_of(number: int) -> int:
    """Return the exit code of a program that a signal ended; Ctrl-C's is `INTERRUPTED`."""
    return 128 + number


@contextmanager
def unwind_on_terminate() -> Iterator[None]:
    """Let SIGTERM and a terminal that goes away end the program by way of its `finally`s.

    By default they end it on the spot, and a download leaves its half file, and pip, behind.
    """
    before = {}
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            before[number] = signal.signal(number, lambda number, _: sys.exit(code_of(number)))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
