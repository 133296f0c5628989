"""What passes cost, at first and as of now, and what follows for drafts and counts."""

import pytest

from localspec.decoding.costs import (
    AT_BEST,
    PairCosts,
    PassCosts,
    RunningCosts,
    at_best_of,
    best_count,
    could_pay,
    draft_model_could_win,
    shared_s,
    window_length,
)

TABLE = PassCosts((1, 2, 4, 8), (1.0, 1.8, 1.4, 3.0))


def test_between_measured_widths_the_cost_lies_on_the_line() -> None:
    for width, seconds in {1: 1.0, 2: 1.8, 3: 1.6, 6: 2.2, 8: 3.0, 16: 6.0}.items():
        assert TABLE.of(width) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("widths", "seconds"),
    [((), ()), ((2, 3), (1.0, 1.0)), ((1, 2), (1.0,)), ((1, 3, 2), (1.0,) * 3), ((1,), (0.0,))],
)
def test_a_wrong_table_is_refused(widths: tuple[int, ...], seconds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"width|time"):
        PassCosts(widths, seconds)


# As of now.

Passes = tuple[tuple[int, float, int], ...]
"""Widths, by how many times what the table says they take longer, and how often in a row."""


@pytest.mark.parametrize(
    ("passes", "times", "factors"),
    [
        (((2, 2.0, 1),), 60, {2: (2.0, 0.1), 8: (1.8, 0.3)}),  # corrects every width
        (((1, 1.0, 12), (1, 100.0, 1)), 1, {1: (1.03, 0.03)}),  # one was disturbed
        (((1, 1.4, 1),), 4, {8: (1.4, 0.14)}),  # a table of another day
        (((1, 1.0, 1), (4, 1.5, 1)), 200, {1: (1.0, 0.05), 4: (1.5, 0.15)}),  # apart
        # Of wide passes alone, from the first of them on and for all, however rare they are.
        (((1, 1.0, 8), (4, 1.3, 1)), 4, {1: (1.0, 0.03), 4: (1.3, 0.1), 8: (1.3, 0.16)}),
        (((1, 1.0, 20), (4, 1.35, 1)), 100, {4: (1.35, 0.04)}),
        # What slowed wide passes is forgotten while none is made.
        (((4, 2.0, 12), (1, 1.0, 1600)), 1, {1: (1.0, 0.03), 4: (1.0, 0.04), 8: (1.0, 0.04)}),
    ],
)
def test_what_passes_really_take_corrects_the_table(
    passes: Passes, times: int, factors: dict[int, tuple[float, float]]
) -> None:
    running = RunningCosts(TABLE)
    for _ in range(times):
        for width, factor, count in passes:
            for _ in range(count):
                running.add(width, factor * TABLE.of(width))
    for width, (factor, within) in factors.items():
        assert running.of(width) / TABLE.of(width) == pytest.approx(factor, abs=within)


def test_costs_of_all_widths_are_those_of_each() -> None:
    running, alone = RunningCosts(TABLE), RunningCosts(TABLE)
    for width, seconds in ((1, 1.7), (4, 1.1), (2, 3.0), (6, 2.0)):
        running.add(width, seconds)
        alone.add(width, seconds)
        assert running.upto(8) == [running.of(each) for each in range(1, 9)]
        assert running.upto(3, 2) == running.upto(8)[2:5]
        assert running.upto(2, token_s=0.5)[1] == running.of(2) + 1
    assert running.upto(8) == [alone.of(each) for each in range(1, 9)]
    slow = PassCosts((1, 32), (0.001, 0.0032))  # a tenth of a millisecond for each token
    assert window_length(GPU, slow, 4096) == 200
    assert window_length(GPU, slow, 150) == 150, "no more than its context"
    assert window_length(GPU, DEAR, 4096) == 32, "enough to show what it is good for"
    assert shared_s(FLAT, 0, 7) == pytest.approx([FLAT.of(width) for width in range(1, 8)])
    shared = shared_s(FLAT, 3, 6, token_s=0.1)
    assert shared[0] == pytest.approx(FLAT.of(4) / 4 + 0.1)
    assert shared[5] == pytest.approx(FLAT.of(4) / 4 + FLAT.of(5) + 0.6)
    together = shared_s(FLAT, 3, 6, drafting=2)
    assert together[5] == pytest.approx(FLAT.of(4) / 4 + FLAT.of(10) / 2), "two share that pass"
    assert not could_pay(LINEAR, 1, 31)
    paying = [could_pay(FLAT, count, 31) for count in range(1, 60)]
    assert paying == sorted(paying, reverse=True), "once it does not pay, it never does"
    assert paying.index(False) == 54, "alone 27"


