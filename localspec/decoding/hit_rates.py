"""HitRates: how often what was foretold came true, by how sure it looked."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class _Tally:
    hits: float
    weight: float


class HitRates:
    """Chances by bucket: a prior, and what was seen since, the latest counting most.

    Args:
        prior: the chance that each bucket starts from.
        weight: how many observations the prior is worth.
        memory: observations after which a bucket's past counts 1/e.
    """

    def __init__(self, prior: Mapping[int, float], weight: float, memory: float) -> None:
        self._weight = weight
        self._kept = 1 - 1 / memory
        self._prior = dict(prior)
        self._seen = {bucket: _Tally(0.0, 0.0) for bucket in prior}

    def add(self, bucket: int, *, hit: bool) -> None:
        """Count one observation."""
        tally = self._seen[bucket]
        tally.hits = tally.hits * self._kept + hit
        tally.weight = tally.weight * self._kept + 1

    def chance(self, bucket: int) -> float:
        """Return the chance of a hit, 0 to 1, neither of them reached."""
        tally = self._seen[bucket]
        prior = self._prior[bucket]
        return (tally.hits + self._weight * prior) / (tally.weight + self._weight)
