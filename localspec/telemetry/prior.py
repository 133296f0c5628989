"""Prior: what a drafter earned before on this kind of text, for a policy to start a new conversation from.

Older days count less, and what was before a change that drift found does not count at all.
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.telemetry.pair import Pair
from localspec.telemetry.reading import reading

_HALF_LIFE_DAYS = 30.0
_OLDEST_DAYS = 180
_HOURS = 24
_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Chance:
    """How often a drafted token was accepted, and how many tokens say so; those of long ago count less."""

    rate: float
    weight: float


@dataclass(frozen=True, slots=True)
class Prior:
    """What one drafter earned before.

    Args:
        positions: chance by place in the draft, from 0 on, of those that came to be judged.
        gaps: chance by bucket of the gap to the second best; `totals.GAPS` are the buckets' bounds. Empty of a
            drafter that knows no gaps.
    """

    positions: Mapping[int, Chance]
    gaps: Mapping[int, Chance]


def read_prior(
    directory: Path, pair: Pair, workload: str, *, greedy: bool, now_s: float
) -> dict[str, Prior]:
    """Return by drafter what is known; nothing where there is nothing, or it cannot be read.

    Args:
        directory: of the telemetry.
        pair: what answers.
        workload: kind of text.
        greedy: whether the temperature is 0.
        now_s: seconds since 1970.
    """
    try:
        with reading(directory, takes_in=False) as connection:  # an answer waits for it
            if connection is None:
                return {}
            return _priors(connection, pair, workload, greedy, now_s)
    except LocalspecError:
        return {}


def _priors(
    connection: sqlite3.Connection, pair: Pair, workload: str, greedy: bool, now_s: float
) -> dict[str, Prior]:
    names = (pair.target, pair.draft_model, pair.at_once)
    found = connection.execute(
        "SELECT id FROM pair WHERE (target, draft_model, at_once) = (?, ?, ?)", names
    ).fetchone()
    if found is None:
        return {}
    since = dict(
        connection.execute(
            "SELECT drafter, max(since_s) FROM change WHERE pair = ? AND workload = ? GROUP BY drafter",
            (found[0], workload),
        ).fetchall()
    )
    oldest = int(now_s // _HOUR_S) - _HOURS * _OLDEST_DAYS
    rows = connection.execute(
        "SELECT drafter, kind, bucket, hour, tried, accepted FROM tally "
        "WHERE pair = ? AND workload = ? AND greedy = ? AND hour >= ? AND kind IN ('position', 'gap')",
        (found[0], workload, int(greedy), oldest),
    )
    sums: dict[tuple[str, str, int], list[float]] = {}
    for drafter, kind, bucket, hour, tried, accepted in rows:
        # The hour in which a change began holds some of both: it is left out, too.
        if _HOUR_S * hour < since.get(drafter, 0.0):
            continue
        days = max(0.0, now_s / _HOUR_S - hour) / _HOURS
        share = 0.5 ** (days / _HALF_LIFE_DAYS)
        counted = sums.setdefault((drafter, kind, bucket), [0.0, 0.0])
        counted[0] += share * tried
        counted[1] += share * accepted
    drafters = dict.fromkeys(drafter for drafter, _, _ in sums)
    return {
        drafter: Prior(_chances(sums, drafter, "position"), _chances(sums, drafter, "gap"))
        for drafter in drafters
    }


def _chances(
    sums: Mapping[tuple[str, str, int], list[float]], drafter: str, kind: str
) -> dict[int, Chance]:
    return {
        bucket: Chance(accepted / tried, tried)
        for (of, its_kind, bucket), (tried, accepted) in sorted(sums.items())
        if (of, its_kind) == (drafter, kind) and tried > 0
    }
