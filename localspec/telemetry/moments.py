"""Moments as people read and write them; a record may hold one that no calendar has."""

import re
import time
from datetime import datetime

from localspec.errors import UsageError

_UNITS_S = {"h": 3600, "d": 86400, "w": 604800}


def day(at_s: float) -> str:
    """Return the day of a moment, in seconds since 1970, where the user is; `?` where there is none."""
    return minute(at_s).partition(" ")[0]


def minute(at_s: float) -> str:
    """Return day and minute likewise."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s))
    except (OverflowError, ValueError, OSError):
        return "?"


def since(text: str, now_s: float | None = None) -> float:
    """Return the moment that `2026-11-20`, `2026-11-20T08:00`, `12h`, `7d` or `4w` means, in seconds since 1970.

    Raises:
        UsageError: it means none.
    """
    now_s = time.time() if now_s is None else now_s
    found = re.fullmatch(r"(\d{1,6})([hdw])", text.strip())
    if found:
        return now_s - int(found[1]) * _UNITS_S[found[2]]
    try:
        # A date is one of where the user is.
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{text[:40]!r} is not a time: write a date like 2026-11-20, or 12h, 7d, 4w"
        ) from None
