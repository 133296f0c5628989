"""Moments as people read them; a database may hold one that no calendar has."""

import time


def day(at_s: float) -> str:
    """Return the day of a moment, in seconds since 1970, where the user is; `?` where there is none."""
    return _written(at_s, "%Y-%m-%d")


def minute(at_s: float) -> str:
    """Return day and minute likewise."""
    return _written(at_s, "%Y-%m-%d %H:%M")


def _written(at_s: float, form: str) -> str:
    try:
        return time.strftime(form, time.localtime(at_s))
    except (OverflowError, ValueError, OSError):
        return "?"
