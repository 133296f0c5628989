"""Drift: says when a drafter is accepted more often, or less, than it used to be on one kind of text.

A generalised likelihood ratio: for every place in the last `_LOTS` lots of rounds where a change may have begun, how much
more likely is what came since under a rate of its own than under the rate before it? By Chernoff's bound, a place
without a change reaches `h` with a chance of exp(-h) on either side; `_THRESHOLD` is where all places of 50,000
rounds together come to 1 %.

Texts differ even where nothing changes: tokens of one reply resemble each other. So each reply counts as fewer tokens,
by the design effect of their intraclass correlation, which is estimated from the replies before the window; and since an
estimate of few replies is unsure, the ratio is that of a normal law whose variance is unknown, as far as it is.

Source: Basseville and Nikiforov 1993, Detection of Abrupt Changes, 2.4.3; Kish 1965 for the design effect;
Satterthwaite 1946 for how unsure a sum of a known and an estimated variance is.
"""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Self

_LOT, _LEAST_LOT = 20, 10
"""Rounds that are judged together; at the end of a reply, also fewer."""
_LOTS = 60
"""How many of them make the window: 600 to 1200 rounds."""
_FALSE_ALARMS, _ROUNDS = 0.01, 50_000
_THRESHOLD = math.log(2 * (_ROUNDS / _LEAST_LOT) * _LOTS / _FALSE_ALARMS)
_USUAL_CORRELATION, _USUAL_WEIGHT = 0.01, 0.5
"""Of the tokens of one reply, before replies have shown it; and how many replies that is worth: little, for a guess that
is too high makes every reply count as fewer tokens, and hides changes."""
_LEAST_REPLIES = 10
"""Before the window: until then nobody knows how much replies differ."""
_REMEMBERED = 50
"""How many replies what was learnt of them counts as, after a change."""


@dataclass(frozen=True, slots=True)
class Change:
    """A drafter is accepted at another rate than before.

    Args:
        since_s: when the change began, seconds since 1970.
        rounds: how many rounds ago.
        before: acceptance rate until then.
        after: and since.
    """

    since_s: float
    rounds: int
    before: float
    after: float


@dataclass(slots=True)
class _Lot:
    """Some consecutive rounds; those of one reply have the same `cluster`."""

    cluster: int
    at_s: float
    rounds: int = 0
    tried: int = 0
    accepted: int = 0


@dataclass(slots=True)
class _Past:
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

    def add(self, lot: _Lot) -> None:
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

    def changed(self) -> "_Past":
        """Return what is still known after a change."""
        credit = min(self.replies + self.credit, _REMEMBERED)
        return _Past(self.correlation(), max(credit, _USUAL_WEIGHT), credit)


@dataclass(slots=True)
class Drift:
    """What is remembered of one drafter on one kind of text.

    Attributes:
        lots: the last rounds.
        past: what was before them, since the last change.
        cluster: counts replies.
        reply: the last one.
    """

    lots: list[_Lot] = field(default_factory=list)
    past: _Past = field(default_factory=_Past)
    cluster: int = 0
    reply: int | None = None

    def add(self, reply: int, at_s: float, tried: int, accepted: int) -> Change | None:
        """Count a round; return a change where one is certain by now.

        Args:
            reply: tells its rounds from those of others.
            at_s: seconds since 1970.
            tried: drafted tokens that were judged, up to the first that was not accepted.
            accepted: how many were; at most `tried`.
        """
        if tried == 0:
            return None
        found = None
        if reply != self.reply:
            # A reply that ends closes its lot, unless it is a short one: those are judged together.
            found = (
                self._judged() if self.lots and _LEAST_LOT <= self.lots[-1].rounds < _LOT else None
            )
        if not self.lots or self.lots[-1].rounds >= (_LOT if reply == self.reply else _LEAST_LOT):
            self.cluster += reply != self.reply
            self.lots.append(_Lot(self.cluster, at_s))
        self.reply = reply
        lot = self.lots[-1]
        lot.rounds += 1
        lot.tried += tried
        lot.accepted += accepted
        return self._judged() or found if lot.rounds >= _LOT else found

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Self:
        """Return what `to_json` was called on; raises TypeError or KeyError where it was not."""
        past = _Past(**state["past"])
        past.last = (int(past.last[0]), int(past.last[1]))
        return cls([_Lot(**each) for each in state["lots"]], past, state["cluster"], state["reply"])

    def _judged(self) -> Change | None:
        while len(self.lots) > _LOTS:
            self.past.add(self.lots.pop(0))
        if self.past.degrees < _LEAST_REPLIES:
            return None
        best, at = max(self._evidence(), default=(0.0, 0))
        return None if best < _THRESHOLD else self._changed(at)

    def _evidence(self) -> list[tuple[float, int]]:
        """Return for each lot the evidence that a change began with it."""
        correlation, degrees = self.past.correlation(), self.past.degrees
        before, after = _Sample.of(self.lots, correlation), _Sample(correlation)
        before.add_past(self.past)
        found = []
        for at in range(len(self.lots) - 1, -1, -1):
            before.count(self.lots[at], -1)
            after.count(self.lots[at], 1)
            if before.tried == 0:
                break
            evidence = _ratio(before, after)
            # Only what replies add to the coins' own variance is estimated.
            inflation = after.tried / after.worth
            known = (inflation / max(inflation - 1, 1e-3)) ** 2 * degrees
            found.append((known / 2 * math.log1p(2 * evidence / known), at))
        return found

    def _changed(self, at: int) -> Change:
        """Start afresh with what came since the change, and return it."""
        before, since = _Sample.of(self.lots[:at]), self.lots[at:]
        before.add_past(self.past)
        after = _Sample.of(since)
        self.lots, self.past = since, self.past.changed()
        rounds = sum(lot.rounds for lot in since)
        return Change(since[0].at_s, rounds, before.rate, after.rate)


@dataclass(slots=True)
class _Sample:
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
    def of(cls, lots: list[_Lot], correlation: float = 0.0) -> Self:
        """Return those of lots."""
        sample = cls(correlation)
        for lot in lots:
            sample.count(lot, 1)
        return sample

    @property
    def rate(self) -> float:
        """Share of tokens that were accepted."""
        return self.accepted / self.worth

    def count(self, lot: _Lot, sign: int) -> None:
        """Take a lot in, or with a sign of -1 leave it out again."""
        tried, accepted = self.by_cluster.get(lot.cluster, (0, 0))
        self._weigh(tried, accepted, -1)
        tried, accepted = tried + sign * lot.tried, accepted + sign * lot.accepted
        self._weigh(tried, accepted, 1)
        self.by_cluster[lot.cluster] = (tried, accepted)
        self.tried += sign * lot.tried

    def add_past(self, past: _Past) -> None:
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


def _ratio(before: _Sample, after: _Sample) -> float:
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
