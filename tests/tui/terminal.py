"""Terminal: a program in a real pseudo-terminal of 120 x 40, whose other end a test reads; and the chat on the double to run in it."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[2]

COLUMNS, ROWS = 120, 40
CHAT = """
import sys, termios, time, resource
from pathlib import Path
sys.path.insert(0, {root!r})
from localspec.options import LaunchOptions, ReplyOptions
from localspec.engine.remote_engine import RemoteEngine
from localspec.history.archive import History
from localspec.tui.app import ChatApp
from localspec.tui.session import Session
from localspec.session.conversation import SavedConversation
from tests.engine.double import command
history = History(Path({folder!r}))
session = Session(RemoteEngine(command({script!r})), SavedConversation(history), LaunchOptions(pair="toy"), ReplyOptions(), Path("."))
latest = history.latest()
if latest is not None:
    session.resume(latest)
app = ChatApp(session, modes=termios.tcgetattr(0))
app.run()
session.close()
if app.failure:
    raise app.failure
"""


def _environment() -> dict[str, str]:
    """Return this process' variables without a size, which readline sets and which would hold for every terminal."""
    return {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}


class Terminal:
    """A program in a terminal, and what it wrote there."""

    def __init__(self, *command: str, **variables: str) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.start_s = time.monotonic()
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**_environment(), "TERM": "xterm-256color", **variables},
            start_new_session=True,
        )
        os.close(theirs)
        self.fd = ours
        self.seen = b""

    def read(self, wait_s: float = 0.05) -> bytes:
        """Return what was written since."""
        if not select.select([self.fd], [], [], wait_s)[0]:
            return b""
        try:
            new = os.read(self.fd, 1 << 20)
        except OSError:
            return b""
        self.seen += new
        return new

    def until(self, text: str, timeout_s: float = 60.0) -> float:
        """Read until a text is there; return the seconds since the start."""
        end_s = time.monotonic() + timeout_s
        while text.encode() not in self.seen:
            if time.monotonic() > end_s:
                raise TimeoutError(f"no {text!r} in {self.seen[-2000:]!r}")
            self.read()
        return time.monotonic() - self.start_s

    def type(self, text: str) -> None:
        """Send keys."""
        os.write(self.fd, text.encode())

    def end(self) -> int:
        """Read up to the end of the program; return its code."""
        ended = until(lambda: self.read() == b"" and self.process.poll() is not None, PATIENCE_S)
        assert ended, self.seen[-500:]
        while self.read(0.1):
            pass
        return self.process.returncode

    def close(self) -> None:
        """End the program."""
        self.type("\x11")
        end_s = time.monotonic() + 5
        while self.process.poll() is None and time.monotonic() < end_s:
            self.read()
        self.process.kill()
        self.process.wait()
        os.close(self.fd)


@contextmanager
def in_terminal(*command: str, **variables: str) -> Iterator[Terminal]:
    """Start a program in a terminal; it is killed if it outlives the test."""
    started = Terminal(*command, **variables)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()
        os.close(started.fd)
