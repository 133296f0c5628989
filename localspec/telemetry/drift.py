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

from localspec.telemetry.replies_apart import Lot, Past, Sample, log_ratio

_LOT, _LEAST_LOT = 20, 10
"""Rounds that are judged together; at the end of a reply, also fewer."""
_LOTS = 60
"""How many of them make the window: 600 to 1200 rounds."""
_FALSE_ALARMS, _ROUNDS = 0.01, 50_000
_THRESHOLD = math.log(2 * (_ROUNDS / _LEAST_LOT) * _LOTS / _FALSE_ALARMS)
_LEAST_REPLIES = 10
"""Before the window: until then nobody knows how much replies differ."""


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
            self.lots.append(Lot(self.cluster, at_s))
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
        past = Past(**state["past"])
        past.last = (int(past.last[0]), int(past.last[1]))
        return cls([Lot(**each) for each in state["lots"]], past, state["cluster"], state["reply"])

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
        before, after = Sample.of(self.lots, correlation), Sample(correlation)
        before.add_past(self.past)
        found = []
        for at in range(len(self.lots) - 1, -1, -1):
            before.count(self.lots[at], -1)
            after.count(self.lots[at], 1)
            if before.tried == 0:
                break
            evidence = log_ratio(before, after)
            # Only what replies add to the coins' own variance is estimated.
            inflation = after.tried / after.worth
            known = (inflation / max(inflation - 1, 1e-3)) ** 2 * degrees
            found.append((known / 2 * math.log1p(2 * evidence / known), at))
        return found

    def _changed(self, at: int) -> Change:
        """Start afresh with what came since the change, and return it."""
        before, since = Sample.of(self.lots[:at]), self.lots[at:]
        before.add_past(self.past)
        after = Sample.of(since)
        self.lots, self.past = since, self.past.changed()
        rounds = sum(lot.rounds for lot in since)
        return Change(since[0].at_s, rounds, before.rate, after.rate)
