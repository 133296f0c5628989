"""What a program of ours printed, among the lines of drivers, which print whenever they like."""

import json
from contextlib import suppress
from typing import Any


def last_said(printed: str, *begins: str) -> Any:
    """Return what the last line of ours says; None if there is none.

    Args:
        printed: all that came.
        begins: how a line of ours, which is JSON, begins: one of these.
    """
    for line in reversed(printed.splitlines()):
        if line.startswith(begins):
            with suppress(ValueError):  # a driver's, or cut short
                return json.loads(line)
    return None
