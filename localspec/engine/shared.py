"""SharedEngine: the engine of a server that runs, asked over its Unix socket in the words that one's own is asked in.

Such a server answers `Load` at once: `Ready` where just that is in its memory, `Loading` before it where it was let go
meanwhile and the first question has it loaded again, and else `Failed`. Waits for that answer, not long, and for nothing after it.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO

import msgspec

from localspec.engine.protocol import EngineDied, Failed, Load, Loading, Notice, Ready
from localspec.engine.wire import MAX_FRAME_BYTES, NOTICES, FrameError, encode
from localspec.options import LaunchOptions

_PATIENCE_S = 2.0
_DYING_S = 2.0


class SharedEngine:
    """A connection to a server that has the models in memory.

    Args:
        connection: to it.
        stream: what comes from there.
        pid: the server's process.
        ready: what it has.
        rests: whether it let that go, and has to load it again.
    """

    def __init__(
        self,
        connection: socket.socket,
        stream: BinaryIO,
        pid: int,
        ready: Ready,
        *,
        rests: bool = False,
    ) -> None:
        self.pid = pid
        self.ready = ready
        self.rests = rests
        self.alive = True
        self._connection = connection
        self._stream = stream
        self._ending = False
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None

    def listen(self, deliver: Callable[[Notice], None]) -> None:
        """Have what it says delivered by a thread from now on, and in the end `EngineDied`, unless it was ended from here."""
        self._thread = threading.Thread(
            target=self._read, args=(deliver,), daemon=True, name="localspec-shared-engine"
        )
        self._thread.start()

    def say(self, line: bytes) -> None:
        """Send a frame; where nobody is there any more, `EngineDied` says so."""
        with self._writing, suppress(OSError):
            self._connection.sendall(line)

    def end(self, wait_s: float) -> None:
        """Close the connection, which ends what was asked on it; the server goes on."""
        self._ending = True
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join(wait_s or _DYING_S)
        else:
            self._stream.close()
        self._connection.close()

    def _read(self, deliver: Callable[[Notice], None]) -> None:
        reason = f"the server that answered (process {self.pid}) is gone"
        try:
            with self._stream as stream:
                while (line := stream.readline(MAX_FRAME_BYTES + 1)).endswith(b"\n"):
                    deliver(NOTICES.decode(line))
        except OSError:
            pass
        except FrameError as error:  # what follows cannot be trusted
            reason = f"the server (process {self.pid}) speaks nonsense: {error}"
        self.alive = False
        if not self._ending:
            deliver(EngineDied(reason))


def shared_engine(path: str, pid: int, options: LaunchOptions) -> SharedEngine | None:
    """Return a connection to a server that has this in memory; None where it has not, or does not answer.

    Args:
        path: of its socket.
        pid: its process.
        options: what is to be loaded, by names that mean the same everywhere, see `launch.names`.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream = connection.makefile("rb")
    try:
        connection.settimeout(_PATIENCE_S)
        connection.connect(path)
        connection.sendall(encode(Load(options)))
        ready, rests = _answer(stream)
    except (
        OSError,
        ValueError,
        FrameError,
    ):  # also of another version; ValueError: a NUL in the path
        ready, rests = None, False
    if ready is None:
        stream.close()
        connection.close()
        return None
    connection.settimeout(None)
    answers = "loads the model again and answers" if rests else "answers"
    note = f"the server that runs (process {pid}) {answers}; --own loads the model here instead"
    told = msgspec.structs.replace(ready, notes=(note,), load_s=0.0)
    return SharedEngine(connection, stream, pid, told, rests=rests)


def _answer(stream: BinaryIO) -> tuple[Ready | None, bool]:
    """Return what a server has, None where it has not what is wanted; and whether it has to load it again."""
    rests = False
    while (line := stream.readline(MAX_FRAME_BYTES + 1)).endswith(b"\n"):
        match NOTICES.decode(line):
            case Ready() as ready:
                return ready, rests
            case Loading():
                rests = True
            case Failed():
                break
    return None, rests
