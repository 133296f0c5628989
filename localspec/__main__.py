"""`localspec`, and `python -m localspec`: the command line.

Ctrl-C means code 130 from here on; while modules are being imported, nothing else could catch it.
"""

# ruff: noqa: PLC0415, PTH123, SIM115 - what stands in for a closed stream
# is open to the end

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from localspec.cli import INTERRUPTED, STDOUT_CLOSED, leave

_NO_WINDOWS = "localspec: Windows is not supported: use Linux or macOS"


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    if sys.platform == "win32":  # it has no fcntl, by which files are locked
        sys.exit(_NO_WINDOWS)
    if os.getpid() == 1:
        from localspec.cli.first_process import run_as_child_of_process_1

        run_as_child_of_process_1()
    if sys.stdout is None:  # closed by whoever started us: there is nobody to answer
        sys.exit(STDOUT_CLOSED)
    _use_unbreakable_streams()
    code = 0
    try:
        code = _run()
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except OSError as error:
        closed = isinstance(error, BrokenPipeError)
        code = STDOUT_CLOSED if closed else code or _report_failure(error)
        # What is still in Python's buffer goes nowhere: it would be tried again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if code == INTERRUPTED:
        # Where Ctrl-C met an exec(), which makes every dataclass, Python ends itself by SIGINT, though it was caught.
        leave(code)
    sys.exit(code)


def _run() -> int:
    # numpy's BLAS multiplies nothing here, and its threads would take address space at every start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    before = signal.getsignal(signal.SIGINT)
    usual = before is signal.default_int_handler  # and not ignored, as in a shell's background job
    if usual:
        signal.signal(signal.SIGINT, _leave)
    from localspec.cli.main import main as run  # only now is it watched over

    if usual:
        signal.signal(signal.SIGINT, before)
    return run()


def _report_failure(error: OSError) -> int:
    from localspec.cli.main import io_failed

    return io_failed(error)


def _use_unbreakable_streams() -> None:
    """Open what was closed onto nothing, and let a stream replace characters that it has not.

    A closed stderr is no reason to give no answer; and were its number left free, the next
    file to be opened would get it, and the messages of native code with it.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    os._exit(INTERRUPTED)  # nothing is open yet


if __name__ == "__main__":
    main()
