"""SpareCores: how many threads a pass should have beside other busy programs.

The threads of a pass wait for one another after every operation, and spin meanwhile. Where more of them want to run
than there are cores, each such wait lasts until the system has let all of them run: a pass of 6 ms takes seconds. So passes
have no more threads than fit beside the others. `docs/measurements/host-load.md` has the figures.
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE_S = 0.2
"""Seconds without a pass after which what is running at that moment says more than what others did before."""
_PAUSE_S = 0.01
"""Seconds without a pass in which others may have worked for us: a server that verifies what is drafted here, a worker."""
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
        busy_s: seconds that anything ran on these cores.
        own_s: seconds of them that this process ran.
        n_cores: how many there are.
        others: how many threads want to run at this moment, other than the caller; 0 where only the count of more
            cores than these is known.
    """

    at_s: float
    busy_s: float
    own_s: float
    n_cores: int
    others: int = 0


def usage() -> CoreUsage | None:
    """Return what has been used of the cores; None on other systems than Linux."""
    if sys.platform != "linux":
        return None
    try:
        allowed = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        lines = [line.split() for line in _STAT.read_text().splitlines()]
        # user, nice, system, of which what guests ran is a part; idle and waiting for a disk are left out; interrupts.
        busy = [sum(map(int, line[1:4] + line[6:9])) for line in lines if line[0] in allowed]
        running = next((int(line[1]) for line in lines if line[0] == "procs_running"), 1)
    except (OSError, ValueError, IndexError):
        return None
    if not busy:
        return None
    busy_s, others = sum(busy) / os.sysconf("SC_CLK_TCK"), max(0, running - 1)
    others = others if len(busy) == os.cpu_count() else 0
    return CoreUsage(time.monotonic(), busy_s, time.process_time(), len(busy), others)


_AT_IMPORT = usage()


def taken_between(before: CoreUsage, after: CoreUsage) -> float:
    """Return how many cores other programs took meanwhile, on average."""
    took_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return max(0.0, took_s / (after.at_s - before.at_s))


def taken_by_others() -> tuple[float, int] | None:
    """Return how many cores other programs take now, and of how many; None where it is not known."""
    now = usage()
    if now is None or _AT_IMPORT is None or now.at_s <= _AT_IMPORT.at_s:
        return None
    return taken_between(_AT_IMPORT, now), now.n_cores


class SpareCores:
    """Follows what other programs take while passes are made, a few times a second.

    What they took while none was made says nothing; after a while without one, the next looks at what is running at that moment.

    Args:
        wanted: threads that passes have when no other program is busy.
        look: returns what has been used; None where nothing is known, and then passes keep all threads.
        pause: waits for some seconds.
        moments: looks before a first pass gives way; one where that pass is shorter than waiting for more of them.

    Attributes:
        gave_way: whether a pass ever had fewer than `wanted`.
    """

    def __init__(
        self,
        wanted: int,
        look: Callable[[], CoreUsage | None] = usage,
        pause: Callable[[float], None] = time.sleep,
        moments: int = MOMENTS,
    ) -> None:
        self._wanted = self._threads = wanted
        self._moments = moments
        self._look = look
        self._pause = pause
        self._before: CoreUsage | None = None
        self._ended_s = -inf
        self._is_apart = False
        self._over_s = self._took_s = 0.0
        self.gave_way = False

    def threads(self, now_s: float) -> int:
        """Return how many threads the next pass should have, from 1 to `wanted`.

        Args:
            now_s: seconds of the clock of `usage`.
        """
        if self._wanted == 1:
            return 1
        waited_s, before = now_s - self._ended_s, self._before
        self._is_apart = _PAUSE_S < waited_s <= _IDLE_S
        if waited_s > _IDLE_S:
            self._threads = self._fit(self._first())
        elif self._is_apart:
            self._before = self._look()
        elif before is not None and self._over_s + now_s - before.at_s >= _LOOK_EVERY_S:
            self._count()
        self.gave_way |= self._threads < self._wanted
        return self._threads

    def done(self, now_s: float) -> None:
        """Take in that a pass has ended."""
        self._ended_s = now_s
        if self._is_apart:
            self._count()

    def _count(self) -> None:
        """Add what others took since the last look; after some time of passes decide by it."""
        before, now = self._before, self._look()
        self._before = now
        if before is None or now is None or now.at_s <= before.at_s:
            return
        over_s = now.at_s - before.at_s
        self._over_s += over_s
        self._took_s += over_s * taken_between(before, now)
        if self._over_s < _LOOK_EVERY_S:
            return
        taken = self._took_s / self._over_s
        self._over_s = self._took_s = 0.0
        fits = self._fit(now.n_cores - int(taken + 1 - GIVES_WAY))
        if fits > self._threads:  # not for a load that flickers
            back = self._fit(now.n_cores - int(taken + 1 - _COMES_BACK))
            fits = max(self._threads, back)
        self._threads = fits

    def _first(self) -> int:
        """Return how many cores are free now; what runs for a moment only does not count."""
        self._over_s = self._took_s = 0.0
        first = self._before = self._look()
        if first is None:
            return self._wanted
        others = first.others
        for _ in range(self._moments - 1):
            if others <= first.n_cores - self._wanted:
                break
            self._pause(_MOMENT_S)
            again = self._look()
            others = others if again is None else min(others, again.others)
        return first.n_cores - others

    def _fit(self, threads: int) -> int:
        return min(max(threads, 1), self._wanted)
