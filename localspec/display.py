"""Values as people read them, wherever a terminal shows them: text that it cannot obey, durations, bars."""

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def printable(text: str, kept: str = "") -> str:
    """Return a text with `?` for all that a terminal could obey, but for the characters in `kept`."""
    return "".join(each if each.isprintable() or each in kept else "?" for each in text)


def printable_line(text: str) -> str:
    """Return a text as one line that a terminal cannot obey, white space as blanks."""
    return printable(" ".join(text.split()))


def duration_text(seconds: float, decimals: int = 0) -> str:
    """Return a time as people tell it, seconds with so many decimals."""
    if abs(seconds) < 100:
        return f"{seconds:.{decimals}f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def sparkline(values: Sequence[float | None], low: float, high: float) -> str:
    """Return a bar for each value, from `low` to `high`; a blank where there is none."""
    span, top = high - low, len(_BARS) - 1
    return "".join(
        " " if value is None else _BARS[round((value - low) / span * top) if span else top]
        for value in values
    )
