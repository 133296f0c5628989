"""Gain: what drafting gained, counted in one way for every place that shows it.

Time without drafting divided by time with it, from the request to the last token. Reading the prompt takes the same either
way; every token behind the first is priced as a plain round of this very answer, so that depth and busy neighbours slow
both sides alike. Where an answer has too few plain rounds, a plain round is the measured cost of this machine times what
the answer's own passes took, relative to theirs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localspec.decoding.round import Round

if TYPE_CHECKING:
    from localspec.decoding.costs import PassCosts

LEAST_ANSWERS = 5
"""Fewer do not separate what drafting gained on average from chance."""
_LEAST_PLAIN = 8
_TABLE_ERROR = 0.05
"""Standard error of a plain round that is known from the costs of passes alone."""
_NORMAL_95 = 1.96
COMPARED_ERROR = _NORMAL_95 * math.sqrt(2) * _TABLE_ERROR
"""By how much the logarithms of two costs of passes may differ, in 95 of 100 cases, where nothing else does."""


@dataclass(frozen=True, slots=True)
class Gain:
    """What drafting gained in one answer, or in several.

    Args:
        plain_s: seconds without drafting, estimated.
        spent_s: seconds that it took.
        error: standard error of the logarithm of their ratio.
    """

    plain_s: float
    spent_s: float
    error: float

    @property
    def ratio(self) -> float:
        """How many times as fast as without drafting."""
        return self.plain_s / self.spent_s

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the ratio."""
        reach = math.exp(_NORMAL_95 * self.error)
        return self.ratio / reach, self.ratio * reach

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes a ratio of 1."""
        low, high = self.interval
        return low > 1 or high < 1


class GainMeter:
    """Adds up the rounds of one answer.

    Args:
        costs: of the target's passes; None where they were not measured.
    """

    def __init__(self, costs: "PassCosts | None") -> None:
        self._costs = costs
        self._plain = list[float]()
        self._drafted = self._confirmed = 0
        self._verify_s = self._aside_s = self._drafting_s = self._table_s = 0.0

    def add(self, done: Round) -> None:
        """Count a round; the first token, which the prompt gives, is none."""
        if done.is_first:
            return
        spent = done.spent
        self._drafted += done.drafted
        self._confirmed += len(done.confirmed)
        self._verify_s += spent.verify_s
        self._drafting_s += spent.drafting_s
        self._aside_s += spent.aside_s
        if done.width == 1:
            self._plain.append(spent.verify_s + spent.aside_s)
        if self._costs is not None:
            self._table_s += self._costs.of(done.width)

    def plain_token(self) -> tuple[float, float] | None:
        """Return the seconds of a token without drafting, and their relative standard error; None where they are unknown."""
        if not self._confirmed:
            return None
        count = len(self._plain)
        if count >= _LEAST_PLAIN:
            token_s = sum(self._plain) / count
            squares = sum((each - token_s) ** 2 for each in self._plain)
            error_s = math.sqrt(squares / (count - 1) / count)
        elif self._costs is not None and self._table_s:
            pass_s = self._costs.of(1) * self._verify_s / self._table_s
            # Choosing and text take their time per token, drafted or not.
            token_s = pass_s + self._aside_s / self._confirmed
            error_s = pass_s * _TABLE_ERROR
        else:
            return None
        return (token_s, error_s / token_s) if token_s else None

    def gain(self, prefill_s: float) -> Gain | None:
        """Return what drafting gained; None where nothing was drafted, or that is not known.

        Args:
            prefill_s: seconds of reading the prompt.
        """
        token = self.plain_token()
        if token is None or not self._drafted:
            return None
        plain_s = self._confirmed * token[0]
        spent_s = self._drafting_s + self._verify_s + self._aside_s
        whole_s = prefill_s + plain_s
        return Gain(whole_s, prefill_s + spent_s, token[1] * plain_s / whole_s)


def together(gains: Sequence[Gain]) -> Gain | None:
    """Return what drafting gained in several answers, with the spread among them as its error; None of too few.

    Source: Cochran 1977, Sampling Techniques, 6.4, the error of a ratio of sums.
    """
    count = len(gains)
    if count < LEAST_ANSWERS:
        return None
    plain_s, spent_s = sum(each.plain_s for each in gains), sum(each.spent_s for each in gains)
    ratio = plain_s / spent_s
    squares = sum((each.plain_s - ratio * each.spent_s) ** 2 for each in gains)
    error = math.sqrt(squares * count / (count - 1)) / plain_s
    # The interval is one of a normal distribution's: of few answers, Student's is wider.
    return Gain(plain_s, spent_s, error * student_95(count - 1) / _NORMAL_95)


def student_95(freedom: int) -> float:
    """Return what 97.5 % of Student's t distribution lie below, to 2 % from 4 degrees of freedom on.

    Source: Abramowitz and Stegun 1964, 26.7.5, two terms.
    """
    z = _NORMAL_95
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
