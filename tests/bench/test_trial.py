"""Ratios at equal lengths, and where texts fork."""

import pytest

from localspec.bench.trial import Arrival, Trial, fork, speed_ratio
from tests.bench.runs import a_trial


def test_a_ratio_is_of_whole_times_prefill_included() -> None:
    fast, off = a_trial("auto", wall_s=0.8), a_trial(wall_s=1.0)
    assert speed_ratio(fast, off) == pytest.approx(1.25)


def test_of_texts_that_end_apart_both_are_timed_up_to_the_shorter_length() -> None:
    """Twenty tokens at 0.1 s each after 1 s; the short one stops at ten, at the same pace."""
    long = a_trial("auto", wall_s=2.9, n_tokens=20, first_s=1.0)
    short = a_trial(wall_s=1.9, n_tokens=10, first_s=1.0)
    assert speed_ratio(long, short) == pytest.approx(1.0)
    assert speed_ratio(short, long) == pytest.approx(1.0)


def test_a_round_that_reaches_beyond_the_shorter_length_counts_with_all_its_tokens() -> None:
    off = a_trial(n_tokens=4, wall_s=0.4)
    drafted = Trial(off.slot, (), (Arrival(1, 0.1), Arrival(9, 0.45)), 0.0, (), 8, 8)
    assert drafted.token_s(4) == pytest.approx(0.05)
    assert speed_ratio(drafted, off) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("one", "other", "at"),
    [
        ((1, 2), (1, 2), None),
        ((1, 2, 3), (1, 5, 3), 1),
        ((1, 2), (1, 2, 3), 2),
        ((), (1,), 0),
        ((), (), None),
    ],
)
def test_a_fork_is_the_first_difference(
    one: tuple[int, ...], other: tuple[int, ...], at: int | None
) -> None:
    assert fork(one, other) == at
