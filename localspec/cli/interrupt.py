"""Ctrl-C while native code runs: a flag that llama.cpp watches. And how to be told to end."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from localspec.cli import INTERRUPTED
from localspec.decoding.cancel import CancelFlag


@contextmanager
def cancel_on_interrupt(cancel: CancelFlag) -> Iterator[None]:
    """Let Ctrl-C set `cancel`, also in the middle of a native call; a second one ends the program.

    Python runs its signal handlers only between bytecodes of the main thread, and that thread
    may spend seconds in one prefill. So the signal's number is written to a pipe, which Python
    does at once, and a thread that reads the pipe sets the flag.

    Where Ctrl-C is ignored, as in a shell's background jobs, it stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def watch() -> None:
        while number := os.read(reader, 1):
            if number[0] != signal.SIGINT:
                continue
            if cancel.is_set:
                os._exit(INTERRUPTED)
            cancel.set()

    before = signal.signal(signal.SIGINT, lambda *_: None)
    fd_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watcher = threading.Thread(target=watch, daemon=True, name="localspec-interrupt")
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(fd_before)
        signal.signal(signal.SIGINT, before)
        os.close(writer)
        watcher.join()
        os.close(reader)


@contextmanager
def unwind_on_terminate() -> Iterator[None]:
    """Let SIGTERM and a terminal that goes away end the program by way of its `finally`s.

    By default they end it on the spot, and a download leaves its half file, and pip, behind.
    """
    before = {}
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            before[number] = signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
