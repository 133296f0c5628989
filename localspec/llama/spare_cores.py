"""SpareCores: how many threads a pass should have, by what other programs leave of the machine.

The threads of a pass wait for one another after every operation, and spin meanwhile. Where more of them want to run
than there are cores, each such wait lasts until the scheduler has had its way: a pass of 6 ms takes seconds. Passes give
the same bits with fewer threads (`LoadOptions.rounds_by_threads` knows where not), so they have no more than fit beside
the others. `docs/measurements/host-load.md` has the figures.
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE = (3, 4)  # of a line's columns: idle, and waiting for a disk
_GUEST = 8  # from here on what runs in guests, which the columns before have counted
_IDLE_S = 0.2
"""Seconds without a pass after which what others did meanwhile says nothing."""
MOMENTS, _MOMENT_S = 8, 0.006
"""Looks before a first pass gives way: screens that draw and servers that answer run for a few milliseconds, and a long
prompt's first pass is too long to be made with fewer threads for that."""
_LOOK_EVERY_S = 0.3
"""Seconds between two looks: the kernel counts in hundredths, and a look costs 0.05 ms."""
GIVES_WAY, _COMES_BACK = 0.6, 0.25
"""Of a core that others take: from here on it is theirs, and up to here it is ours again."""


@dataclass(frozen=True, slots=True)
class CoreUsage:
    """What the cores that this process may use have done so far.

    Args:
        at_s: a clock's seconds.
        busy_s: seconds of all these cores, whoever ran.
        own_s: seconds of them that this process ran.
        n_cores: how many there are.
        others: how many threads want to run at this moment, other than who asks; 0 where only the count of more
            cores than these is known.
    """

    at_s: float
    busy_s: float
    own_s: float
    n_cores: int
    others: int = 0


def usage() -> CoreUsage | None:
    """Return what has been used of the cores; None where the system does not tell."""
    if sys.platform != "linux":
        return None
    try:
        allowed = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        lines = [line.split() for line in _STAT.read_text().splitlines()]
        running = max((int(line[1]) for line in lines if line[0] == "procs_running"), default=1)
        cores = [
            [int(part) for part in line[1:]] for line in lines if line[:1] and line[0] in allowed
        ]
    except (OSError, ValueError, IndexError):
        return None
    if not cores:
        return None
    ticks = sum(
        count
        for core in cores
        for column, count in enumerate(core)
        if column < _GUEST and column not in _IDLE
    )
    per_s = os.sysconf("SC_CLK_TCK")
    others = max(0, running - 1) if len(cores) == os.cpu_count() else 0
    return CoreUsage(time.monotonic(), ticks / per_s, time.process_time(), len(cores), others)


_AT_IMPORT = usage()


def taken_between(before: CoreUsage, after: CoreUsage) -> float:
    """Return how many cores other programs took meanwhile, on average."""
    took_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return max(0.0, took_s / (after.at_s - before.at_s))


def taken_by_others() -> tuple[float, int] | None:
    """Return how many cores other programs take now, and of how many; None where nobody tells."""
    now = usage()
    if now is None or _AT_IMPORT is None or now.at_s <= _AT_IMPORT.at_s:
        return None
    return taken_between(_AT_IMPORT, now), now.n_cores


class SpareCores:
    """Follows what other programs take, a few times a second while passes are made.

    What they took while none was made says nothing: what is running at the moment is asked then.

    Args:
        wanted: threads that passes have when nobody else is busy.
        look: tells what has been used; None where nothing is known, and then nothing changes.
        pause: waits for some seconds.
        keeps: returns how many of the wanted threads passes keep on battery and in heat.
        moments: looks before a first pass gives way; one where that pass is shorter than waiting for more of them.

    Attributes:
        gave_way: whether a pass ever had fewer than `wanted`.
    """

    def __init__(
        self,
        wanted: int,
        look: Callable[[], CoreUsage | None] = usage,
        pause: Callable[[float], None] = time.sleep,
        keeps: Callable[[int], int] = lambda wanted: wanted,
        moments: int = MOMENTS,
    ) -> None:
        self._wanted = wanted
        self._moments = moments
        self._keeps = keeps
        self._look = look
        self._pause = pause
        self._before: CoreUsage | None = None
        self._ended_s: float | None = None
        self._threads = wanted
        self.gave_way = False

    def threads(self, now_s: float) -> int:
        """Return how many threads the next pass should have, from 1 to `wanted`.

        Args:
            now_s: seconds of the clock of `usage`.
        """
        if self._wanted == 1:
            return 1
        if self._ended_s is None or now_s - self._ended_s > _IDLE_S:
            self._begin()
        elif self._before is not None and now_s - self._before.at_s >= _LOOK_EVERY_S:
            self._go_on(self._before)
        threads = min(self._threads, self._keeps(self._wanted))
        self.gave_way |= threads < self._wanted
        return threads

    def done(self, now_s: float) -> None:
        """Take in that a pass has ended."""
        self._ended_s = now_s

    def _begin(self) -> None:
        """See what is running now; what runs for a moment only does not count."""
        seen = self._before = self._look()
        for _ in range(self._moments - 1):
            if seen is None or seen.others <= seen.n_cores - self._wanted:
                break
            self._pause(_MOMENT_S)
            again = self._look()
            if again is not None and again.others < seen.others:
                seen = again
        if seen is None:
            self._threads = self._wanted
        else:
            self._threads = min(max(seen.n_cores - seen.others, 1), self._wanted)

    def _go_on(self, before: CoreUsage) -> None:
        seen = self._before = self._look()
        if seen is not None and seen.at_s > before.at_s:
            self._threads = self._beside(taken_between(before, seen), seen.n_cores)

    def _beside(self, taken: float, n_cores: int) -> int:
        fits = n_cores - int(taken + 1 - GIVES_WAY)
        if fits > self._threads:  # so that a load that flickers does not
            fits = max(self._threads, n_cores - int(taken + 1 - _COMES_BACK))
        return min(max(fits, 1), self._wanted)
