import pytest

from localspec.decoding.costs import (
    PairCosts,
    PassCosts,
    best_count,
    could_pay,
    draft_model_could_win,
    shared_s,
    window_length,
)

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32)
Q4_K_M = PassCosts(
    WIDTHS,
    (0.0227, 0.0415, 0.0558, 0.0685, 0.0837, 0.0984, 0.1149, 0.1434, 0.1377, 0.2503),
)
GPU = PassCosts(WIDTHS, (0.01, 0.01, 0.01, 0.011, 0.011, 0.011, 0.012, 0.014, 0.015, 0.02))
DEAR = PassCosts((1, 32), (0.0142, 0.1543))
CHEAP = PassCosts((1, 32), (0.001, 0.002))


@pytest.mark.parametrize(
    ("target", "draft_model", "wins"),
    [(Q4_K_M, DEAR, False), (GPU, CHEAP, True), (GPU, GPU, False), (Q4_K_M, CHEAP, True)],
)
def test_a_draft_model_could_win_only_where_its_passes_and_wide_ones_are_cheap_enough(
    target: PassCosts, draft_model: PassCosts, wins: bool
) -> None:
    assert draft_model_could_win(PairCosts(target, draft_model), 31) is wins


def test_a_window_takes_the_draft_model_two_plain_steps() -> None:
    slow = PassCosts((1, 32), (0.001, 0.0032))  # a tenth of a millisecond for each token
    assert window_length(GPU, slow, 4096) == 200
    assert window_length(GPU, slow, 150) == 150, "no more than its context"
    assert window_length(GPU, DEAR, 4096) == 32, "enough to show what it is good for"


LINEAR = PassCosts((1, 64), (1.0, 64.0))
FLAT = PassCosts((1, 64), (1.0, 1.6))
"""As on a device on which a wide pass takes hardly longer than a narrow one."""
# Milliseconds of SmolLM2's passes of so many sequences, on two cores.
SMOLLM2 = PassCosts(
    (1, 2, 4, 6, 8, 12, 16, 24, 32), (6.0, 11.2, 18.1, 25.4, 27.4, 36.4, 44.3, 67.2, 86.3)
)


def test_alone_a_pass_costs_what_the_table_says() -> None:
    assert shared_s(FLAT, 0, 7) == pytest.approx([FLAT.of(width) for width in range(1, 8)])


def test_beside_others_a_plain_pass_costs_its_share_and_a_draft_a_pass_more() -> None:
    seconds = shared_s(FLAT, 3, 6, token_s=0.1)
    assert seconds[0] == pytest.approx(FLAT.of(4) / 4 + 0.1)
    assert seconds[5] == pytest.approx(FLAT.of(4) / 4 + FLAT.of(5) + 0.6)


def test_a_draft_pays_for_one_or_for_nobody_as_the_batch_grows() -> None:
    assert could_pay(FLAT, 1, 31)
    assert not could_pay(LINEAR, 1, 31)
    paying = [could_pay(FLAT, count, 31) for count in range(1, 60)]
    assert paying == sorted(paying, reverse=True), "once it does not pay, it never does"
    assert not paying[-1]


def test_the_least_count_that_gives_nearly_the_most_is_chosen() -> None:
    assert best_count(SMOLLM2, 64) == 16


@pytest.mark.parametrize(("most", "count"), [(1, 1), (2, 2), (5, 4), (8, 8), (15, 12)])
def test_no_more_than_there_may_be(most: int, count: int) -> None:
    assert best_count(SMOLLM2, most) == count


def test_where_more_gain_nothing_one_is_enough() -> None:
    assert best_count(PassCosts((1, 2, 64), (1.0, 2.0, 64.0)), 64) == 1


def test_where_width_is_free_all_are_taken() -> None:
    assert best_count(PassCosts((1, 8, 64), (1.0, 1.0, 1.0)), 64) == 64
    assert best_count(PassCosts((1, 8, 64), (1.0, 1.0, 1.0)), 63) == 8
