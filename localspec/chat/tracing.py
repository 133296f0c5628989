"""Tracer: whoever writes down how replies come about. It sees all of it, and changes nothing."""

from collections.abc import Sequence
from typing import Protocol

from localspec.decoding.generate import Confirmed
from localspec.decoding.timings import Timings


class Trace(Protocol):
    """What is written down of one reply. Nothing of it ever fails, or waits."""

    def note(self, confirmed: Confirmed, timings: Timings) -> None:
        """Take in what a round confirmed; `timings` hold the times so far."""
        ...

    def end(self, text: str, timings: Timings) -> None:
        """Take in the whole reply; not called where it failed, or nobody took the rest of it."""
        ...


class Tracer(Protocol):
    """Traces one reply after the other."""

    def begin(self, asked: str, tokens: Sequence[int], *, greedy: bool) -> Trace:
        """Start a trace.

        Args:
            asked: what the user said last.
            tokens: the whole prompt.
            greedy: whether the temperature is 0.
        """
        ...
