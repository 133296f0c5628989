"""Is it the right law? Chi-square and Kolmogorov-Smirnov, without scipy.

Every threshold is the 0.999 quantile, so a right implementation fails a check with a chance of
one in a thousand; seeds are fixed, so that chance was taken once, when the test was written,
and a check that passes goes on passing.
"""

import math

import numpy as np
from numpy.typing import NDArray

_NORMAL_QUANTILE = 3.0902  # of 0.999
_KOLMOGOROV_QUANTILE = 1.9495  # of 0.999


def chi_square_limit(degrees: int) -> float:
    """Return the 0.999 quantile of chi-square, by Wilson and Hilferty's cube (within 1 %)."""
    spread = 2 / (9 * degrees)
    return float(degrees * (1 - spread + _NORMAL_QUANTILE * math.sqrt(spread)) ** 3)


def chi_square(counts: NDArray[np.int64], probabilities: NDArray[np.float64]) -> float:
    """Return the statistic of counts against probabilities that sum to 1."""
    expected = counts.sum() * probabilities
    assert expected.min() >= 5, "too few draws for chi-square"
    return float((((counts - expected) ** 2) / expected).sum())


def follows(counts: NDArray[np.int64], probabilities: NDArray[np.float64]) -> bool:
    assert abs(probabilities.sum() - 1) < 1e-9
    statistic = chi_square(counts.ravel(), probabilities.ravel())
    return statistic < chi_square_limit(counts.size - 1)


def are_uniform(numbers: NDArray[np.float64]) -> bool:
    """Say whether numbers can be draws from the uniform law on 0 to 1 (Kolmogorov-Smirnov)."""
    ordered = np.sort(numbers)
    n = ordered.size
    steps = np.arange(n + 1) / n
    distance = max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max())
    return bool(math.sqrt(n) * distance < _KOLMOGOROV_QUANTILE)


def are_independent(left: NDArray[np.float64], right: NDArray[np.float64], cells: int = 12) -> bool:
    """Say whether two uniform numbers of the same draws can be independent (chi-square)."""
    counts = np.zeros((cells, cells), dtype=np.int64)
    np.add.at(counts, ((left * cells).astype(int), (right * cells).astype(int)), 1)
    return follows(counts, np.full((cells, cells), 1 / cells**2))
