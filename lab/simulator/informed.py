"""The informed: knows all that the clairvoyant knows, but not when the text changes its kind, and promises what the policy promises.

It follows the odds of the better of two regimes by Bayes' rule, from every token of which it sees
what the draft model would have proposed, and drafts only what its budget covers if all of it is wrong. So it says
what of the clairvoyant's lead is out of reach for anybody who has to find out and may not lose more than that; it is near the best there, not the best.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from lab.simulator.clairvoyant import agreements, expected_rate, model_choices
from lab.simulator.loop import WARM_UP, Account, Seconds
from lab.simulator.replay import Choice, Replay
from localspec.decoding.model import Role
from localspec.decoding.policy.adaptive import MOST_LOST, OVER_TOKENS
from localspec.decoding.policy.budget import Budget

_HAZARD = 1 / 130  # regimes last 60 to 200 tokens
_WINDOW = 32  # a draft model that is further behind starts a new window
_COMPARED = (
    10  # latest tokens of which one pass of the draft model says what it would have proposed
)


@dataclass(frozen=True, slots=True)
class Probing:
    """How it finds out, where the worse regime is not worth drafting in.

    Args:
        every: plain tokens after which the draft model catches up, and is compared with the latest of them.
        belief: chance of the better regime from which on it drafts as there.
    """

    every: int
    belief: float


PROBINGS = [
    Probing(*p) for p in product((6, 8, 12, 16, 24, 32, 48, 64), (0.1, 0.2, 0.35, 0.5, 0.7))
]


class Informed:
    """Replays probing on the coins of a world with one kind of text, or two."""

    def __init__(self, replay: Replay, training: Sequence[Replay]) -> None:
        self._replay, self._world = replay, replay.world
        known, choices = agreements(training), model_choices(training, sees_gaps=True)
        better, *_, worse = sorted(2 * [*known], key=lambda regime: -known[regime][0])
        self.changes = better != worse
        self._high, self._low = known[better][0], known[worse][0]
        self._choices = {True: choices[better], False: choices[worse]}
        self._agrees = (self._world.coins < self._world.agreement).tolist()
        self._cached = 0

    @cached_property
    def _odds(self) -> list[float]:
        """By position: how a token's fate and gap change the odds of the better regime."""
        if not self.changes:
            return [1.0] * len(self._agrees)
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
        account, budget = Account(), Budget(MOST_LOST, OVER_TOKENS)
        start, end = self._world.turns[0]
        account.add(1, 0.0)
        n, since, self._cached = start + 1, 0, 0
        belief = 0.5 if self.changes else 1.0
        while n < end:
            plain_s, spent_s = self._target_s(n, 1), 0.0
            better = belief >= probing.belief
            if not better and since >= probing.every and self._pass_s(n) <= budget.steps * plain_s:
                belief, since = self._compared(n, belief, since), 0
                better = belief >= probing.belief
                spent_s, self._cached = self._pass_s(n), n
            choice = self._choices[better]
            affordable_s = (1 + budget.steps) * plain_s - spent_s
            most = self._affordable(min(choice.model_length, end - n - 1), n, better, affordable_s)
            drafted, drafting_s = self._draft(n, most, choice, better)
            accepted = 0
            while accepted < drafted and self._agrees[n + accepted]:
                accepted += 1
            spent_s += drafting_s + self._target_s(n, drafted + 1)
            budget.settle(accepted + 1, spent_s / plain_s)
            account.add(accepted + 1, spent_s)
            for position in range(n, n + min(accepted + 1, drafted)):
                belief = self._seen(belief, position)
            belief = self._forgotten(belief, accepted + 1)
            since = 0 if drafted else since + 1
            if drafted:
                self._cached = n + min(accepted, drafted - 1)
            n += accepted + 1
        return account.by_token()

    def _affordable(self, most: int, n: int, better: bool, affordable_s: float) -> int:
        """Return the most tokens that may all be lost and that, drafted blindly, would pay; `most` if it may."""
        costs = self._world.costs
        agreement = self._high if better else self._low

        def covered(length: int) -> bool:
            step_s = self._world.seconds(Role.DRAFT_MODEL, 1, n, n)
            drafting_s = self._pass_s(n) + (length - 1) * step_s if length else 0.0
            return drafting_s + self._target_s(n, length + 1) <= affordable_s

        if covered(most):
            return most
        lengths = [0, *(length for length in range(1, most) if covered(length))]
        return max(lengths, key=lambda length: expected_rate(costs, agreement, length, 0))

    def _compared(self, n: int, belief: float, since: int) -> float:
        """Return the belief once the latest of so many plain tokens are compared."""
        count = min(since, _COMPARED)
        belief = self._forgotten(belief, -count)
        for position in range(n - count, n):
            belief = self._forgotten(self._seen(belief, position), 1)
        return belief

    def _forgotten(self, belief: float, tokens: int) -> float:
        """Return the belief after so many tokens of which nothing was seen; before them, if it is less than none."""
        return 0.5 + (belief - 0.5) * (1 - 2 * _HAZARD) ** tokens if self.changes else belief

    def _seen(self, belief: float, position: int) -> float:
        odds = belief * self._odds[position]
        return odds / (odds + 1 - belief)

    def _pass_s(self, n: int) -> float:
        """Return the seconds of the draft model's next pass, which catches up; 0 where it was made."""
        lag = min(n - self._cached, _WINDOW)
        return self._world.seconds(Role.DRAFT_MODEL, lag, n, n) if lag else 0.0

    def _draft(self, n: int, most: int, choice: Choice, better: bool) -> tuple[int, float]:
        drafted, seconds, survival = 0, 0.0, 1.0
        while drafted < most and (choice.stops is None or survival >= choice.stops[drafted]):
            step_s = self._world.seconds(Role.DRAFT_MODEL, 1, n + drafted, n)
            seconds += step_s if drafted else self._pass_s(n)
            survival *= self._chances[better][n + drafted]
            drafted += 1
        return drafted, seconds

    def _target_s(self, n: int, width: int) -> float:
        return self._world.seconds(Role.TARGET, width, n + width - 1, n)


def best_probing(training: Sequence[Replay]) -> Probing:
    """Return what is best on the coins of other worlds of the same kind."""
    informed = [Informed(replay, training) for replay in training]

    def late(probing: Probing) -> float:
        taken = [each.seconds(probing) for each in informed]
        return float(sum(seconds[-1] - seconds[WARM_UP] for seconds in taken))

    return min(PROBINGS if informed[0].changes else PROBINGS[:1], key=late)
