"""BoundedProcess: a module that answers questions in a process of its own, so that what never ends, or takes all memory, or crashes, ends that alone.

The operating system ends the process: by more than its processor's time, its time by the clock, or its memory, and
together with the process that asks. The next question starts another one.
"""

import atexit
import fcntl
import json
import marshal
import os
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NO_MEMORY = 12
"""Exit code, as the error number of that name: 1 is any error's of Python."""
_BUFFER_BYTES = 1 << 20
"""Of what is read and written at once: by default 8 KiB, so that a long question takes many turns."""
_SIZE_BYTES = 8


@dataclass(frozen=True, slots=True)
class ProcessBounds:
    """What one answer may take.

    Args:
        most_s: of a processor's time.
        most_clock_s: by the clock, for what sleeps; a busy machine may need more than `most_s`.
        most_bytes: of address space; macOS does not hold a process to it.
    """

    most_s: float
    most_clock_s: float
    most_bytes: int


class ProcessLostError(Exception):
    """A question ended the process.

    Args:
        reason: what happened.
        late: whether it took too long.
    """

    def __init__(self, reason: str, *, late: bool = False) -> None:
        super().__init__(reason)
        self.late = late


class BoundedProcess:
    """The process of a module that calls `answer_questions`; any thread may ask, one after the other.

    Args:
        file: of the module. It is run by its path, so that it imports no more than it names.
    """

    def __init__(self, file: Path) -> None:
        self._command = (sys.executable, "-P", str(file))
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        atexit.register(self.end)

    def start(self) -> None:
        """Start the process, so that it is ready for the first question."""
        if self._lock.acquire(blocking=False):  # else it is answering
            try:
                with suppress(OSError):  # said where something is asked
                    self._started()
            finally:
                self._lock.release()

    def ask(self, question: Any, bounds: ProcessBounds) -> Any:
        """Return the answer; both are values as JSON has them, of Python's own types.

        Raises:
            ProcessLostError: there is none.
        """
        limits = (bounds.most_s, bounds.most_clock_s, bounds.most_bytes)
        sent = marshal.dumps((limits, question))  # JSON would take longer than most answers do
        with self._lock:
            try:
                return self._exchange(sent, bounds)
            except OSError as error:
                self.end()
                reason = f"its process cannot be used ({error.strerror})"
                raise ProcessLostError(reason) from error
            except BaseException:  # Ctrl-C between question and answer, too
                self.end()
                raise

    def end(self) -> None:
        """End the process, whatever it does."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._child is None or self._child.poll() is not None:
            self.end()
            self._child = subprocess.Popen(  # noqa: S603 - the command is ours
                self._command,
                bufsize=_BUFFER_BYTES,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is not for it
            )
        return self._child

    def _exchange(self, question: bytes, bounds: ProcessBounds) -> Any:
        child = self._started()
        assert child.stdin is not None  # noqa: S101 - it is a pipe
        assert child.stdout is not None  # noqa: S101
        child.stdin.write(len(question).to_bytes(_SIZE_BYTES) + question)
        child.stdin.flush()
        line = child.stdout.readline()
        if line.endswith(b"\n"):
            return json.loads(line)
        raise _lost(child.wait(), bounds)


def _lost(code: int, bounds: ProcessBounds) -> ProcessLostError:
    """Return the error about a process that has ended with an exit code, or by a signal, in the middle of an answer."""
    if code in {-signal.SIGPROF, -signal.SIGALRM}:
        most_s = bounds.most_s if code == -signal.SIGPROF else bounds.most_clock_s
        return ProcessLostError(f"it takes more than {most_s:g} s", late=True)
    if code in {_NO_MEMORY, -signal.SIGABRT}:  # how Python, below, and Rust end without memory
        return ProcessLostError(f"it takes more than {bounds.most_bytes >> 20} MiB of memory")
    return ProcessLostError(f"it ended its process ({_signal_name(-code) or f'exit code {code}'})")


def _signal_name(number: int) -> str:
    """Return the name of a signal; none for what is no signal."""
    return next((each.name for each in signal.Signals if each == number), "")


def answer_questions(answer: Callable[[Any], Any]) -> None:
    """Answer each question of stdin with a line, until there are no more."""
    with open(0, "rb", _BUFFER_BYTES, closefd=False) as questions:
        while size := questions.read(_SIZE_BYTES):
            # They come from the program itself; an answer, which a stranger's template may forge, is JSON.
            bounds, question = marshal.loads(questions.read(int.from_bytes(size)))  # noqa: S302
            with _bounds(*bounds):
                try:
                    text = json.dumps(answer(question), ensure_ascii=False)
                except MemoryError:
                    os._exit(_NO_MEMORY)
            sys.stdout.buffer.write(text.encode(errors="surrogatepass") + b"\n")
            sys.stdout.buffer.flush()


@contextmanager
def _bounds(most_s: float, most_clock_s: float, most_bytes: int) -> Iterator[None]:
    """Hold this process to bounds; reading the next question is no part of it."""
    before, hardest = resource.getrlimit(resource.RLIMIT_AS)
    with suppress(ValueError, OSError):  # it is held to less, or the system has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, hardest))
    # Their signals end this process, whatever runs: nothing here takes them.
    signal.setitimer(signal.ITIMER_PROF, most_s)
    signal.setitimer(signal.ITIMER_REAL, most_clock_s)
    _end_with_asker(True)
    yield
    _end_with_asker(False)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.setitimer(signal.ITIMER_PROF, 0)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (before, hardest))


def _end_with_asker(on: bool) -> None:
    """Have Linux end this process, in the middle of an answer as well, when the one that asks is gone: stdin has no writer then."""
    if sys.platform != "linux":  # elsewhere that signal does nothing by default: the clock ends it
        return
    flags = fcntl.fcntl(0, fcntl.F_GETFL)
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_ASYNC if on else flags & ~os.O_ASYNC)
    if on:
        gone = select.poll()
        gone.register(0, 0)
        if gone.poll(0):
            sys.exit()
