"""Estimate: how much faster one arm is than another, from runs in pairs; and how many pairs that takes.

A pair is one prompt answered by both arms, one right after the other, in changing order; its value is the logarithm
of the ratio of their speeds at equal lengths. What is estimated is the mean of the values, with Student's t. Where
two arms are compared by a verdict, the mean is trimmed, since machines stumble now and then: a fifth of the pairs at
either end tells only which side it was on.

How many pairs a verdict takes is decided once, from the noise of the first ones, so that a slow-down of 5 % is found.
Looking at every pair, and stopping when it looks good, would find differences where there are none.

Source: Yuen 1974 for the trimmed mean's interval; Stein 1945 for two stages; Welch 1947 for means together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

FIRST_PAIRS, MOST_PAIRS, LEAST_PAIRS = 12, 200, 5
_TRIMMED = 0.2
_CONFIDENCE = 0.95
_NOMINAL = 0.97
"""Gives 95 % of all verdicts: noise that itself decides how many pairs there are makes intervals too short."""
_SLOWER, _CHANCE = math.log(1 / 0.95), 0.95
"""The slow-down that is to be found, and how surely it is planned for; noise is only estimated."""
_SAME = math.log(1.03)
"""What is called no difference where the whole interval lies within."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The ratio of the speeds of two arms.

    Args:
        mean: its logarithm.
        error: standard error of that; None where a single pair says nothing of it.
        freedom: degrees of freedom.
        pairs: pairs of runs that it rests on.
        confidence: of its interval, before Student's t.
    """

    mean: float
    error: float | None
    freedom: float
    pairs: int
    confidence: float = _CONFIDENCE

    @property
    def ratio(self) -> float:
        """How many times as fast."""
        return math.exp(self.mean)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the ratio; None where a single pair says nothing of it."""
        if self.error is None:
            return None
        reach = student_quantile((1 + self.confidence) / 2, self.freedom) * self.error
        return math.exp(self.mean - reach), math.exp(self.mean + reach)

    @property
    def differs(self) -> bool:
        """Whether the arms differ, as far as 95 % are sure."""
        return self.interval is not None and not self.interval[0] <= 1 <= self.interval[1]

    def verdict(self, a: str, b: str) -> str:
        """Return it in words, as the speed of `b` over that of `a`."""
        low, high = self.interval or (0.0, math.inf)
        interval = f"{low:.3f} to {high:.3f}, {self.pairs} pair{'' if self.pairs == 1 else 's'}"
        if self.differs:
            word = "faster" if self.mean > 0 else "slower"
            return f"{b} is {word} than {a}: {self.ratio:.3f} times as fast ({interval})"
        if math.exp(-_SAME) <= low and high <= math.exp(_SAME):
            return f"{a} and {b} are equally fast, within 3 %: {self.ratio:.3f} ({interval})"
        return (
            f"undecided: {b} is {self.ratio:.3f} times as fast as {a} ({interval}): not enough data, "
            "try more pairs or a quieter machine"
        )


def estimate(values: Sequence[float], pairs: int | None = None, trimmed: float = 0) -> Estimate:
    """Return the mean of values, each as independent of the others as the next.

    Args:
        values: logarithms of ratios; at least one.
        pairs: how many pairs of runs they are from; None is one each.
        trimmed: share at either end that counts only by its side, as a verdict has it.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    cut = int(trimmed * len(ordered))
    inner = ordered[cut : len(ordered) - cut]
    n, error = len(inner), None
    if n > 1:
        winsorised = np.clip(ordered, inner[0], inner[-1])
        squares = float(np.sum((winsorised - winsorised.mean()) ** 2))
        error = math.sqrt(squares / (n * (n - 1)))
    return Estimate(
        float(inner.mean()),
        error,
        n - 1,
        pairs or len(values),
        _NOMINAL if trimmed else _CONFIDENCE,
    )


def compare(values: Sequence[float]) -> Estimate:
    """Return a verdict's estimate from at least five logarithms of ratios, b over a: their trimmed mean."""
    return estimate(values, trimmed=_TRIMMED)


def combined(estimates: Sequence[Estimate]) -> Estimate:
    """Return the geometric mean of estimates that do not depend on each other; each counts alike."""
    mean = sum(each.mean for each in estimates) / len(estimates)
    pairs = sum(each.pairs for each in estimates)
    errors = [each.error for each in estimates if each.error is not None]
    if len(errors) < len(estimates):
        return Estimate(mean, None, 0, pairs)
    squares = [error**2 for error in errors]
    parts = zip(squares, estimates, strict=True)
    scatter = sum(square**2 / each.freedom for square, each in parts)
    freedom = sum(squares) ** 2 / scatter if scatter else 1.0
    return Estimate(mean, math.sqrt(sum(squares)) / len(estimates), freedom, pairs)


def pairs_needed(values: Sequence[float]) -> int:
    """Return how many pairs a verdict takes in all, judged by the noise of the first.

    So many that a slow-down of 5 % would be found; never fewer than there are, nor more than `MOST_PAIRS`.
    """
    first = compare(values)
    assert first.error is not None, "there are several"  # noqa: S101
    noise = first.error * math.sqrt(len(values))
    # What is measured of the noise is itself unsure: where it is underestimated, too few pairs would follow.
    reach = sum(student_quantile(q, first.freedom) for q in ((1 + _NOMINAL) / 2, _CHANCE))
    return min(max(len(values), math.ceil((reach * noise / _SLOWER) ** 2)), MOST_PAIRS)


def student_quantile(share: float, freedom: float) -> float:
    """Return the value that a share of all draws from Student's t distribution lies below.

    Exact for one and two degrees of freedom, within 1 % for more.
    Source: Abramowitz and Stegun 1964, 26.7.5.

    Args:
        share: from 0.5 on, below 1.
        freedom: degrees of freedom, 1 or more; below 3 only whole ones count.
    """
    if freedom < 2:
        return math.tan(math.pi * (share - 0.5))
    if freedom < 3:
        return (2 * share - 1) * math.sqrt(2 / (1 - (2 * share - 1) ** 2))
    z = NormalDist().inv_cdf(share)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))
