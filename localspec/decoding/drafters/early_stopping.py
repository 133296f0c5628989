"""EarlyStopping: while a draft model drafts, whether the next token is worth its pass."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.decoding.drafters.backoff import Hindsight, own_of

_LIKELY, _DOUBT = 0.7, 2.0
"""What is expected of a token before any is compared, and how many of them that counts as."""
_HARDLY = 0.01
"""A chance that is not worth looking beyond."""


@dataclass(frozen=True, slots=True)
class EarlyStopping:
    """Goes on as long as some further length has a greater surplus than stopping here.

    Args:
        chance_of: chance that a token is accepted, by the gap that it was chosen with.
        usual: chance of a token that is not drafted yet.
        step_s: seconds of a pass of the draft model.
        verify_s: seconds of a target pass by the number of drafted tokens, from 0 to the most that a draft may have.
        rate: confirmed tokens per second that the time could earn otherwise.
        compared: of the latest tokens of the text, whether each is the target's own: how many of
            those the draft model would have proposed shows what it is good for.
    """

    chance_of: Callable[[float], float]
    usual: float
    step_s: float
    verify_s: Sequence[float]
    rate: float
    compared: tuple[bool, ...] = ()

    @property
    def look_back(self) -> int:
        """How many of the latest tokens are compared."""
        return len(self.compared)

    def begins(self, hindsight: Sequence[Hindsight]) -> bool:
        """Say whether some length beats plain decoding, were every token as likely as those compared."""
        hits = [each.hit for each in own_of(hindsight, self.compared)]
        if hits and not any(hits):
            return False
        chance = (sum(hits) + _DOUBT * _LIKELY) / (len(hits) + _DOUBT)
        plain_s, reach, expected = self.verify_s[0], 1.0, 1.0
        for length, verify_s in enumerate(self.verify_s[1:], start=1):
            reach *= chance
            expected += reach
            if expected * plain_s > length * self.step_s + verify_s:
                return True
        return False

    def goes_on(self, chances: Sequence[float]) -> bool:
        """Say whether to propose another token after those with these `chances`, by `chance_of`."""
        stopping, expected, reach = self._surpluses(chances)
        best, rate, usual = max(stopping), self.rate, self.usual
        for more, verify_s in enumerate(self.verify_s[len(chances) + 1 :], start=1):
            reach *= usual
            expected += reach
            if expected - rate * (more * self.step_s + verify_s) > best:
                return True
            if reach < _HARDLY:
                break
        return False

    def keeps(self, chances: Sequence[float]) -> int:
        """Say how many of the proposed tokens the target is to verify."""
        surpluses, _, _ = self._surpluses(chances)
        return surpluses.index(max(surpluses))

    def _surpluses(self, chances: Sequence[float]) -> tuple[list[float], float, float]:
        """Return what verifying 0, 1, … of the proposed tokens is worth, how many of all of them are
        expected to be confirmed, and the chance of the last; what is spent is spent.
        """
        expected, reach, rate, verify_s = 0.0, 1.0, self.rate, self.verify_s
        surpluses = [-rate * verify_s[0]]
        for length, chance in enumerate(chances, start=1):
            reach *= chance
            expected += reach
            surpluses.append(expected - rate * verify_s[length])
        return surpluses, expected, reach
