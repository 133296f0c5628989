from random import Random

import pytest

from localspec.decoding.policy import Budget


def test_rounds_that_lose_draw_on_it_and_gains_refill_it_up_to_the_limit() -> None:
    budget = Budget(limit=5.0, window=100)
    budget.settle(confirmed=1, steps=2.5)
    assert budget.left == 3.5
    budget.settle(confirmed=16, steps=6.0)
    assert budget.left == 5.0


def test_what_was_lost_is_forgiven_when_the_window_has_gone_by() -> None:
    budget = Budget(limit=5.0, window=100)
    budget.settle(confirmed=1, steps=4.0)
    for _ in range(99):
        budget.settle(confirmed=1, steps=1.0)
    assert budget.left == 2.0
    budget.settle(confirmed=1, steps=1.0)
    budget.settle(confirmed=1, steps=1.0)
    assert budget.left == 5.0


@pytest.mark.parametrize("seed", range(5))
def test_nobody_who_spends_only_what_is_there_loses_more_than_the_limit(seed: int) -> None:
    """Whatever a text does: rounds that lose all or gain, whenever the budget allows the worst."""
    random, budget = Random(seed), Budget(limit=14.5, window=500)
    marks = [0.0]  # what each token had cost by its end; a round's tokens come at its end
    while len(marks) < 6000:
        cost = random.uniform(1.0, 9.0)
        if cost - 1 > budget.left:
            cost = 1.0
        confirmed = random.choice((1, 1, 1, 1, 6)) if cost > 1 else 1
        budget.settle(confirmed, cost)
        marks += [marks[-1] + cost] * confirmed
    losses = [marks[at + 500] - marks[at] - 500 for at in range(len(marks) - 500)]
    assert max(losses) <= 14.5 + 5  # a window may begin within the tokens of a round
    assert max(losses) > 10
