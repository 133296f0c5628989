"""Paired: how much faster one arm is than another, from runs in pairs; when to stop; and how to say it.

A pair is one prompt answered by both arms, one right after the other, in changing order; its value is the logarithm
of the ratio of their speeds at equal lengths. The mean of the values is what is estimated. Machines stumble now and
then, so the mean is trimmed: a fifth of the pairs at either end tells only which side it was on.

How many pairs it takes is decided once, from the noise of the first ones, so that a slow-down of 5 % is found; after
that nothing is looked at until they are done. Looking at every pair, and stopping when it looks good, would find
differences where there are none.

Source: Yuen 1974 for the trimmed mean's interval; Stein 1945 for two stages.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FIRST_PAIRS = 12
MOST_PAIRS = 200
_TRIMMED = 0.2
_NOMINAL = 0.97
"""What holds in 95 % of all comparisons: noise that itself says how many pairs there are makes intervals too short."""
_FOUND, _CHANCE = math.log(1 / 0.95), 0.95
"""The slow-down that is to be found, and how surely it is planned for; noise is only estimated."""
_SAME = math.log(1.03)
"""What is called no difference where the whole interval lies within."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What pairs say of the ratio of the speeds of two arms.

    Args:
        ratio: the speed of b over that of a.
        low: end of the 95 % interval.
        high: the other end.
        pairs: how many.
    """

    ratio: float
    low: float
    high: float
    pairs: int

    @property
    def differs(self) -> bool:
        """Whether the arms differ, as far as 95 % are sure."""
        return not self.low <= 1 <= self.high

    def verdict(self, a: str, b: str) -> str:
        """Return it in words."""
        interval = f"{self.low:.3f} to {self.high:.3f}, {self.pairs} pairs"
        if self.differs:
            word = "faster" if self.ratio > 1 else "slower"
            return f"{b} is {word} than {a}: {self.ratio:.3f} times as fast ({interval})"
        if math.log(self.low) >= -_SAME and math.log(self.high) <= _SAME:
            return f"{a} and {b} are equally fast, within 3 %: {self.ratio:.3f} ({interval})"
        return (
            f"undecided: {b} is {self.ratio:.3f} times as fast as {a}, and the noise of this machine allows "
            f"{interval}; more pairs, or a quieter machine, would tell"
        )


def compare(values: Sequence[float]) -> Comparison:
    """Return what pairs say.

    Args:
        values: logarithms of the ratios of speeds, b over a; at least five.
    """
    mean, error, freedom = _trimmed(values)
    reach = student_quantile((1 + _NOMINAL) / 2, freedom) * error
    ends = (math.exp(mean - reach), math.exp(mean + reach))
    return Comparison(math.exp(mean), *ends, len(values))


def pairs_needed(values: Sequence[float]) -> int:
    """Return how many pairs there are to be in all, judged by the noise of the first.

    So many that a slow-down of 5 % would be found; never fewer than there are, nor more than `MOST_PAIRS`.
    """
    _, error, freedom = _trimmed(values)
    noise = error * math.sqrt(len(values))
    # What is measured of the noise is itself unsure: where it is underestimated, too few pairs would follow.
    reach = student_quantile((1 + _NOMINAL) / 2, freedom) + student_quantile(_CHANCE, freedom)
    return min(max(len(values), math.ceil((reach * noise / _FOUND) ** 2)), MOST_PAIRS)


def _trimmed(values: Sequence[float]) -> tuple[float, float, int]:
    """Return the trimmed mean, its standard error, and the degrees of freedom of that."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    cut = int(_TRIMMED * n)
    kept = ordered[cut : n - cut]
    winsorised = np.clip(ordered, kept[0], kept[-1])
    left = n - 2 * cut
    squares = float(np.sum((winsorised - winsorised.mean()) ** 2))
    return float(kept.mean()), math.sqrt(squares / (left * (left - 1))), left - 1


def student_quantile(share: float, freedom: int) -> float:
    """Return the value that a share of all draws from Student's t distribution lies below.

    Args:
        share: from 0.5 on, below 1.
        freedom: degrees of freedom, 1 or more.
    """
    low, high = 0.0, 1.0
    while _below(high, freedom) < share:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        if _below(middle, freedom) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _below(value: float, freedom: int) -> float:
    """Return the share of draws below a value that is not negative.

    Source: Abramowitz and Stegun 1964, 26.7.3 and 26.7.4, the finite sums for whole degrees of freedom.
    """
    angle = math.atan(value / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    if freedom % 2 == 0:
        term = total = 1.0
        for k in range(1, freedom // 2):
            term *= cosine * cosine * (2 * k - 1) / (2 * k)
            total += term
        return 0.5 + 0.5 * sine * total
    total = 0.0
    if freedom > 1:
        term = total = cosine
        for k in range(1, (freedom - 1) // 2):
            term *= cosine * cosine * (2 * k) / (2 * k + 1)
            total += term
    return 0.5 + (angle + sine * total) / math.pi
