"""Student's t distribution: its quantiles, without a library for it."""

import math


def quantile(share: float, freedom: int) -> float:
    """Return the value that a share of all draws lies below.

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
