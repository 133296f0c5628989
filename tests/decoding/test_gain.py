"""What drafting gained, by hand: costs that a person can add up."""

import random
from dataclasses import replace

import pytest

from localspec.decoding.costs import PassCosts
from localspec.decoding.gain import Gain, GainMeter, together
from localspec.decoding.round import PROMPT, Draft, Round, Spent, Verdict
from tests.support.checks import there

# A target pass costs 1 s a round and half a second more for every drafted token.
TARGET = PassCosts((1, 2, 4), (1.0, 1.5, 2.5))


def drafted(count: int, accepted: int, draft_s: float, verify_s: float) -> Round:
    draft = Draft((7,) * count, (0.5,) * count, "model" if count else "off")
    spent = Spent(draft_s=draft_s, verify_s=verify_s)
    return Round(draft, Verdict(accepted, 8), (7,) * accepted + (8,), spent)


PLAIN = drafted(0, 0, 0.0, 1.0)
ROUNDS = [drafted(3, 3, 0.3, 2.5), drafted(3, 1, 0.3, 2.5), PLAIN]


def slower(done: Round, times: float) -> Round:
    spent = Spent(draft_s=times * done.spent.draft_s, verify_s=times * done.spent.verify_s)
    return replace(done, spent=spent)


def gain_of(
    rounds: list[Round], prefill_s: float = 0.0, costs: PassCosts | None = TARGET
) -> Gain | None:
    meter = GainMeter(costs)
    for each in rounds:
        meter.add(each)
    return meter.gain(prefill_s)


def ratio(rounds: list[Round], prefill_s: float = 0.0, costs: PassCosts | None = TARGET) -> float:
    return there(gain_of(rounds, prefill_s, costs)).ratio


@pytest.mark.parametrize("times", [1, 2])
def test_a_gain_is_time_without_drafting_over_time_with(times: float) -> None:
    rounds = [slower(each, times) for each in ROUNDS]
    assert ratio(rounds) == pytest.approx(7 / 6.6)
    assert ratio(rounds, 3.4 * times) == pytest.approx(10.4 / 10), "a prompt takes the same"


def test_what_lies_between_passes_is_paid_by_every_token() -> None:
    round_ = drafted(1, 1, 0.1, 1.5)
    rounds = [replace(round_, spent=replace(round_.spent, other_s=0.4))]
    # A plain token costs 1 s and half of the 0.4 s.
    assert ratio(rounds) == pytest.approx(2 * 1.2 / 2.0)


def test_own_plain_rounds_come_before_the_table_and_do_without_one() -> None:
    rounds = [*ROUNDS[:2], *[slower(PLAIN, 1.5)] * 8]
    expected = 14 * 1.5 / (5.6 + 8 * 1.5)
    assert ratio(rounds) == ratio(rounds, costs=None) == pytest.approx(expected)
    assert gain_of(ROUNDS, costs=None) is None, "a plain round is not known"


def test_a_machine_that_is_busy_for_a_while_gains_as_much() -> None:
    rounds = [PLAIN, drafted(3, 2, 0.3, 2.5), PLAIN, drafted(3, 3, 0.3, 2.5), PLAIN] * 20
    calm = ratio(rounds)
    for start in range(0, 80, 20):
        busy = [
            slower(each, 3) if start <= at < start + 20 else each for at, each in enumerate(rounds)
        ]
        assert ratio(busy) == pytest.approx(calm, rel=0.01)


def test_nothing_is_gained_where_nothing_was_drafted() -> None:
    first = Round(Draft(drafter=PROMPT), Verdict(0, 7), (7,), Spent(verify_s=9.0))
    assert gain_of([]) is gain_of([first]) is gain_of([first, PLAIN, PLAIN]) is None
    assert ratio([first, *ROUNDS]) == ratio(ROUNDS), "the prompt's own token is no round"


def test_the_interval_holds_the_truth_in_19_of_20_answers() -> None:
    rng, held = random.Random(1), 0
    for _ in range(400):
        plain = [slower(PLAIN, rng.lognormvariate(0, 0.3)) for _ in range(12)]
        gain = there(gain_of([*ROUNDS[:2], *plain]))
        true = (6 + 12) * 1.046  # the mean of such noise
        low, high = gain.interval
        held += low <= true / gain.spent_s <= high
    assert 0.88 < held / 400 < 0.98


def test_answers_together_are_weighed_by_their_seconds() -> None:
    gains = [Gain(12.0, 10.0, 0.1), *[Gain(0.5 + at / 3, 1.0, 0.1) for at in range(4)]]
    whole = there(together(gains))
    assert whole.ratio == pytest.approx(16 / 14)
    assert not whole.is_clear
    assert together(gains[:4]) is None, "too few"
    sure = there(together([Gain(1.2 + at / 100, 1.0, 0.0) for at in range(6)]))
    assert sure.is_clear
    assert sure.interval[0] < sure.ratio < sure.interval[1]
