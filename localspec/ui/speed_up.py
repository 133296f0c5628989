"""What drafting gained in one reply, by the clock. Pure: rounds in, a measurement out.

Every drafted round is compared with the plain rounds next to it in time, and with no others: what else runs on the
machine, and how long the text has become, slows neighbours alike. A single round that lost its core decides nothing.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from localspec.decoding.round import Round

# How far away a plain round may be, in rounds, and how many of the nearest ones are compared with.
_REACH = 8
_NEIGHBOURS = 4
# With fewer, the interval would say nothing.
_LEAST_DRAFTED = 8
_LEAST_PLAIN = 6
# No draft costs so many times what another one does: a round that does waited for a core.
_WAITED = 3.0
_STANDARD_ERRORS = 2.0


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """The speed of a reply over plain decoding; 1 is no gain.

    Args:
        estimate: the speed-up.
        low: lower end of its interval, of two standard errors.
        high: its upper end.
        round_cost: what a drafted round took, in plain rounds.
    """

    estimate: float
    low: float
    high: float
    round_cost: float


def measure(rounds: Sequence[Round]) -> SpeedUp | None:
    """Return what drafting gained in these rounds; None where too few can be compared to say so.

    Args:
        rounds: of one reply, in order.
    """
    drafted = [at for at, each in enumerate(rounds) if each.drafted]
    neighbours = {at: _plain_rounds_next_to(rounds, at) for at in drafted}
    compared = [at for at in drafted if len(neighbours[at]) > 1]
    plain = {each for at in compared for each in neighbours[at]}
    if len(compared) < max(_LEAST_DRAFTED, len(drafted) / 2) or len(plain) < _LEAST_PLAIN:
        return None
    costs = _without_waits([_cost(rounds, at, neighbours[at]) for at in compared])
    if len(costs) < _LEAST_DRAFTED:
        return None
    cost = statistics.fmean(costs)
    # Drafted rounds that share their neighbours share these neighbours' chance, too.
    error = statistics.stdev(costs) / math.sqrt(min(len(costs), len(plain)))
    confirmed = sum(len(each.confirmed) for each in rounds)
    others = len(rounds) - len(drafted)

    def speed_up(round_cost: float) -> float:
        return confirmed / (others + len(drafted) * round_cost)

    margin = _STANDARD_ERRORS * error
    return SpeedUp(speed_up(cost), speed_up(cost + margin), speed_up(max(cost - margin, 0.0)), cost)


def seconds(each: Round) -> float:
    """Return what a round took in all."""
    return each.spent.wall_s


def _plain_rounds_next_to(rounds: Sequence[Round], at: int) -> list[int]:
    near = range(max(at - _REACH, 0), min(at + _REACH + 1, len(rounds)))
    plain = [each for each in near if not rounds[each].drafted and seconds(rounds[each]) > 0]
    return sorted(plain, key=lambda each: abs(each - at))[:_NEIGHBOURS]


def _cost(rounds: Sequence[Round], at: int, neighbours: Sequence[int]) -> float:
    return seconds(rounds[at]) / statistics.median(seconds(rounds[each]) for each in neighbours)


def _without_waits(costs: Sequence[float]) -> list[float]:
    usual = statistics.median(costs)
    return [each for each in costs if usual / _WAITED <= each <= usual * _WAITED]
