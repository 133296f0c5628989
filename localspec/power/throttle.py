"""Throttle: what gives way on battery and in heat, as `power` says. It costs speed, and under `--exact` never a bit of the text.

Other programs' load is not looked at here: passes have no more threads than fit beside it, whatever `power` is
(`llama/spare_cores.py`), and drafts are weighed by what passes cost meanwhile.
"""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from localspec.power.conditions import Conditions, Watch
from localspec.resources import default_threads

_LOOK_EVERY_S = 5.0
"""Seconds between two looks: heat and batteries are slow, and a laptop has dozens of files to read."""
_LOW_BATTERY = 20  # percent


@dataclass(frozen=True, slots=True)
class Throttle:
    """What gives way, and why.

    Args:
        reason: in a few words; empty where nothing gives way.
        threads: share of the threads that passes keep.
        drafts: whether a draft model, or heads, may draft: what is rejected of it was computed for nothing.
        gpu_layers: share of the layers that a GPU gets when models are loaded.
    """

    reason: str = ""
    threads: float = 1.0
    drafts: bool = True
    gpu_layers: float = 1.0

    def threads_of(self, wanted: int) -> int:
        """Return how many of the wanted threads passes keep, at least one."""
        return max(1, math.ceil(self.threads * wanted))

    def words(self, wanted: int) -> str:
        """Return what gives way in a few words; empty where nothing does.

        Args:
            wanted: threads that passes have otherwise.
        """
        kept = self.threads_of(wanted)
        told = [f"{kept} of {wanted} threads"] if kept < wanted else []
        told += [] if self.drafts else ["no draft model"]
        return f"{self.reason}: {', '.join(told)}" if told else ""

    def words_for(self, threads: int | None, power: str) -> str:
        """Return what gives way, see `words`, where so many threads were asked for; None are the usual."""
        return self.words(threads or usual_threads(power)) if self.reason else ""


def throttle(power: str, taken: Conditions) -> Throttle:
    """Return what gives way.

    Args:
        power: the option's value: quiet, balanced or fast.
        taken: what the machine takes.
    """
    hot, battery = bool(taken.hot) or taken.throttled, taken.battery
    reasons = ["too hot"] if hot else []
    reasons += [] if battery is None else [f"battery {battery} %"]
    if power == "quiet" and reasons:
        return Throttle(", ".join(reasons), threads=0.5, drafts=False, gpu_layers=0.5)
    if power == "balanced" and hot:
        return Throttle("too hot", threads=0.75, drafts=False)
    if power == "balanced" and battery is not None and battery <= _LOW_BATTERY:
        return Throttle(reasons[-1], drafts=False)
    return Throttle()


def usual_threads(power: str) -> int:
    """Return the threads that passes have where nobody gave a number and nothing gives way."""
    threads = default_threads()
    return math.ceil(threads / 2) if power == "quiet" else threads


class PowerWatch:
    """The throttle of now.

    Args:
        power: the option's value.
        look: tells what the machine takes.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        power: str,
        look: Callable[[], Conditions],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._power = power
        self._look = look
        self._clock = clock
        self._looked_s = -math.inf
        self._now = Throttle()

    def now(self) -> Throttle:
        """Return what gives way now, looked at every few seconds."""
        now_s = self._clock()
        if now_s - self._looked_s >= _LOOK_EVERY_S:
            self._looked_s = now_s
            self._now = throttle(self._power, self._look())
        return self._now

    def threads_of(self, wanted: int) -> int:
        """Return how many of the wanted threads the next pass keeps."""
        return self.now().threads_of(wanted)

    def drafts(self) -> bool:
        """Return whether a draft model, or heads, may draft in the next round."""
        return self.now().drafts

    def words(self, wanted: int) -> str:
        """Return what gives way now, see `Throttle.words`."""
        return self.now().words(wanted)


@cache
def pace(power: str) -> PowerWatch:
    """Return the pace of this process; what never gives way never looks."""
    if power == "fast":
        return PowerWatch(power, Conditions)
    return PowerWatch(power, Watch(lambda: [os.getpid()]).look)
