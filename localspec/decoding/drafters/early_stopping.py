"""EarlyStopping: while a draft model drafts, whether the next token is worth its pass."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from localspec.decoding.drafters.backoff import Hindsight, own_of
from localspec.decoding.lengths import WORTH_TRYING

_LIKELY, _DOUBT = 0.7, 2.0
"""What is expected of a token before any is compared, and how many of them that counts as."""
_HARDLY = 0.01
"""A chance that is not worth looking beyond."""


@dataclass(frozen=True, slots=True)
class EarlyStopping:
    """Goes on as long as some further length has a greater surplus than stopping here.

    Args:
        usual: chance of a token that is not drafted yet.
        step_s: seconds of a pass of the draft model.
        verify_s: seconds of a target pass by the number of drafted tokens, from 0 to the most that a draft may have.
        rate: confirmed tokens per second that the time could earn otherwise.
        compared: of the latest tokens of the text, whether each is the target's own: how many of
            those the draft model would have proposed shows what it is good for.
        branches: most second choices that may be verified beside the draft.
        second_right: chance that a second choice is right where the first is not.
    """

    usual: float
    step_s: float
    verify_s: Sequence[float]
    rate: float
    compared: tuple[bool, ...] = ()
    branches: int = 0
    second_right: float = 0.0

    @property
    def look_back(self) -> int:
        """How many of the latest tokens are compared."""
        return len(self.compared)

    def grow(self) -> "Growth":
        """Return a draft without tokens."""
        return Growth(self)

    def begins(self, hindsight: Sequence[Hindsight]) -> bool:
        """Say whether some length beats plain decoding, were every token as likely as those compared."""
        hits = [each.hit for each in own_of(hindsight, self.compared)]
        return self._pays(sum(hits), len(hits)) if any(hits) or not hits else False

    @property
    def could_begin(self) -> bool:
        """Whether it would begin if everything compared were right: where not, there is nothing to look back for."""
        own = sum(self.compared)
        return self._pays(own, own)

    def _pays(self, right: int, compared: int) -> bool:
        """Say whether some length beats plain decoding, with as many compared tokens right."""
        return self.pays((right + _DOUBT * _LIKELY) / (compared + _DOUBT))

    def pays(self, chance: float) -> bool:
        """Say whether some length beats plain decoding where every token has this chance."""
        return self.best_rate(chance) > 1 / self.verify_s[0]

    def best_rate(self, chance: float) -> float:
        """Return the tokens per second of the best length, 0 among them, where every token has this chance."""
        best, step_s, reach, expected = 1 / self.verify_s[0], self.step_s, 1.0, 1.0
        for length, verify_s in enumerate(self.verify_s[1:], start=1):
            reach *= chance
            expected += reach
            best = max(best, expected / (length * step_s + verify_s))
        return best


class Growth:
    """A draft while it grows, and what verifying a part of it is worth; what is spent is spent.

    Args:
        stopping: how it is judged.

    Attributes:
        kept: how many of the proposed tokens the target is to verify.
    """

    def __init__(self, stopping: EarlyStopping) -> None:
        # Where only short drafts can be afforded, time could not earn what long ones would.
        rate = min(stopping.rate, stopping.best_rate(stopping.usual))
        # A branch is judged by what time is worth at best, and has to be worth trying by that.
        self._dearer = WORTH_TRYING * stopping.rate / rate
        # What passes cost in tokens that their time could earn otherwise: it is asked for after every token.
        self._verify = [rate * seconds for seconds in stopping.verify_s]
        self._step, self._usual = rate * stopping.step_s, stopping.usual
        self._chances: list[float] = []
        self._branches, self._second_right = stopping.branches, stopping.second_right
        self._length = self.kept = 0
        self._reach, self._expected = 1.0, 0.0
        self._best = -self._verify[0]

    def goes_on(self, chance: float) -> bool:
        """Take in a proposed token, by the chance that it is accepted; say whether to propose another."""
        self._length = length = self._length + 1
        self._chances.append(chance)
        self._reach = reach = self._reach * chance
        self._expected = surplus = self._expected + reach
        verify, step, usual = self._verify, self._step, self._usual
        if surplus - verify[length] > self._best:
            self._best, self.kept = surplus - verify[length], length
        best, ahead = self._best, verify[length + 1 :]
        for wider in ahead:
            reach *= usual
            surplus += reach - step
            if surplus - wider > best:
                return True
            # Where a token promises less than its pass costs, only a dip in the costs of verifying makes up for it.
            if reach < _HARDLY or (reach <= step and surplus - min(ahead) <= best):
                break
        return False

    def branches(self, open_at: Collection[int], most: int) -> tuple[int, ...]:
        """Return where a second choice is worth a row of the pass beside what is kept, descending.

        One that is accepted is worth a token, less the row that evaluates it again in the next pass.

        Args:
            open_at: where there is one.
            most: tokens and branches that the draft may have.
        """
        kept, verify = self.kept, self._verify
        most = min(self._branches, min(most, len(verify) - 1) - kept)
        if most <= 0:
            return ()
        gains: list[tuple[float, int]] = []
        reach = self._second_right * (1 - max(0.0, self._dearer * (verify[1] - verify[0])))
        for at, chance in enumerate(self._chances[:kept]):
            if at in open_at:
                gains.append((reach * (1 - chance), at))
            reach *= chance
        gains.sort(reverse=True)
        gained = best = 0.0
        count = 0
        for width, (gain, _) in enumerate(gains[:most], start=1):
            gained += gain
            surplus = gained - self._dearer * (verify[kept + width] - verify[kept])
            if surplus > best:
                best, count = surplus, width
        return tuple(sorted((at for _, at in gains[:count]), reverse=True))
