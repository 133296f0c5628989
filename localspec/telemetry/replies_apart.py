"""How much replies differ, and what they are worth: tokens of one reply resemble each other.

Each reply counts as fewer tokens than it has, by the design effect of the intraclass correlation, which an analysis of
variance estimates.

Source: Kish 1965 for the design effect.
"""

import math
from dataclasses import dataclass, field
from typing import Self

_USUAL_CORRELATION, _USUAL_WEIGHT = 0.01, 0.5
"""Of the tokens of one reply, before replies have shown it; and how many replies that is worth: little, for a guess that
is too high makes every reply count as fewer tokens, and hides changes."""
_REMEMBERED = 50
"""How many replies what was learnt of them counts as, after a change."""


@dataclass(slots=True)
class Lot:
    """Some consecutive rounds; those of one reply have the same `cluster`."""

    cluster: int
    at_s: float
    rounds: int = 0
    tried: int = 0
    accepted: int = 0


@dataclass(slots=True)
class Past:
    """The replies before the window: their rate, and how much they differ, as an analysis of variance wants it.

    Attributes:
        usual: correlation to begin with.
        weight: how many replies that is worth.
        credit: and how many of them were really seen, before the last change.
        last: tokens judged and accepted of the last reply, which may go on.
    """

    usual: float = _USUAL_CORRELATION
    weight: float = _USUAL_WEIGHT
    credit: int = 0
    replies: int = 0
    tried: int = 0
    accepted: int = 0
    squares: int = 0
    between: float = 0.0
    cluster: int = -1
    last: tuple[int, int] = (0, 0)

    def add(self, lot: Lot) -> None:
        """Take in a lot that left the window."""
        if lot.cluster != self.cluster:
            self.cluster, self.last = lot.cluster, (0, 0)
            self.replies += 1
        tried, accepted = self.last
        now_tried, now_accepted = tried + lot.tried, accepted + lot.accepted
        self.tried += lot.tried
        self.accepted += lot.accepted
        self.squares += now_tried**2 - tried**2
        self.between += now_accepted**2 / now_tried - (accepted**2 / tried if tried else 0.0)
        self.last = (now_tried, now_accepted)

    @property
    def degrees(self) -> int:
        """How many replies the correlation is known from, but one."""
        return max(0, self.replies + self.credit - 1)

    def correlation(self) -> float:
        """Return the intraclass correlation, 0 to 1: by analysis of variance, and the usual one at first."""
        n, k = self.tried, self.replies
        found = 0.0
        if k > 1 and n > k:
            size = (n - self.squares / n) / (k - 1)
            among = (self.between - self.accepted**2 / n) / (k - 1)
            within = (self.accepted - self.between) / (n - k)
            whole = among + (size - 1) * within
            found = min(max((among - within) / whole, 0.0), 1.0) if whole > 0 else 0.0
        return (k * found + self.weight * self.usual) / (k + self.weight)

    def changed(self) -> "Past":
        """Return what is still known after a change."""
        credit = min(self.replies + self.credit, _REMEMBERED)
        return Past(self.correlation(), max(credit, _USUAL_WEIGHT), credit)


@dataclass(slots=True)
class Sample:
    """Some lots, and what they are worth in tokens that do not depend on each other.

    Attributes:
        correlation: of the tokens of one reply.
        tried: tokens that were judged.
        worth: as many independent ones say as much.
        accepted: how many of those were accepted.
    """

    correlation: float = 0.0
    tried: int = 0
    worth: float = 0.0
    accepted: float = 0.0
    by_cluster: dict[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, lots: list[Lot], correlation: float = 0.0) -> Self:
        """Return those of lots."""
        sample = cls(correlation)
        for lot in lots:
            sample.count(lot, 1)
        return sample

    @property
    def rate(self) -> float:
        """Share of tokens that were accepted."""
        return self.accepted / self.worth

    def count(self, lot: Lot, sign: int) -> None:
        """Take a lot in, or with a sign of -1 leave it out again."""
        tried, accepted = self.by_cluster.get(lot.cluster, (0, 0))
        self._weigh(tried, accepted, -1)
        tried, accepted = tried + sign * lot.tried, accepted + sign * lot.accepted
        self._weigh(tried, accepted, 1)
        self.by_cluster[lot.cluster] = (tried, accepted)
        self.tried += sign * lot.tried

    def add_past(self, past: Past) -> None:
        """Take in what is older than all lots."""
        if past.tried:
            effect = 1 + self.correlation * max(0.0, past.squares / past.tried - 1)
            self.tried += past.tried
            self.worth += past.tried / effect
            self.accepted += past.accepted / effect

    def _weigh(self, tried: int, accepted: int, sign: int) -> None:
        effect = 1 + self.correlation * max(0, tried - 1)
        self.worth += sign * tried / effect
        self.accepted += sign * accepted / effect


def log_ratio(before: Sample, after: Sample) -> float:
    """Return the log likelihood ratio of two rates against one."""
    rate = (before.accepted + after.accepted) / (before.worth + after.worth)
    return before.worth * _divergence(before.rate, rate) + after.worth * _divergence(
        after.rate, rate
    )


def _divergence(rate: float, other: float) -> float:
    """Return the Kullback-Leibler divergence of two coins."""
    # What was added and taken away again leaves some dust beyond 0 and 1.
    rate, other = min(max(rate, 1e-9), 1 - 1e-9), min(max(other, 1e-9), 1 - 1e-9)
    return rate * math.log(rate / other) + (1 - rate) * math.log((1 - rate) / (1 - other))
