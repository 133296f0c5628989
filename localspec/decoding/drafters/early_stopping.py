"""EarlyStopping: while a draft model drafts, whether the next token is worth its pass."""

from collections.abc import Sequence
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
        usual: chance of a token that is not drafted yet.
        step_s: seconds of a pass of the draft model.
        verify_s: seconds of a target pass by the number of drafted tokens, from 0 to the most that a draft may have.
        rate: confirmed tokens per second that the time could earn otherwise.
        compared: of the latest tokens of the text, whether each is the target's own: how many of
            those the draft model would have proposed shows what it is good for.
    """

    usual: float
    step_s: float
    verify_s: Sequence[float]
    rate: float
    compared: tuple[bool, ...] = ()

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


class Growth:
    """A draft while it grows, and what verifying a part of it is worth; what is spent is spent.

    Args:
        stopping: how it is judged.

    Attributes:
        kept: how many of the proposed tokens the target is to verify.
    """

    def __init__(self, stopping: EarlyStopping) -> None:
        rate = stopping.rate
        # What passes cost in tokens that their time could earn otherwise: it is asked for after every token.
        self._verify = [rate * seconds for seconds in stopping.verify_s]
        self._step, self._usual = rate * stopping.step_s, stopping.usual
        self._length = self.kept = 0
        self._reach, self._expected = 1.0, 0.0
        self._best = -self._verify[0]

    def goes_on(self, chance: float) -> bool:
        """Take in a proposed token, by the chance that it is accepted; say whether to propose another."""
        self._length = length = self._length + 1
        self._reach = reach = self._reach * chance
        self._expected = surplus = self._expected + reach
        verify, step, usual = self._verify, self._step, self._usual
        if surplus - verify[length] > self._best:
            self._best, self.kept = surplus - verify[length], length
        best = self._best
        for wider in range(length + 1, len(verify)):
            reach *= usual
            surplus += reach - step
            if surplus - verify[wider] > best:
                return True
            if reach < _HARDLY:
                break
        return False
