"""Ratios and intervals on data with known answers."""

import numpy as np
import pytest

from localspec.bench.intervals import combined, estimate


def test_a_prompt_counts_by_the_median_of_its_repeats_and_a_kind_by_their_geometric_mean() -> None:
    found = estimate({0: [2.0, 2.0, 50.0], 1: [0.5, 0.4, 0.5]})
    assert found.ratio == pytest.approx(1.0)
    assert found.n == 6


def test_equal_ratios_have_no_uncertainty() -> None:
    assert estimate({0: [1.2, 1.2], 1: [1.2]}).interval == pytest.approx((1.2, 1.2))


def test_a_single_pair_of_runs_has_no_interval() -> None:
    found = estimate({0: [1.1]})
    assert found.interval is None
    assert found.ratio == pytest.approx(1.1)
    assert combined([found, estimate({0: [1.0, 1.1]})]).interval is None


def test_repeats_of_one_prompt_say_nothing_of_other_prompts() -> None:
    """A hundred repeats of two prompts that differ leave the interval as wide as the prompts."""
    found = estimate({0: [0.8] * 100, 1: [1.25] * 100})
    assert found.interval == pytest.approx((0.8, 1.25))


@pytest.mark.slow
def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """Over 300 fixed worlds of 12 prompts, 95 % nominal; the percentile bootstrap is a little narrow.

    With a coverage of 0.92, fewer than 260 or more than 296 has a chance below 1 in 1000.
    """
    held = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        of_prompt = rng.normal(0.1, 0.05, 12)
        ratios = {p: list(np.exp(rng.normal(each, 0.02, 3))) for p, each in enumerate(of_prompt)}
        interval = estimate(ratios, seed).interval
        assert interval is not None
        held += interval[0] <= np.exp(0.1) <= interval[1]
    assert 260 <= held <= 296


def test_the_same_seed_gives_the_same_interval() -> None:
    ratios = {p: [1.0 + p / 10, 1.3] for p in range(4)}
    assert estimate(ratios, 3).interval == estimate(ratios, 3).interval
    assert estimate(ratios, 3).interval != estimate(ratios, 4).interval


def test_kinds_of_text_count_alike_and_together_are_surer() -> None:
    rng = np.random.default_rng(1)
    parts = [
        estimate({p: list(np.exp(rng.normal(0, 0.1, 3))) for p in range(6)}, seed)
        for seed in range(9)
    ]
    whole = combined(parts)
    assert whole.ratio == pytest.approx(np.exp(np.mean([np.log(p.ratio) for p in parts])))
    assert whole.n == sum(part.n for part in parts)
    assert whole.interval is not None

    def width(interval: tuple[float, float] | None) -> float:
        assert interval is not None
        return float(np.log(interval[1] / interval[0]))

    typical = np.median([width(part.interval) for part in parts])
    assert width(whole.interval) == pytest.approx(typical / 3, rel=0.25)
