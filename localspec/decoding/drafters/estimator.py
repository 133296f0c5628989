"""Estimator: how often what was foretold came true, by how sure it looked."""

import math
from collections.abc import Mapping, Sequence
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
        drift: how fast all buckets follow together what any of them shows, in log odds an
            observation; 0 keeps each to itself.
    """

    def __init__(
        self, prior: Mapping[int, float], weight: float, memory: float, drift: float = 0.0
    ) -> None:
        self._weight = weight
        self._kept = 1 - 1 / memory
        self._drift = drift
        self._shift, self._odds = 0.0, 1.0
        self._seen = {bucket: _Tally(chance) for bucket, chance in prior.items()}

    def add(self, bucket: int, *, hit: bool) -> float:
        """Count one observation; return what `usual` was before it."""
        usual, tally = self.usual(bucket), self._seen[bucket]
        if self._drift:
            chance = usual / (usual + (1 - usual) * self._odds)
            shift = self._shift + self._drift * (hit - chance)
            self._move(min(max(shift, -_FURTHEST), _FURTHEST))
        tally.hits = tally.hits * self._kept + hit
        tally.weight = tally.weight * self._kept + 1
        return usual

    def expect(self, prior: Mapping[int, float]) -> None:
        """Start from other chances; what was seen here counts as before."""
        for bucket, chance in prior.items():
            self._seen[bucket].prior = chance

    def hope(self) -> None:
        """Forget that things looked worse lately than they usually do."""
        self._move(max(self._shift, 0.0))

    def chance(self, bucket: int) -> float:
        """Return the chance of a hit, 0 to 1, neither of them reached."""
        own = self.usual(bucket)
        return own / (own + (1 - own) * self._odds)

    def usual(self, bucket: int) -> float:
        """Return it by what this bucket alone has shown."""
        tally, weight = self._seen[bucket], self._weight
        return (tally.hits + weight * tally.prior) / (tally.weight + weight)

    def mean(self, shares: Sequence[float]) -> float:
        """Return the chance over all buckets, by the share of each, in their order."""
        weight, odds, mean = self._weight, self._odds, 0.0
        for share, tally in zip(shares, self._seen.values(), strict=True):
            own = (tally.hits + weight * tally.prior) / (tally.weight + weight)
            mean += share * (own / (own + (1 - own) * odds))
        return mean

    def _move(self, shift: float) -> None:
        self._shift, self._odds = shift, math.exp(-shift)
