"""`localspec`, and `python -m localspec`: the command line.

Ctrl-C means code 130 from here on; while modules are being imported, nobody else could catch it.
"""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

_INTERRUPTED = 130
_NO_WINDOWS = "localspec: Windows is not supported: use Linux or macOS"


def main() -> NoReturn:
    """Import the command line and run it."""
    if sys.platform == "win32":  # it has no fcntl, by which files are locked
        sys.exit(_NO_WINDOWS)
    # numpy's BLAS multiplies nothing here, and its threads would take address space at every start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    before = signal.getsignal(signal.SIGINT)
    usual = before is signal.default_int_handler  # and not ignored, as in a shell's background job
    if usual:
        signal.signal(signal.SIGINT, _leave)
    from localspec.cli import main as run  # noqa: PLC0415 - only now is it watched over

    if usual:
        signal.signal(signal.SIGINT, before)
    run()


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    os._exit(_INTERRUPTED)  # nothing is open yet


if __name__ == "__main__":
    main()
