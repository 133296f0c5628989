"""Links: lines to another process and back, over descriptors that never block. A child's pipes, or a server's socket.

No thread waits here: `sources` and `sink` are for an event loop to watch, or for `wait`.
"""

import os
import select
import signal
import socket
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress

from localspec.display import printable
from localspec.engine.protocol import MAX_FRAME_BYTES, Bye, FrameError, Ready, encode

_PIECE_BYTES = 1 << 16


class Link(ABC):
    """Lines over a pair of descriptors.

    Args:
        source: where lines come from.
        sink: where they go.
        pid: of the process at the other end.

    Attributes:
        ended: whether the other end was closed.
    """

    def __init__(self, source: int, sink: int, pid: int) -> None:
        self.sources: tuple[int, ...] = (source,)
        self.sink = sink
        self.pid = pid
        self.ended = False
        self._unread = bytearray()
        self._unsent = bytearray()
        self._sending = threading.Lock()
        for each in (source, sink):
            os.set_blocking(each, False)

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return not self.ended

    @property
    def blocked(self) -> bool:
        """Whether something waits for room to be sent."""
        return bool(self._unsent)

    def send(self, line: bytes = b"") -> None:
        """Send a line behind those that wait, as far as there is room; what is left goes with the next call. Any thread may call it."""
        with self._sending:
            if self.ended:
                return
            self._unsent += line
            try:
                while self._unsent:
                    del self._unsent[: os.write(self.sink, self._unsent[:_PIECE_BYTES])]
            except BlockingIOError:
                pass
            except OSError:  # the process is gone, which `read` notices
                self._unsent.clear()

    def read(self) -> list[bytes]:
        """Return the lines that are here by now; a line without its end is what a dying process was about to send.

        Raises:
            FrameError: a line is longer than a frame may be.
        """
        try:
            piece = os.read(self.sources[0], _PIECE_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            piece = b""
        self.ended = not piece
        if b"\n" not in piece:
            self._unread += piece
            if len(self._unread) > MAX_FRAME_BYTES:
                raise FrameError(f"a frame has more than {MAX_FRAME_BYTES} bytes")
            return []
        *lines, rest = bytes(self._unread + piece).split(b"\n")
        self._unread = bytearray(rest)
        return lines

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until something is here, sending what waits meanwhile; return whether something is."""
        watched = dict.fromkeys(self.sources, select.POLLIN)
        if self._unsent:
            watched[self.sink] = watched.get(self.sink, 0) | select.POLLOUT
        poll = select.poll()
        for descriptor, events in watched.items():
            poll.register(descriptor, events)
        ready = poll.poll(None if timeout_s is None else 1000 * timeout_s)
        if self._unsent:
            self.send()
        return any(event & ~select.POLLOUT for _, event in ready)

    def cause(self) -> str:
        """Return why it ended, on one line."""
        return f"the server that answered (process {self.pid}) is gone"

    @abstractmethod
    def end(self, wait_s: float) -> None:
        """Close it, within `wait_s`."""


class ServerLink(Link):
    """The engine of a server that has the models in memory; closing it ends what was asked, and the server goes on.

    Args:
        connection: to the server.
        pid: its process.

    Attributes:
        ready: what it has loaded.
        unloaded: whether it unloaded that, and has to load it again.
    """

    ready: Ready
    unloaded = False

    def __init__(self, connection: socket.socket, pid: int) -> None:
        super().__init__(connection.fileno(), connection.fileno(), pid)
        self._connection = connection

    def end(self, wait_s: float) -> None:  # noqa: ARG002 - there is nothing to wait for
        """Close the connection."""
        self._connection.close()


_STDERR_BYTES = 8192
_DYING_S = 2.0


class ChildLink(Link):
    """A process of our own, with a session of its own: Ctrl-C and a terminal that goes away do not reach it. It ends when its pipe does.

    Args:
        command: starts it.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._process = process = subprocess.Popen(  # noqa: S603 - the command is ours
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None  # noqa: S101 - they are pipes
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        self._pipes = (process.stdin, process.stdout, process.stderr)
        super().__init__(process.stdout.fileno(), process.stdin.fileno(), process.pid)
        self._errors = process.stderr.fileno()
        os.set_blocking(self._errors, False)
        self.sources = (*self.sources, self._errors)
        self._stderr = b""

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def read(self) -> list[bytes]:
        """Return the lines that are here by now; see `Link`."""
        lines = super().read()
        if not lines:  # else whoever watches calls again for what is left on stderr
            self._read_errors()
        return lines

    def _read_errors(self) -> None:
        with suppress(BlockingIOError):
            while piece := os.read(self._errors, _PIECE_BYTES):
                self._stderr = (self._stderr + piece)[-_STDERR_BYTES:]
            self.sources = self.sources[:1]

    def cause(self) -> str:
        """Return of what it died."""
        code = self._wait(_DYING_S)  # it may have closed its pipe and live on
        self._read_errors()
        return cause_of_death(code, self._stderr)

    def end(self, wait_s: float) -> None:
        """Have it end, within a pass, and kill it if that takes longer than `wait_s`."""
        if self._pipes[0].closed:
            return
        self.send(encode(Bye()))
        end_s = time.monotonic() + wait_s
        with suppress(FrameError):
            while not self.ended and (left_s := end_s - time.monotonic()) > 0:
                if self.wait(left_s):
                    self.read()
        self._wait(max(0.0, end_s - time.monotonic()))
        for pipe in self._pipes:
            with suppress(OSError):
                pipe.close()

    def _wait(self, wait_s: float) -> int:
        """Return its exit code; one that runs for longer is killed."""
        try:
            return self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


_CAUSES = {
    "SIGKILL": "was killed (SIGKILL), most likely because memory ran out",
    "SIGSEGV": "crashed (SIGSEGV)",
    "SIGBUS": "crashed (SIGBUS)",
    "SIGABRT": "gave up (SIGABRT)",
    "SIGILL": "crashed (SIGILL): llama.cpp was built for another CPU",
    "SIGTERM": "was terminated (SIGTERM)",
}
_OWN_WORDS = "localspec: "


def cause_of_death(code: int, stderr: bytes) -> str:
    """Return one line.

    Args:
        code: as `Popen` has it, negative for a signal.
        stderr: the end of what it wrote there.
    """
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "")
    if code > 0 and last.startswith(_OWN_WORDS):  # see `llama.crash_report`: it knew what to blame
        return printable(last.removeprefix(_OWN_WORDS))[:300]
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        cause = _CAUSES.get(name, f"was ended by {name}")
    else:
        cause = f"ended by itself (exit code {code})"
    detail = printable(last)[:300]
    return f"the engine {cause}" + (f"; its last words: {detail}" if detail else "")
