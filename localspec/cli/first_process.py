"""As process 1 of a container, which gets no signal that it has no handler for: a parent that hands signals on, and reaps.

The kernel drops signals to process 1 whose action is the default one, and a handler of Python's waits for the end of a native
pass. So the program itself runs as a child, and is ended as everywhere.
"""

import os
import signal
import sys
from typing import NoReturn

_HANDED_ON = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGCONT")
_BY_THE_KERNEL = (
    0  # of a signal's code: above it, as Ctrl-C at a terminal, the child has it already
)


def run_as_child_of_process_1() -> None:
    """Return in a child if this is process 1 of its namespace, and at once if it is not."""
    if os.getpid() != 1 or sys.platform != "linux":
        return
    numbers = {getattr(signal, name) for name in _HANDED_ON}
    # Before the child is there: a signal that is blocked waits, and one that is not is dropped.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*numbers, signal.SIGCHLD})
    child = os.fork()
    if child:
        _watch(child, numbers)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _watch(child: int, numbers: set[int]) -> NoReturn:
    """Hand signals on to the program, reap what has lost its parent, and end as the program ends."""
    while True:
        ended = _reaped(child)
        if ended is not None:
            os._exit(ended)
        came = signal.sigwaitinfo({*numbers, signal.SIGCHLD})
        if came.si_signo in numbers and came.si_code <= _BY_THE_KERNEL:
            os.kill(child, came.si_signo)


def _reaped(child: int) -> int | None:
    """Return the exit code of the program if it has ended; a signal's is 128 and its number, as a shell has it."""
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 1
        if process == 0:
            return None
        if process == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
