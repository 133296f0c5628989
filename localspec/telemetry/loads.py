"""Loads: what a plain round took in each hour, as a multiple of what it takes on average.

A machine is busy in one hour and idle in another. Rounds are therefore compared with rounds without a draft of their own
hour and pair, and with none where that hour has too few of them: else a quiet hour would look like a speed-up.
"""

import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from localspec.telemetry.plain_cost import LEAST_ROUNDS, UNKNOWN, PlainCost, plain_cost
from localspec.telemetry.rows import STAGES

TOOK_US = " + ".join(f"{stage}_us" for stage in STAGES)
"""What a row of `cell` took."""
_BY_DEPTH = (
    "SELECT hour, pair, depth, sum(drafted), "  # noqa: S608 - names of columns
    f"sum(rounds) FILTER (WHERE drafter = 'off'), sum({TOOK_US}) FILTER (WHERE drafter = 'off') "
    "FROM cell WHERE hour >= ? GROUP BY hour, pair, depth"
)


@dataclass(slots=True)
class _Hour:
    """One hour of one pair: tokens drafted, and by depth how many plain rounds took how many seconds."""

    drafted: int = 0
    plain: dict[int, tuple[int, float]] = field(default_factory=dict)


def read_loads(
    connection: sqlite3.Connection,
    first_hour: int,
    calibrated: Mapping[int, float],
    shared: Collection[int],
) -> dict[int, PlainCost]:
    """Return by pair what plain rounds cost on average, and leave the hours' loads in a temporary table.

    The table `load` has hour, pair and factor, of hours in which something was drafted and which can be compared.

    Args:
        connection: to the database, in a transaction that is rolled back in the end.
        first_hour: what lies before it does not count.
        calibrated: by pair, seconds of a plain pass as it was calibrated.
        shared: pairs whose passes are those of several texts: they are never compared.
    """
    hours: dict[tuple[int, int], _Hour] = {}
    whole: dict[int, dict[int, tuple[int, float]]] = {}
    for hour, pair, depth, drafted, rounds, took_us in connection.execute(_BY_DEPTH, (first_hour,)):
        its = hours.setdefault((hour, pair), _Hour())
        its.drafted += drafted
        by_depth = whole.setdefault(pair, {})
        if rounds:
            its.plain[depth] = (rounds, took_us / 1e6)
            count, seconds = by_depth.get(depth, (0, 0.0))
            by_depth[depth] = (count + rounds, seconds + took_us / 1e6)
    plain = {
        pair: UNKNOWN if pair in shared else plain_cost(its, calibrated.get(pair))
        for pair, its in whole.items()
    }
    connection.execute(
        "CREATE TEMP TABLE load (hour INTEGER, pair INTEGER, factor REAL, PRIMARY KEY (hour, pair))"
    )
    loads = [(*key, _load(its, plain[key[1]])) for key, its in hours.items() if its.drafted]
    connection.executemany(
        "INSERT INTO load VALUES (?, ?, ?)", [each for each in loads if each[2] is not None]
    )
    return plain


def _load(hour: _Hour, usual: PlainCost) -> float | None:
    if usual.source != "measured":
        return None if usual.source == "unknown" else 1.0
    if sum(rounds for rounds, _ in hour.plain.values()) < LEAST_ROUNDS:
        return None
    usually_s = sum(rounds * (usual.of(depth) or 0.0) for depth, (rounds, _) in hour.plain.items())
    return sum(seconds for _, seconds in hour.plain.values()) / usually_s if usually_s > 0 else None
