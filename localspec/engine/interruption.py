"""Interruption: ends, in the main thread, what watches no flag, such as a download; nothing else."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """Turns SIGINT into KeyboardInterrupt where that is allowed, and into nothing elsewhere.

    To be made in the main thread.
    """

    def __init__(self) -> None:
        self._allowed = False
        signal.signal(signal.SIGINT, self._on_signal)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let an interruption raise KeyboardInterrupt in here, once."""
        self._allowed = True
        try:
            yield
        finally:
            self._allowed = False

    def interrupt(self) -> None:
        """Interrupt the main thread from another one; it wakes from a system call, too."""
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, signal.SIGINT)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._allowed:
            self._allowed = False
            raise KeyboardInterrupt
