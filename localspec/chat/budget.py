"""Budget: how much a template may do, in units that cost about the same time and memory everywhere.

A template is a stranger's program, and no clock is read: whether one renders depends on it and on the conversation
alone. A unit is some fifty nanoseconds, or eight characters. Knows no jinja2.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

STEP = 16
"""Units of a call or a filter."""
TURN = 8
"""Units of a turn of a loop."""
BASE = 8 << 20
PER_UNIT = 128
"""What a conversation adds, for each unit that it weighs."""

_left: ContextVar[list[int]] = ContextVar("left")


@contextmanager
def budget(given: object = None) -> Iterator[None]:
    """Begin a budget for what is done within; a larger one where more was given."""
    units = BASE + PER_UNIT * weight(given, 1 << 40)
    token = _left.set([units])
    try:
        yield
    finally:
        _left.reset(token)


def spend(units: int) -> None:
    """Take units off the budget.

    Raises:
        OverflowError: it is used up.
    """
    left = _left.get()
    left[0] -= units
    if left[0] < 0:
        raise OverflowError("it does more work, or makes more text, than a chat template may")


def made(value: object) -> None:
    """Take what a new value weighs off the budget."""
    spend(1 + (len(value) >> 3) if type(value) is str else weight(value, _left.get()[0]))


def counted(items: Iterable[object]) -> Iterator[object]:
    """Yield items, each a turn of a loop."""
    for item in items:
        spend(TURN)
        yield item


def weight(value: object, most: int) -> int:
    """Return what a value weighs with all that is in it, as often as it is in it; anything above `most` where it is more."""
    total, waiting = 0, [value]
    while waiting and total <= most:
        each = waiting.pop()
        total += 1
        if isinstance(each, str):
            total += len(each) >> 3
        elif isinstance(each, int):
            total += each.bit_length() >> 6
        elif isinstance(each, dict):
            total += STEP + len(each)
            waiting.extend(each)
            waiting.extend(each.values())
        elif isinstance(each, list | tuple):
            total += STEP + len(each)
            waiting.extend(each)
        elif type(each).__name__ == "Namespace":  # jinja2's; prints what is in it
            waiting.append(object.__getattribute__(each, "_Namespace__attrs"))
    return total
