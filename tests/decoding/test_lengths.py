import pytest

from localspec.decoding.costs import PassCosts
from localspec.decoding.lengths import Worth, best_length

Q4_0 = PassCosts((1, 2, 3, 4, 5, 6, 8), (22.8, 43.0, 58.9, 48.4, 64.7, 80.0, 79.9))


def best(chance: float, most: int, affordable: float = float("inf")) -> Worth | None:
    return best_length([chance] * most, [Q4_0.of(k + 1) for k in range(most + 1)], affordable)


def test_a_wider_pass_that_costs_less_is_found() -> None:
    worth = best(0.9, 3)
    assert worth is not None
    assert worth.draft_length == 3
    assert worth.confirmed == pytest.approx(1 + 0.9 + 0.81 + 0.729)
    assert worth.rate == pytest.approx(worth.confirmed / 48.4)


def test_the_longest_draft_is_not_the_best_where_little_is_accepted() -> None:
    worth = best(0.3, 7)
    assert worth is not None
    assert worth.draft_length == 1


def test_what_is_not_affordable_is_not_considered() -> None:
    worth = best(1.0, 7, affordable=50)
    assert worth is not None
    assert worth.draft_length == 3
    assert best(1.0, 7, affordable=40) is None
    assert best_length([], [1.0]) is None
