"""EarlyStopping: while a draft model drafts, whether the next token is worth its pass."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.decoding.drafters.backoff import Hindsight, own_of

_LIKELY, _DOUBT = 0.7, 2.0
"""What is expected of a token before any is compared, and how many of them that counts as."""


@dataclass(frozen=True, slots=True)
class EarlyStopping:
    """Goes on as long as some further length has a greater surplus than stopping here.

    Args:
        longest: most tokens of the draft.
        chance_of: chance that a token is accepted, by the gap that it was chosen with.
        usual: chance of a token that is not drafted yet.
        step_s: seconds of a pass of the draft model.
        verify_s: seconds of a target pass by the number of drafted tokens.
        rate: confirmed tokens per second that the time could earn otherwise.
        compared: of the latest tokens of the text, whether each is the target's own: how many of
            those the draft model would have proposed shows what it is good for.
    """

    longest: int
    chance_of: Callable[[float], float]
    usual: float
    step_s: float
    verify_s: Callable[[int], float]
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
        plain_s, reach, expected = self.verify_s(0), 1.0, 1.0
        for length in range(1, self.longest + 1):
            reach *= chance
            expected += reach
            if expected * plain_s > length * self.step_s + self.verify_s(length):
                return True
        return False

    def goes_on(self, gaps: Sequence[float]) -> bool:
        """Say whether to propose another token after those with these `gaps`."""
        drafted, reached = len(gaps), self._reached(gaps)
        expected = sum(reached)
        stopping = max(self._surpluses(gaps))
        reach = reached[-1] if reached else 1.0
        for length in range(drafted + 1, self.longest + 1):
            reach *= self.usual
            expected += reach
            cost = (length - drafted) * self.step_s + self.verify_s(length)
            if expected - self.rate * cost > stopping:
                return True
            if reach < 0.01:
                break
        return False

    def keeps(self, gaps: Sequence[float]) -> int:
        """Say how many of the proposed tokens the target is to verify."""
        surpluses = self._surpluses(gaps)
        return surpluses.index(max(surpluses))

    def _reached(self, gaps: Sequence[float]) -> list[float]:
        """Return the chance of each drafted token to be confirmed."""
        reached, reach = [], 1.0
        for gap in gaps:
            reach *= self.chance_of(gap)
            reached.append(reach)
        return reached

    def _surpluses(self, gaps: Sequence[float]) -> list[float]:
        """Return what verifying 0, 1, … of the proposed tokens is worth; what is spent is spent."""
        surpluses, expected = [-self.rate * self.verify_s(0)], 0.0
        for length, reach in enumerate(self._reached(gaps), start=1):
            expected += reach
            surpluses.append(expected - self.rate * self.verify_s(length))
        return surpluses
