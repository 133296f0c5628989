"""best_count: the knee of the curve of tokens per second over the number of sequences."""

import pytest
from localspec.decoding.side_by_side import best_count

from localspec.decoding.costs import PassCosts

# Milliseconds of SmolLM2's passes of so many sequences, on two cores.
SMOLLM2 = PassCosts(
    (1, 2, 4, 6, 8, 12, 16, 24, 32), (6.0, 11.2, 18.1, 25.4, 27.4, 36.4, 44.3, 67.2, 86.3)
)


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
