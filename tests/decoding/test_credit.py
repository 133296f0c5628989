from random import Random

from localspec.decoding.credit import Credit


def test_gains_refill_it_and_never_beyond_the_ceiling() -> None:
    credit = Credit(start=2.0, ceiling=5.0, per_token=0.0)
    credit.settle(confirmed=1, cost_steps=2.5)
    assert credit.steps == 0.5
    credit.settle(confirmed=16, cost_steps=6.0)
    assert credit.steps == 5.0


def test_nobody_who_spends_only_what_is_there_loses_more_than_promised() -> None:
    """Whatever a text does: rounds that lose everything, whenever the credit allows them."""
    random, credit = Random(3), Credit(start=8.0, ceiling=8.0, per_token=0.012)
    taken, tokens, worst = 0.0, 0, 0.0
    marks = [(0.0, 0)]
    while tokens < 5000:
        cost = random.uniform(1.0, 9.0)
        if cost - 1 > credit.steps:
            cost = 1.0
        credit.settle(1, cost)
        taken, tokens = taken + cost, tokens + 1
        marks.append((taken, tokens))
    for start in range(len(marks) - 500):
        spent = marks[start + 500][0] - marks[start][0]
        worst = max(worst, spent)
    assert worst <= 500 + 8 + 0.012 * 500
    assert worst > 505  # it was spent
