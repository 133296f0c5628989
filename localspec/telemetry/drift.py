"""Drift: says when a drafter is accepted more often, or less, than it used to be on one kind of text.

A generalised likelihood ratio: for every place in the last `_LOTS` lots of rounds where a change may have begun, how much
more likely is what came since under a rate of its own than under the rate before it? By Chernoff's bound, a place
without a change reaches `h` with a chance of exp(-h) on either side; `_THRESHOLD` is where all places of 50,000
rounds together come to 1 %.

Texts differ even where nothing changes: tokens of one reply resemble each other. So each reply counts as fewer tokens,
by the design effect of their intraclass correlation, which an analysis of variance estimates from the replies before the
window; and since an estimate of few replies is unsure, the ratio is that of a normal law whose variance is unknown, as far
as it is.

Source: Basseville and Nikiforov 1993, Detection of Abrupt Changes, 2.4.3; Kish 1965 for the design effect;
Satterthwaite 1946 for how unsure a sum of a known and an estimated variance is.
"""

import math
from dataclasses import astuple, dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

_LOT, _LEAST_LOT = 20, 10
"""Rounds that are judged together; at the end of a reply, also fewer, and what is shorter counts as one with the next."""
_LOTS = 60
"""How many lots make the window: 600 to 1200 rounds."""
_FALSE_ALARMS, _ROUNDS = 0.01, 50_000
_THRESHOLD = math.log(2 * (_ROUNDS / _LEAST_LOT) * _LOTS / _FALSE_ALARMS)
_LEAST_REPLIES = 10
"""Before the window: until then nobody knows how much replies differ."""
_USUAL_CORRELATION, _USUAL_WEIGHT = 0.01, 0.5
"""Of the tokens of one reply, before replies have shown it; and how many replies that is worth: little, for a guess that
is too high makes every reply count as fewer tokens, and hides changes."""
_REMEMBERED = 50
"""How many replies what was learnt of them counts as, after a change."""

Floats = NDArray[np.float64]


