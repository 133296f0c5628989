"""Estimator: how often what was forecast came true, by how sure it looked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_FURTHEST = 4.0


@dataclass(slots=True)
class _Tally:
    prior: float
    hits: float = 0.0
    weight: float = 0.0


class Estimator:
    """Chances by bucket: a prior, and what was seen since, the latest counting most.

    Args:
        prior: the chance that each bucket starts from.
        weight: how many observations the prior is worth.
        memory: observations after which a bucket's past counts 1/e.
        drift: how fast all buckets follow together what any of them shows, in log odds an observation.
    """

    def __init__(self, prior: Sequence[float], weight: float, memory: float, drift: float) -> None:
        self._weight = weight
        self._decay = 1 - 1 / memory
        self._drift = drift
        self._shift, self._odds = 0.0, 1.0
        self._tallies = [_Tally(chance) for chance in prior]

    def add(self, bucket: int, *, hit: bool) -> None:
        """Count one observation."""
        shift = self._shift + self._drift * (hit - self.chance(bucket))
        self._shift = min(max(shift, -_FURTHEST), _FURTHEST)
        self._odds = math.exp(-self._shift)
        tally = self._tallies[bucket]
        tally.hits = tally.hits * self._decay + hit
        tally.weight = tally.weight * self._decay + 1

    def expect(self, prior: Sequence[float]) -> None:
        """Start from other chances; what was seen counts as before."""
        for tally, chance in zip(self._tallies, prior, strict=True):
            tally.prior = chance

    def chance(self, bucket: int) -> float:
        """Return the chance of a hit, 0 to 1, neither of them reached."""
        tally, weight = self._tallies[bucket], self._weight
        own = (tally.hits + weight * tally.prior) / (tally.weight + weight)
        return own / (own + (1 - own) * self._odds)

    def mean(self, shares: Sequence[float]) -> float:
        """Return the chance over all buckets, by the share of each."""
        return sum([share * self.chance(bucket) for bucket, share in enumerate(shares)])
