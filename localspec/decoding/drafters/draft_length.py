"""best_length: how many tokens to draft, from chances and costs. Worth: the same while a draft grows. Estimator: the chances."""

from collections.abc import Sequence
from math import exp, inf

_HARDLY = 0.01
"""A chance that is not worth looking beyond."""
_FURTHEST = 4.0
"""By how many log odds all chances may drift together."""


def best_length(
    chances: Sequence[float], verify_s: Sequence[float], affordable_s: float = inf
) -> tuple[int, float]:
    """Return the draft length with the highest rate, and that rate in tokens per second; 0 is plain decoding.

    Costs by width have dips, so that a longer draft can pay where a shorter one does not: every length is looked at.

    Args:
        chances: of every drafted token, to be accepted when those before it were.
        verify_s: seconds of a round by the draft length, from 0 on; longer drafts are not considered.
        affordable_s: rounds that take longer are not considered.
    """
    best, rate = 0, 1 / verify_s[0]
    confirmed = reach = 1.0
    for length, (chance, pass_s) in enumerate(zip(chances, verify_s[1:], strict=False), start=1):
        reach *= chance
        confirmed += reach
        if pass_s <= affordable_s and confirmed > rate * pass_s:
            best, rate = length, confirmed / pass_s
    return best, rate


class Worth:
    """While a draft grows: whether the next token is worth its pass, and how much of it the target verifies.

    It goes on as long as some further length has a greater surplus than stopping here: tokens, less what the time
    for them would earn elsewhere.

    Args:
        usual: chance of a token that is not drafted yet.
        step_s: seconds of a pass of the draft model.
        verify_s: seconds of a target pass by the number of drafted tokens, from 0 to the most that a draft may have.
        rate: tokens per second that time earns lately.

    Attributes:
        n_verified: how many of the proposed tokens the target is to verify.
        chances: of the proposed tokens.
        verify: passes of the target in tokens that their time would earn.
    """

    def __init__(self, usual: float, step_s: float, verify_s: Sequence[float], rate: float) -> None:
        # Where only short drafts can be afforded, time cannot earn what long ones would.
        rate, confirmed, reach, best = max(rate, 1 / verify_s[0]), 1.0, 1.0, 0.0
        for length, seconds in enumerate(verify_s):
            best = max(best, confirmed / (seconds + length * step_s))
            if best >= rate:
                break
            reach *= usual
            confirmed += reach
        rate = min(rate, best)
        self.verify = [rate * seconds for seconds in verify_s]
        self._step, self._usual = rate * step_s, usual
        self.chances: list[float] = []
        self.n_verified = 0
        self._reach, self._expected = 1.0, 0.0
        self._best = -self.verify[0]

    def add(self, chance: float) -> bool:
        """Take in a proposed token, by the chance that it is accepted; return whether to propose another."""
        self.chances.append(chance)
        length, verify, step, usual = len(self.chances), self.verify, self._step, self._usual
        self._reach = reach = self._reach * chance
        self._expected = surplus = self._expected + reach
        if surplus - verify[length] > self._best:
            self._best, self.n_verified = surplus - verify[length], length
        best = self._best
        for wider in range(length + 1, len(verify)):
            reach *= usual
            surplus += reach - step
            if surplus - verify[wider] > best:
                return True
            # Where a token promises less than its pass costs, only a dip in the costs of verifying makes up for it.
            if reach < _HARDLY or (reach <= step and surplus - min(verify[length + 1 :]) <= best):
                break
        return False


class Estimator:
    """Chances by bucket: a prior, and what was seen since, the latest counting most.

    Args:
        prior: the chance that each bucket starts from.
        weight: how many observations the prior is worth.
        memory: observations after which a bucket's past counts 1/e.
        drift: how fast all buckets follow together what any of them shows, in log odds an observation.
        shift: of all chances at first, in log odds: below 0, a text has to show first that it is like the prior's.
    """

    def __init__(
        self, prior: Sequence[float], weight: float, memory: float, drift: float, shift: float = 0.0
    ) -> None:
        self._prior, self._weight = list(prior), weight
        self._decay, self._drift = 1 - 1 / memory, drift
        self._shift, self._odds = shift, exp(-shift)
        self._hits, self._observed = [0.0] * len(prior), [0.0] * len(prior)

    def add(self, bucket: int, *, hit: bool) -> None:
        """Count one observation."""
        shift = self._shift + self._drift * (hit - self.chance(bucket))
        self._shift = min(max(shift, -_FURTHEST), _FURTHEST)
        self._odds = exp(-self._shift)
        self._hits[bucket] = self._hits[bucket] * self._decay + hit
        self._observed[bucket] = self._observed[bucket] * self._decay + 1

    def expect(self, prior: Sequence[float]) -> None:
        """Start from other chances; what was seen counts as before."""
        self._prior = list(prior)

    def chance(self, bucket: int) -> float:
        """Return the chance of a hit, 0 to 1, neither of them reached."""
        hits = self._hits[bucket] + self._weight * self._prior[bucket]
        own = hits / (self._observed[bucket] + self._weight)
        return own / (own + (1 - own) * self._odds)

    def mean(self, shares: Sequence[float]) -> float:
        """Return the chance over all buckets, by the share of each."""
        return sum([share * self.chance(bucket) for bucket, share in enumerate(shares)])