class Change(NamedTuple):
    """A drafter is accepted at another rate than before: when that began, seconds since 1970; the rates."""

    since_s: float
    before: float
    after: float


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
        last_tried: tokens judged of the last reply, which may go on.
        last_accepted: and accepted.
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
    last_tried: int = 0
    last_accepted: int = 0

    def add(self, lot: Lot) -> None:
        """Take in a lot that left the window."""
        if lot.cluster != self.cluster:
            self.cluster, self.last_tried, self.last_accepted = lot.cluster, 0, 0
            self.replies += 1
        tried, accepted = self.last_tried, self.last_accepted
        self.last_tried += lot.tried
        self.last_accepted += lot.accepted
        self.tried += lot.tried
        self.accepted += lot.accepted
        self.squares += self.last_tried**2 - tried**2
        self.between += self.last_accepted**2 / self.last_tried
        self.between -= accepted**2 / tried if tried else 0.0

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
class Drift:
    """What is remembered of one drafter on one kind of text.

    Attributes:
        lots: the last rounds.
        past: what was before them, since the last change.
        cluster: counts replies.
        reply: the last one.
    """

    lots: list[Lot] = field(default_factory=list)
    past: Past = field(default_factory=Past)
    cluster: int = 0
    reply: int | None = None

    def add(self, reply: int, at_s: float, rounds: int, tried: int, accepted: int) -> Change | None:
        """Count consecutive rounds of a reply; return a change where one is certain by now.

        Args:
            reply: tells its rounds from those of others.
            at_s: seconds since 1970.
            rounds: how many, a few.
            tried: drafted tokens that were judged, up to the first that was not accepted in each round.
            accepted: how many were; at most `tried`.
        """
        found, last = None, self.lots[-1].rounds if self.lots else _LOT
        if reply != self.reply and _LEAST_LOT <= last < _LOT:
            found = self._judged()  # a reply that ends closes its lot
        if last >= (_LOT if reply == self.reply else _LEAST_LOT):
            self.cluster += reply != self.reply
            self.lots.append(Lot(self.cluster, at_s))
        self.reply, lot = reply, self.lots[-1]
        lot.rounds += rounds
        lot.tried += tried
        lot.accepted += accepted
        return self._judged() or found if lot.rounds >= _LOT else found

    def to_json(self) -> list[Any]:
        """Return the state as JSON can hold it."""
        lots = [astuple(each) for each in self.lots]
        return [lots, astuple(self.past), self.cluster, self.reply]

    @classmethod
    def from_json(cls, state: list[Any]) -> Self:
        """Return what `to_json` was called on; raises TypeError or ValueError where it was not."""
        lots, past, cluster, reply = state
        return cls([Lot(*each) for each in lots], Past(*past), cluster, reply)

    def _judged(self) -> Change | None:
        while len(self.lots) > _LOTS:
            self.past.add(self.lots.pop(0))
        if self.past.degrees < _LEAST_REPLIES:
            return None
        evidence = self._evidence()
        at = int(evidence.argmax())
        return None if evidence[at] < _THRESHOLD else self._changed(at)

    def _evidence(self) -> Floats:
        """Return for each lot the evidence that a change began with it."""
        past, correlation = self.past, self.past.correlation()
        cluster, *counts = np.array([(lot.cluster, lot.tried, lot.accepted) for lot in self.lots]).T
        own = cluster[:, None] == np.unique(cluster)
        # By lot and reply: what lies before the lot, and what does not.
        lots = [own * each[:, None] for each in counts]
        sooner = [np.cumsum(each, axis=0) - each for each in lots]
        later = [each.sum(axis=0) - before for each, before in zip(lots, sooner, strict=True)]

        def worth(sums: list[Floats]) -> list[Floats]:
            effect = 1 + correlation * np.maximum(0, sums[0] - 1)
            return [(each / effect).sum(axis=1) for each in sums]

        past_tried = max(past.tried, 1e-9)  # so that nothing is divided by 0 where there is no past
        effect = 1 + correlation * max(0.0, past.squares / past_tried - 1)
        tried, accepted = worth(sooner)
        after = worth(later)
        evidence = _log_ratio(
            tried + past_tried / effect, accepted + past.accepted / effect, *after
        )
        # Only what replies add to the coins' own variance is estimated.
        inflation = later[0].sum(axis=1) / after[0]
        known = (inflation / np.maximum(inflation - 1, 1e-3)) ** 2 * past.degrees
        found: Floats = known / 2 * np.log1p(2 * evidence / known)
        return found

    def _changed(self, at: int) -> Change:
        """Start afresh with what came since the change, and return it."""
        before, since, past = self.lots[:at], self.lots[at:], self.past
        self.lots, self.past = since, past.changed()
        return Change(since[0].at_s, _rate(before, past.tried, past.accepted), _rate(since))


def _rate(lots: list[Lot], tried: int = 0, accepted: int = 0) -> float:
    tried += sum(lot.tried for lot in lots)
    return (accepted + sum(lot.accepted for lot in lots)) / tried


def _log_ratio(tried: Floats, accepted: Floats, later: Floats, hits: Floats) -> Floats:
    """Return the log likelihood ratio of two rates against one: of what lies before, and of what came later."""
    both = (accepted + hits) / (tried + later)
    return tried * _divergence(accepted / tried, both) + later * _divergence(hits / later, both)


def _divergence(rate: Floats, other: Floats) -> Floats:
    """Return the Kullback-Leibler divergence of two coins."""
    rate, other = np.clip(rate, 1e-9, 1 - 1e-9), np.clip(other, 1e-9, 1 - 1e-9)
    apart: Floats = rate * np.log(rate / other) + (1 - rate) * np.log((1 - rate) / (1 - other))
    return apart
