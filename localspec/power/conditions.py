"""Conditions: what the machine takes from this program: on battery, in heat, and beside other programs.

Reads /sys and /proc, which tell nothing on other systems than Linux; then nothing is said.
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")
_IDLE = (3, 4)  # of a line's columns in /proc/stat: idle, and waiting for a disk
_GUEST = 8  # from here on what runs in guests, which the columns before have counted
_LOOK_EVERY_S = 1.0
_BUSY = 0.25
"""Of a core that other programs take: less is not worth a word."""
_TOO_HOT = ("passive", "hot", "critical")
_PLUGGED_IN = ("Mains", "USB")


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is taken from this program.

    Args:
        battery: percent that is left, on battery; None where it is plugged in, or has none.
        hot: the thermal zones that are as hot as they may be.
        clock_share: what the clocks may reach, as a share of what the hardware can, 0 to 1.
        throttled: whether a core was slowed down for heat since the last look.
        cores_taken: how many cores other programs took since the last look, on average.
        n_cores: of how many.
    """

    battery: int | None = None
    hot: tuple[str, ...] = ()
    clock_share: float = 1.0
    throttled: bool = False
    cores_taken: float = 0.0
    n_cores: int = 0

    @property
    def sentences(self) -> list[str]:
        """What is given up, and why; nothing where all is well."""
        clocks = ""
        if self.clock_share < 1:
            clocks = f": the clocks may reach {self.clock_share:.0%} of what they can"
        said = []
        if self.battery is not None:
            said.append(f"on battery, {self.battery} % left{clocks}")
        if self.hot or self.throttled:
            where = f" ({', '.join(self.hot)})" if self.hot else ""
            slowed = clocks or (": cores are slowed down" if self.throttled else "")
            said.append(f"too hot{where}{slowed}")
        if clocks and not said:
            said.append(clocks.removeprefix(": "))
        if self.cores_taken >= _BUSY:
            said.append(
                f"other programs take {self.cores_taken:.1f} of {self.n_cores} cores: passes have fewer threads where that is faster"
            )
        return said


@dataclass(frozen=True, slots=True)
class _Sample:
    """What was counted at some moment."""

    at_s: float
    busy_s: float
    own_s: float
    n_cores: int
    throttled: int


class Watch:
    """Looks at the machine, at most once a second.

    Args:
        pids: the processes that are this program.
        root: where `proc` and `sys` are.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        pids: Callable[[], Iterable[int]],
        root: Path = _ROOT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pids = pids
        self._root = root
        self._clock = clock
        self._before = self._sample()
        self._last = self._seen(self._before)

    def look(self) -> Conditions:
        """Return what is taken from this program now."""
        if self._clock() - self._before.at_s >= _LOOK_EVERY_S:
            now = self._sample()
            self._last, self._before = self._seen(now), now
        return self._last

    def _seen(self, now: _Sample) -> Conditions:
        before, root = self._before, self._root
        passed_s = now.at_s - before.at_s
        # A process that is new, or gone, changes what is ours.
        own_s = max(0.0, now.own_s - before.own_s)
        taken = (now.busy_s - before.busy_s - own_s) / passed_s if passed_s > 0 else 0.0
        return Conditions(
            _battery(root),
            tuple(_hot(root)),
            _clock_share(root),
            now.throttled > before.throttled,
            min(max(0.0, taken), now.n_cores),
            now.n_cores,
        )

    def _sample(self) -> _Sample:
        cores = [
            [int(each) for each in line.split()[1:]]
            for line in _text(self._root / "proc/stat").splitlines()
            if line[:3] == "cpu" and line[3:4].isdigit()
        ]
        busy = sum(
            count
            for core in cores
            for column, count in enumerate(core)
            if column < _GUEST and column not in _IDLE
        )
        own = sum(_ticks(self._root / f"proc/{pid}/stat") for pid in self._pids())
        counts = self._root.glob(
            "sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/*_throttle_count"
        )
        per_s = os.sysconf("SC_CLK_TCK")
        throttled = sum(_number(each) or 0 for each in counts)
        return _Sample(self._clock(), busy / per_s, own / per_s, len(cores), throttled)


def _battery(root: Path) -> int | None:
    """Return how much of the batteries is left, where they are what the machine runs on."""
    supplies = sorted(root.glob("sys/class/power_supply/*"))
    kinds = [_text(each / "type").strip() for each in supplies]
    if any(
        kind in _PLUGGED_IN and _number(each / "online") == 1
        for kind, each in zip(kinds, supplies, strict=True)
    ):
        return None
    left = [
        _number(each / "capacity") or 0
        for kind, each in zip(kinds, supplies, strict=True)
        # A mouse's battery is not the machine's.
        if kind == "Battery"
        and _text(each / "scope").strip() != "Device"
        and _text(each / "status").strip() == "Discharging"
    ]
    return sum(left) // len(left) if left else None


def _hot(root: Path) -> list[str]:
    """Return the thermal zones that have reached a point at which the system slows down."""
    found = []
    for zone in sorted(root.glob("sys/class/thermal/thermal_zone*")):
        now = _number(zone / "temp")
        points = [
            _number(each.with_name(each.name.replace("_type", "_temp")))
            for each in zone.glob("trip_point_*_type")
            if _text(each).strip() in _TOO_HOT
        ]
        least = min((each for each in points if each is not None and each > 0), default=None)
        if now is not None and least is not None and now >= least:
            found.append(f"{_text(zone / 'type').strip() or zone.name} {now / 1000:.0f} °C")
    return found


def _clock_share(root: Path) -> float:
    """Return what the clocks may reach, as a share of what the hardware can; 1 where nobody tells."""
    shares = []
    for policy in root.glob("sys/devices/system/cpu/cpufreq/policy*"):
        allowed, most = _number(policy / "scaling_max_freq"), _number(policy / "cpuinfo_max_freq")
        if allowed and most:
            shares.append(min(1.0, allowed / most))
    return sum(shares) / len(shares) if shares else 1.0


def _ticks(stat: Path) -> int:
    """Return for how long a process ran; 0 of one that is gone."""
    # Its name may hold anything, but the last parenthesis ends it.
    fields: Sequence[str] = _text(stat).rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12]) if len(fields) > 12 else 0


def _number(path: Path) -> int | None:
    try:
        return int(_text(path))
    except ValueError:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
