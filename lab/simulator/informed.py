"""The informed: knows all that the clairvoyant knows, but not when the text changes its kind.

It follows the odds of the better of two regimes by Bayes' rule, from every drafted token whose
fate it sees and from that token's gap. So it says what of the clairvoyant's lead is out of reach
for anybody who has to find out; it is near the best there, not the best.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from lab.simulator.clairvoyant import agreements, model_choices
from lab.simulator.loop import WARM_UP, Account, Seconds
from lab.simulator.replay import Choice, Replay
from localspec.decoding.model import Role

_HAZARD = 1 / 130  # regimes last 60 to 200 tokens
_WINDOW = 32  # a draft model that is further behind starts a new window


@dataclass(frozen=True, slots=True)
class Probing:
    """How it finds out, where the worse regime is not worth drafting in.

    Args:
        every: plain tokens between two probes.
        belief: chance of the better regime from which on it drafts as there.
        shadow: probe without a wider pass: what is drafted is only compared.
    """

    every: int
    belief: float
    shadow: bool


PROBINGS = [Probing(*p) for p in product((8, 16, 24, 64), (0.1, 0.2, 0.35, 0.5), (False, True))]


class Informed:
    """Replays probing on the coins of a world with two regimes."""

    def __init__(self, replay: Replay, training: Sequence[Replay]) -> None:
        self._replay, self._world = replay, replay.world
        known, choices = agreements(training), model_choices(training, sees_gaps=True)
        better, worse = sorted(known, key=lambda regime: -known[regime][0])
        self._high, self._low = known[better][0], known[worse][0]
        self._choices = {True: choices[better], False: choices[worse]}
        self._agrees = (self._world.coins < self._world.agreement).tolist()
        self._cached = 0

    @cached_property
    def _odds(self) -> list[float]:
        """By position: how a token's fate and gap change the odds of the better regime."""
        # The gap's law depends on the fate alone, so that it cancels once the fate is seen.
        rights, wrongs = self._high / self._low, (1 - self._high) / (1 - self._low)
        return [rights if agrees else wrongs for agrees in self._agrees]

    @cached_property
    def _chances(self) -> dict[bool, list[float]]:
        """By belief in the better regime and by position: the chance that the gap leaves."""
        gaps = np.where(self._agrees, *self._world.gaps)
        return {
            better: self._world.gap_law.posterior(np.full(len(gaps), agreement), gaps).tolist()
            for better, agreement in ((True, self._high), (False, self._low))
        }

    def seconds(self, probing: Probing) -> Seconds:
        """Return what it takes."""
        account, (start, end) = Account(), self._world.turns[0]
        account.add(1, 0.0)
        n, belief, since, self._cached = start + 1, 0.5, 0, 0
        while n < end:
            better = belief >= probing.belief
            choice, shadow = self._choices[better], False
            if not better and not choice.model_length and since >= probing.every:
                choice, shadow = Choice(1), probing.shadow
            drafted, drafting_s = self._draft(
                n, min(choice.model_length, end - n - 1), choice, better
            )
            accepted = 0
            while not shadow and accepted < drafted and self._agrees[n + accepted]:
                accepted += 1
            width = 1 if shadow else drafted + 1
            account.add(accepted + 1, drafting_s + self._target_s(n, width))
            for position in range(n, n + min(accepted + 1, drafted)):
                odds = belief * self._odds[position]
                belief = odds / (odds + 1 - belief)
            for _ in range(accepted + 1):
                belief = belief * (1 - _HAZARD) + (1 - belief) * _HAZARD
            since = 0 if drafted else since + 1
            if drafted:
                self._cached = n + min(accepted, drafted - 1)
            n += accepted + 1
        return account.by_token()

    def _draft(self, n: int, most: int, choice: Choice, better: bool) -> tuple[int, float]:
        lag = min(n - self._cached, _WINDOW)
        drafted, seconds, survival = 0, 0.0, 1.0
        while drafted < most and (choice.stops is None or survival >= choice.stops[drafted]):
            seconds += self._world.seconds(Role.DRAFT_MODEL, lag, n + drafted, n)
            survival *= self._chances[better][n + drafted]
            drafted, lag = drafted + 1, 1
        return drafted, seconds

    def _target_s(self, n: int, width: int) -> float:
        return self._world.seconds(Role.TARGET, width, n + width - 1, n)


def best_probing(training: Sequence[Replay]) -> Probing:
    """Return what is best on the coins of other worlds of the same kind."""
    informed = [Informed(replay, training) for replay in training]

    def late(probing: Probing) -> float:
        taken = [each.seconds(probing) for each in informed]
        return float(sum(seconds[-1] - seconds[WARM_UP] for seconds in taken))

    return min(PROBINGS, key=late)
