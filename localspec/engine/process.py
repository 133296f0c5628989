"""EngineProcess: one run of the engine's process, and the threads at its pipes.

It gets a session of its own, so that Ctrl-C and a terminal that goes away do not reach it; it ends when its pipe does.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from localspec.display import printable
from localspec.engine.protocol import Bye, EngineDied, Notice
from localspec.engine.wire import MAX_FRAME_BYTES, NOTICES, FrameError, encode

_WORDS = {
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
    if code > 0 and last.startswith(_OWN_WORDS):  # see `llama.last_words`: it knew what to blame
        return printable(last.removeprefix(_OWN_WORDS))[:300]
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        told = _WORDS.get(name, f"was ended by {name}")
    else:
        told = f"ended by itself (exit code {code})"
    detail = printable(last)[:300]
    return f"the engine {told}" + (f"; its last words: {detail}" if detail else "")


_STDERR_KEPT_BYTES = 8192
_DYING_S = 2.0


class EngineProcess:
    """One run of the engine, from its start on.

    Args:
        command: starts it.
        deliver: takes what it tells, in a thread, and in the end `EngineDied`, unless it was ended from here.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, command: Sequence[str], deliver: Callable[[Notice], None]) -> None:
        self._deliver = deliver
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._stderr = b""
        self._ending = False
        self._child = subprocess.Popen(  # noqa: S603 - the command is ours
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        # The reader waits for the listener in the end, so the listener is started before it: the child may be dead already.
        self._listener, *_ = self._threads = [
            threading.Thread(target=work, daemon=True, name=f"localspec-engine-{work.__name__}")
            for work in (self._listen, self._write, self._read)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._child.poll() is None

    def say(self, line: bytes) -> None:
        """Have a frame written; returns at once."""
        self._outbox.put(line)

    def end(self, wait_s: float) -> None:
        """Say goodbye and close the pipe, which ends the child within a pass; kill it if it takes longer."""
        self._ending = True  # before it hears of it: an end that was asked for is no death
        self._outbox.put(encode(Bye()))
        self._outbox.put(None)
        try:
            self._child.wait(wait_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        for thread in self._threads:
            thread.join(_DYING_S)

    def _write(self) -> None:
        assert self._child.stdin is not None  # noqa: S101 - it was asked for
        try:
            with self._child.stdin as pipe:
                while (line := self._outbox.get()) is not None:
                    pipe.write(line)
                    pipe.flush()
        except OSError:
            pass  # the child is gone; whoever reads its pipe says so

    def _read(self) -> None:
        try:
            self._take_notices()
        except Exception as error:  # memory, mostly; else everybody would wait for ever
            reason = " ".join(f"{type(error).__name__} {error}".split())[:200]
            self._give_up(f"lost contact with the engine ({reason})")
        self._outbox.put(None)
        try:
            code = self._child.wait(_DYING_S)
        except subprocess.TimeoutExpired:  # it closed its pipe and lives on
            self._child.kill()
            code = self._child.wait()
        self._listener.join(_DYING_S)
        if not self._ending:
            self._deliver(EngineDied(cause_of_death(code, self._stderr)))

    def _take_notices(self) -> None:
        assert self._child.stdout is not None  # noqa: S101
        with self._child.stdout as pipe:
            # A line without its end is what a dying child was about to say.
            while (line := pipe.readline(MAX_FRAME_BYTES + 1)).endswith(b"\n"):
                try:
                    self._deliver(NOTICES.decode(line))
                except FrameError as error:  # what follows cannot be trusted
                    self._give_up(f"the engine sent an invalid message: {error}")

    def _give_up(self, reason: str) -> None:
        self._deliver(EngineDied(reason))
        self._ending = True
        self._child.kill()

    def _listen(self) -> None:
        assert self._child.stderr is not None  # noqa: S101
        with self._child.stderr as pipe:
            while piece := os.read(pipe.fileno(), 4096):
                self._stderr = (self._stderr + piece)[-_STDERR_KEPT_BYTES:]