# What could pay.

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32)
Q4_K_M = PassCosts(
    WIDTHS, (0.0227, 0.0415, 0.0558, 0.0685, 0.0837, 0.0984, 0.1149, 0.1434, 0.1377, 0.2503)
)
GPU = PassCosts(WIDTHS, (0.01, 0.01, 0.01, 0.011, 0.011, 0.011, 0.012, 0.014, 0.015, 0.02))
DEAR = PassCosts((1, 32), (0.0142, 0.1543))
CHEAP = PassCosts((1, 32), (0.001, 0.002))
LINEAR = PassCosts((1, 64), (1.0, 64.0))
FLAT = PassCosts((1, 64), (1.0, 1.6))
"""As on a device on which a wide pass takes hardly longer than a narrow one."""


@pytest.mark.parametrize(
    ("costs", "longest", "wins"),
    [
        (PairCosts(Q4_K_M, DEAR), 31, False),
        (PairCosts(GPU, CHEAP), 31, True),
        (PairCosts(GPU), 31, False),
        (PairCosts(Q4_K_M, CHEAP), 31, True),
        # Heads may be a little better than they were measured to be.
        (PairCosts(Q4_K_M, CHEAP, at_best=at_best_of(None)), 31, True),
        (PairCosts(Q4_K_M, CHEAP, at_best=at_best_of(0.5)), 31, False),
        (PairCosts(Q4_K_M, CHEAP, at_best=at_best_of(0.9)), 31, True),
        # Of a block the whole draft pays for one pass.
        (PairCosts(GPU, GPU), 31, False),
        (PairCosts(GPU, GPU, in_one_pass=True), 31, True),
        (PairCosts(GPU, GPU, in_one_pass=True), 1, False),
    ],
)
def test_a_draft_model_could_win_only_where_its_passes_and_wide_ones_are_cheap_enough(
    costs: PairCosts, longest: int, wins: bool
) -> None:
    assert draft_model_could_win(costs, longest) is wins
    chances = [at_best_of(each) for each in (None, 0.0, 0.5, 0.99)]
    assert chances == pytest.approx([AT_BEST, 0.1, 0.6, AT_BEST])


# Milliseconds of SmolLM2's passes of so many sequences, on two cores.
SMOLLM2 = PassCosts(
    (1, 2, 4, 6, 8, 12, 16, 24, 32), (6.0, 11.2, 18.1, 25.4, 27.4, 36.4, 44.3, 67.2, 86.3)
)
FREE = PassCosts((1, 8, 64), (1.0, 1.0, 1.0))


@pytest.mark.parametrize(
    ("costs", "counts"),
    [
        (SMOLLM2, {1: 1, 2: 2, 5: 4, 8: 8, 15: 12, 64: 16}),
        (PassCosts((1, 2, 64), (1.0, 2.0, 64.0)), {64: 1}),
        (FREE, {64: 64, 63: 8}),
    ],
)
def test_the_best_count_is_the_least_of_equals(costs: PassCosts, counts: dict[int, int]) -> None:
    assert {most: best_count(costs, most) for most in counts} == counts


def test_a_wide_pass_is_charged_with_the_return_from_it() -> None:
    """Plain passes take a second, and two behind a wide one of three."""
    running = RunningCosts(PassCosts((1, 4), (1.0, 3.0)))
    for _ in range(40):
        for width, seconds in ((4, 3.0), (1, 2.0), (1, 1.0), (1, 1.0)):
            running.add(width, seconds)
    assert running.return_s == pytest.approx(1.0, rel=0.15)
    assert running.upto(4) == pytest.approx([1.0, 2.67, 3.33, 4.0], rel=0.1)
    for _ in range(40):
        running.add(4, 3.0)
    assert running.return_s == 0, "where wide ones follow each other nothing returns"


@pytest.mark.parametrize("load", [1.5, 2.0])
def test_a_slow_machine_is_no_return_for_long(load: float) -> None:
    """Plain and wide passes alternate as the machine becomes slower, and later nothing is drafted on it."""
    running = RunningCosts(PassCosts((1, 4), (1.0, 3.0)))
    for _ in range(10):
        running.add(1, 1.0)
    for factor in (1.0, load):
        for _ in range(60):
            running.add(4, 3.0 * factor)
            running.add(1, 1.0 * factor)
    assert running.of(1) == pytest.approx(load, rel=0.05)
    for _ in range(1000):
        running.add(1, load)
    assert running.return_s == 0


def test_a_few_disturbed_passes_behind_wide_ones_are_no_return() -> None:
    running = RunningCosts(PassCosts((1, 4), (1.0, 3.0)))
    for number in range(60):
        for width, seconds in ((4, 3.0), (1, 1.4 if number % 12 == 0 else 1.0), (1, 1.0)):
            running.add(width, seconds)
        assert running.return_s == 0
