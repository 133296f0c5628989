"""Estimator: how often what was foretold came true, by how sure it looked."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

_FURTHEST = 4.0


@dataclass(slots=True)
class _Tally:
    hits: float
    weight: float


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
        self._prior = dict(prior)
        self._seen = {bucket: _Tally(0.0, 0.0) for bucket in prior}

    def add(self, bucket: int, *, hit: bool) -> None:
        """Count one observation."""
        if self._drift:
            shift = self._shift + self._drift * (hit - self.chance(bucket))
            self._move(min(max(shift, -_FURTHEST), _FURTHEST))
        tally = self._seen[bucket]
        tally.hits = tally.hits * self._kept + hit
        tally.weight = tally.weight * self._kept + 1

    def expect(self, prior: Mapping[int, float]) -> None:
        """Start from other chances; what was seen here counts as before."""
        self._prior.update(prior)

    def hope(self) -> None:
        """Forget that things looked worse lately than they usually do."""
        self._move(max(self._shift, 0.0))

    def chance(self, bucket: int) -> float:
        """Return the chance of a hit, 0 to 1, neither of them reached."""
        own = self.usual(bucket)
        return own / (own + (1 - own) * self._odds)

    def usual(self, bucket: int) -> float:
        """Return it by what this bucket alone has shown."""
        tally = self._seen[bucket]
        prior = self._prior[bucket]
        return (tally.hits + self._weight * prior) / (tally.weight + self._weight)

    def _move(self, shift: float) -> None:
        self._shift, self._odds = shift, math.exp(-shift)
