"""Drift: whether a drafter is accepted at another rate lately than before, by the means of replies.

Two windows of replies on one kind of text: the last few, and those before them. They differ if Student's t of their means, with
the variance of both together, is beyond `_THRESHOLD`: that is high, since every reply looks again, in windows of three sizes. The change
began where t is greatest.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

_RECENT = (4, 8, 16)
_LEAST_BEFORE, MOST_REPLIES = 10, 60
_LEAST_JUDGED = 10
"""Tokens of a reply, before its rate counts."""
_THRESHOLD = 6.0
_LEAST_DIFFERENCE = 0.03


class Rate(NamedTuple):
    """What became of a reply's drafts: when it began, seconds since 1970, tokens that were judged, and accepted."""

    at: float
    judged: int
    accepted: int


class Drift(NamedTuple):
    """A drafter is accepted at another rate than before: since when, and both rates."""

    since_s: float
    before: float
    after: float


def find_drift(replies: Sequence[Rate]) -> Drift | None:
    """Return the change that the last replies show; None where there is none.

    Args:
        replies: the oldest first, since the last change; `MOST_REPLIES` are enough.
    """
    replies = [each for each in replies if each.judged >= _LEAST_JUDGED]
    rates = [each.accepted / each.judged for each in replies]
    sums = [(0.0, 0.0), *zip(accumulate(rates), accumulate(x * x for x in rates), strict=True)]
    sizes = range(1, min(_RECENT[-1], len(rates) - _LEAST_BEFORE) + 1)
    apart = {size: _apart(sums, size) for size in sizes}
    if max((apart.get(size, 0.0) for size in _RECENT), default=0.0) < _THRESHOLD:
        return None
    size = max(sizes, key=apart.__getitem__)
    return Drift(replies[-size].at, _rate(replies[:-size]), _rate(replies[-size:]))


def _apart(sums: Sequence[tuple[float, float]], recent: int) -> float:
    """Return Student's t of the last rates and those before, 0 where their means hardly differ.

    Args:
        sums: of the rates and of their squares, up to each place.
        recent: how many the last ones are.
    """
    count, before = len(sums) - 1, len(sums) - 1 - recent
    (whole, squares), (first, _) = sums[-1], sums[before]
    last = whole - first
    difference = abs(last / recent - first / before)
    squares -= first * first / before + last * last / recent
    error = math.sqrt(max(0.0, squares) / (count - 2) * (1 / recent + 1 / before))
    return difference / max(error, 1e-9) if difference >= _LEAST_DIFFERENCE else 0.0


def _rate(replies: Sequence[Rate]) -> float:
    return sum(each.accepted for each in replies) / sum(each.judged for each in replies)
