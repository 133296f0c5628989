"""Trial: one fault that meets one command."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from lab.faults.ground import Ground

Act = Callable[[Ground, Random], str]
"""Does the harm, sees that nothing is lost and that the next start works; returns what was said of it."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One row of the table.

    Args:
        fault: what goes wrong.
        verb: the command that it meets.
        act: see `Act`; fails by an AssertionError.
        short: whether every test run tries it.
    """

    fault: str
    verb: str
    act: Act
    short: bool = False


TRIALS: list[Trial] = []


def trial(verb: str, fault: str, *, short: bool = False) -> Callable[[Act], Act]:
    """Return what makes a row of the table of a function."""

    def register(act: Act) -> Act:
        TRIALS.append(Trial(fault, verb, act, short))
        return act

    return register
