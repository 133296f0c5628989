"""The statistics of `ab`, on noise that is known."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.bench.paired import (
    FIRST_PAIRS,
    MOST_PAIRS,
    Comparison,
    compare,
    pairs_needed,
    student_quantile,
)

_RUNS = 2000


def noise(rng: np.random.Generator, kind: str, size: float) -> NDArray[np.float64]:
    """Return as many values as there may be pairs."""
    if kind == "normal":
        return rng.normal(0, size, MOST_PAIRS)
    if kind == "heavy tails":
        return rng.standard_t(3, MOST_PAIRS) * size / math.sqrt(3)
    values = rng.normal(0, size, MOST_PAIRS)
    spikes = rng.choice([-1, 1], MOST_PAIRS) * rng.exponential(5 * size, MOST_PAIRS)
    return np.asarray(values + (rng.random(MOST_PAIRS) < 0.1) * spikes)


def verdicts(kind: str, size: float, effect: float) -> list[Comparison]:
    """Return the verdicts of 2,000 comparisons, each of as many pairs as it asks for."""
    rng = np.random.default_rng(7)
    found = []
    for _ in range(_RUNS):
        values = (noise(rng, kind, size) + effect).tolist()
        found.append(compare(values[: pairs_needed(values[:FIRST_PAIRS])]))
    return found


@pytest.mark.first(1)
@pytest.mark.parametrize("size", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("kind", ["normal", "heavy tails", "spikes"])
def test_of_2000_equal_arms_at_most_5_percent_are_called_different(kind: str, size: float) -> None:
    assert sum(each.differs for each in verdicts(kind, size, 0.0)) <= 0.05 * _RUNS


@pytest.mark.first(1)
@pytest.mark.parametrize("size", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("kind", ["normal", "heavy tails", "spikes"])
def test_of_2000_slow_downs_of_5_percent_at_least_90_percent_are_found(
    kind: str, size: float
) -> None:
    found = verdicts(kind, size, math.log(0.95))
    assert sum(each.high < 1 for each in found) >= 0.9 * _RUNS


@pytest.mark.parametrize(
    ("share", "freedom", "value"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.3027), (0.975, 7, 2.3646), (0.95, 10, 1.8125), (0.995, 30, 2.75)],
)  # fmt: skip
def test_quantiles_are_those_of_the_tables(share: float, freedom: int, value: float) -> None:
    assert student_quantile(share, freedom) == pytest.approx(value, abs=5e-4)


def test_more_noise_asks_for_more_pairs_up_to_a_limit() -> None:
    quiet = [0.01 * (-1) ** n for n in range(FIRST_PAIRS)]
    assert pairs_needed(quiet) == FIRST_PAIRS
    assert FIRST_PAIRS < pairs_needed([5 * value for value in quiet]) < MOST_PAIRS
    assert pairs_needed([90 * value for value in quiet]) == MOST_PAIRS


@pytest.mark.parametrize(
    ("ratio", "low", "high", "said"),
    [
        (1.3, 1.2, 1.4, "b is faster than a: 1.300 times as fast"),
        (0.8, 0.7, 0.9, "b is slower than a: 0.800 times as fast"),
        (1.001, 0.99, 1.01, "a and b are equally fast, within 3 %"),
        (1.1, 0.9, 1.3, "undecided: b is 1.100 times as fast as a"),
    ],
)
def test_verdict_in_words(ratio: float, low: float, high: float, said: str) -> None:
    assert said in Comparison(ratio, low, high, 12).verdict("a", "b")


def test_one_wild_pair_does_not_move_the_verdict() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(0.1, 0.01, 20).tolist()
    wild = compare([*values, 9.0])
    assert wild.ratio == pytest.approx(compare(values).ratio, rel=0.01)
    assert wild.differs
