"""What precedes the screens: whether there is a terminal for them, and what becomes of keys until they are there."""

import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


def has_screens() -> bool:
    """Return whether there is a terminal that screens can be drawn on."""
    # Textual draws on stderr: redirected into a file, it would leave the terminal dark.
    streams = (sys.stdin, sys.stdout, sys.stderr)
    terminals = all(stream is not None and stream.isatty() for stream in streams)
    return terminals and os.environ.get("TERM", "") not in {"", "dumb"}


@contextmanager
def waiting_keys() -> Iterator[Callable[[], None]]:
    """Have keys wait in the terminal, unseen, until the screens read them; yield what gives the terminal back as it was.

    Ctrl+C interrupts. Without this, Enter would come as a new line, and Ctrl+D not at all.
    """
    before, modes = termios.tcgetattr(0), termios.tcgetattr(0)
    modes[0] &= ~termios.ICRNL
    modes[3] &= ~(termios.ECHO | termios.ICANON)

    def give_back() -> None:
        with suppress(termios.error):  # it may be gone
            termios.tcsetattr(0, termios.TCSANOW, before)

    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    termios.tcsetattr(0, termios.TCSANOW, modes)
    try:
        yield give_back
    finally:
        give_back()
