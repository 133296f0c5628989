"""The command line: parse, call, print. One file per verb family, imported when it is called."""

import os
import sys
from typing import NoReturn

CUT_OFF = 6
INTERRUPTED = 130
STDOUT_CLOSED = 141


def leave(code: int) -> NoReturn:
    """End without the interpreter's own end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, MemoryError):
            continue
    os._exit(code)
