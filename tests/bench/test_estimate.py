"""Ratios, intervals and verdicts, on noise that is known."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.bench.estimate import (
    FIRST_PAIRS,
    MOST_PAIRS,
    Estimate,
    combined,
    compare,
    estimate,
    pairs_needed,
    student_quantile,
)

_RUNS = 2000


def noise(rng: np.random.Generator, kind: str, size: float) -> NDArray[np.float64]:
    """Return as many values as there may be pairs."""
    if kind == "heavy tails":
        return rng.standard_t(3, MOST_PAIRS) * size / math.sqrt(3)
    spikes = rng.choice([-1, 1], MOST_PAIRS) * rng.exponential(5 * size, MOST_PAIRS)
    share = 0.1 * (kind == "spikes")
    return np.asarray(rng.normal(0, size, MOST_PAIRS) + (rng.random(MOST_PAIRS) < share) * spikes)


def verdicts(kind: str, size: float, effect: float) -> list[Estimate]:
    """Return the verdicts of 2,000 comparisons, each of as many pairs as it asks for."""
    rng = np.random.default_rng(7)
    values = [(noise(rng, kind, size) + effect).tolist() for _ in range(_RUNS)]
    return [compare(each[: pairs_needed(each[:FIRST_PAIRS])]) for each in values]


@pytest.mark.first(1)
@pytest.mark.parametrize("size", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("kind", ["normal", "heavy tails", "spikes"])
def test_of_2000_verdicts_5_percent_are_wrong_and_90_percent_of_slow_downs_are_noticed(
    kind: str, size: float
) -> None:
    assert sum(each.differs for each in verdicts(kind, size, 0.0)) <= 0.05 * _RUNS
    slower = verdicts(kind, size, math.log(0.95))
    assert sum(each.interval is not None and each.interval[1] < 1 for each in slower) >= 0.9 * _RUNS


@pytest.mark.parametrize(
    ("share", "freedom", "value"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.3027), (0.975, 3, 3.1824), (0.975, 7, 2.3646), (0.95, 10, 1.8125), (0.995, 30, 2.75)],
)  # fmt: skip
def test_quantiles_are_those_of_the_tables(share: float, freedom: int, value: float) -> None:
    assert student_quantile(share, freedom) == pytest.approx(value, rel=2e-3)


def test_more_noise_asks_for_more_pairs_up_to_a_limit() -> None:
    quiet = [0.01 * (-1) ** n for n in range(FIRST_PAIRS)]
    once, more, most = (pairs_needed([k * value for value in quiet]) for k in (1, 5, 90))
    assert (once, most) == (FIRST_PAIRS, MOST_PAIRS)
    assert once < more < most


@pytest.mark.parametrize(
    ("ratio", "error", "words"),
    [
        (1.3, 0.02, "b is faster than a: 1.300 times as fast"),
        (0.8, 0.02, "b is slower than a: 0.800 times as fast"),
        (1.001, 0.005, "a and b are equally fast, within 3 %"),
        (1.1, 0.09, "undecided: b is 1.100 times as fast as a"),
    ],
)
def test_a_verdict_in_words(ratio: float, error: float, words: str) -> None:
    assert words in Estimate(math.log(ratio), error, 11, 12).verdict("a", "b")


def test_one_wild_pair_does_not_move_the_verdict() -> None:
    values = np.random.default_rng(1).normal(0.1, 0.01, 20).tolist()
    wild = compare([*values, 9.0])
    assert wild.ratio == pytest.approx(compare(values).ratio, rel=0.01)
    assert wild.differs


def test_a_single_pair_has_no_interval_and_equal_ratios_have_no_uncertainty() -> None:
    single = estimate([math.log(1.1)])
    assert single.interval is combined([single, estimate([0.0, 0.1])]).interval is None
    assert single.ratio == pytest.approx(1.1)
    assert estimate([0.2, 0.2, 0.2]).interval == pytest.approx((math.exp(0.2),) * 2)
    assert combined([estimate([0.1, 0.1])] * 2).interval == pytest.approx((math.exp(0.1),) * 2)


@pytest.mark.parametrize("n", [3, 6, 12])
def test_the_interval_holds_the_truth_as_often_as_it_says(n: int) -> None:
    rng = np.random.default_rng(3)
    intervals = [estimate(rng.normal(0.1, 0.05, n).tolist()).interval for _ in range(_RUNS)]
    held = sum(each is not None and each[0] <= math.exp(0.1) <= each[1] for each in intervals)
    assert 0.93 * _RUNS <= held <= 0.97 * _RUNS


def test_kinds_of_text_count_alike_and_together_are_surer() -> None:
    rng = np.random.default_rng(1)
    held, widths = 0, list[float]()
    for _ in range(_RUNS):
        parts = [estimate(rng.normal(0.1, 0.05, 6).tolist()) for _ in range(9)]
        whole = combined(parts)
        assert whole.mean == pytest.approx(np.mean([part.mean for part in parts]))
        assert whole.pairs == 54
        low, high = whole.interval or (0, 0)
        held += low <= math.exp(0.1) <= high
        widths.append(math.log(high / low))
    assert 0.93 * _RUNS <= held <= 0.975 * _RUNS
    assert np.median(widths) == pytest.approx(2 * 1.96 * 0.05 / math.sqrt(54), rel=0.15)
