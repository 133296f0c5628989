"""Ratios with confidence intervals: paired, on a logarithmic scale, by bootstrap.

Repeats of one prompt share its text, so they are not independent: what is drawn anew is prompts,
and within each of them repeats. A prompt counts by the median of its repeats, a kind of text by
the geometric mean of its prompts.

Source: the percentile bootstrap of Efron and Tibshirani 1993, in two stages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DRAWS = 2000
_CONFIDENCE = 0.95

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """A ratio, and how sure it is.

    Args:
        ratio: the estimate.
        draws: what it might have been, as logarithms, shape (DRAWS,).
        n: pairs of runs that it rests on.
        spread: whether these say anything of its uncertainty; a single one does not.
    """

    ratio: float
    draws: Floats
    n: int
    spread: bool

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval; None where a single pair of runs, of any part, says nothing of it."""
        if not self.spread:
            return None
        rest = (1 - _CONFIDENCE) / 2
        low, high = np.exp(np.quantile(self.draws, [rest, 1 - rest]))
        return float(low), float(high)


def estimate(ratios: Mapping[int, Sequence[float]], seed: int = 0) -> Estimate:
    """Return the ratio of one kind of text.

    Args:
        ratios: by prompt, those of its repeats; none of them empty.
        seed: the same one gives the same interval.
    """
    rng = np.random.default_rng(seed)
    logs = [np.log(np.asarray(each, dtype=np.float64)) for each in ratios.values()]
    middle = float(np.mean([np.median(each) for each in logs]))
    chosen = rng.integers(0, len(logs), (DRAWS, len(logs)))
    medians = np.empty(chosen.shape)
    for prompt, values in enumerate(logs):
        places = chosen == prompt
        drawn = rng.integers(0, len(values), (int(places.sum()), len(values)))
        medians[places] = np.median(values[drawn], axis=1)
    n = sum(map(len, logs))
    return Estimate(float(np.exp(middle)), medians.mean(axis=1), n, spread=n > 1)


def combined(estimates: Sequence[Estimate]) -> Estimate:
    """Return the geometric mean of estimates that do not depend on each other."""
    ratio = float(np.exp(np.mean([np.log(each.ratio) for each in estimates])))
    draws = np.mean([each.draws for each in estimates], axis=0)
    spread = all(each.spread for each in estimates)
    return Estimate(ratio, np.asarray(draws), sum(each.n for each in estimates), spread)
