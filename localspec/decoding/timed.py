"""timed: where the time of a round goes, whoever makes its passes."""

from collections.abc import Generator
from typing import TypeVar

from localspec.decoding.model import Logits, Pass
from localspec.decoding.timings import Timings

T = TypeVar("T")


def timed(asking: Generator[Pass, Logits, T], timings: Timings) -> Generator[Pass, Logits, T]:
    """Ask for the passes of one round, and time each of them and what lies between."""
    timings.lap()
    request = next(asking)
    timings.draft_s += timings.lap()
    while True:
        logits = yield request
        timings.add_pass(request.role, timings.lap())
        try:
            request = asking.send(logits)
        except StopIteration as finished:
            value: T = finished.value
            return value
        finally:
            timings.sample_s += timings.lap()
