"""Speed-ups by hand: costs that a person can add up."""

from dataclasses import replace

import pytest

from localspec.decoding.costs import PairCosts, PassCosts
from localspec.decoding.round import Draft, Round, Spent, Verdict
from localspec.engine.forecast import (
    USUAL_CHANCE,
    by_draft_model,
    chance_of_acceptance,
    forecast,
    no_drafting,
    reason,
)

# A target pass costs 1 s a step and half a second more for every drafted token.
TARGET = PassCosts((1, 2, 4), (1.0, 1.5, 2.5))
CHEAP, DEAR = PassCosts((1,), (0.1,)), PassCosts((1,), (0.6,))
FLAT, STEEP = PassCosts((1, 64), (1.0, 1.2)), PassCosts((1, 64), (1.0, 64.0))
PAIR, DEAR_PAIR = PairCosts(TARGET, CHEAP), PairCosts(TARGET, DEAR)


def drafted(
    drafted: int, accepted: int, draft_s: float, verify_s: float, *, by: str = "model"
) -> Round:
    draft = Draft((7,) * drafted, (0.5,) * drafted, by)
    spent = Spent(draft_s=draft_s, verify_s=verify_s)
    return Round(draft, Verdict(accepted, 8), (7,) * accepted + (8,), spent)


def slower(done: Round, times: float) -> Round:
    spent = Spent(draft_s=times * done.spent.draft_s, verify_s=times * done.spent.verify_s)
    return replace(done, spent=spent)


PLAIN = drafted(0, 0, 0.0, 1.0, by="off")
ROUNDS = [drafted(3, 3, 0.3, 2.5), drafted(3, 1, 0.3, 2.5), PLAIN]
LOOKED_UP = drafted(3, 3, 0.0, 2.5, by="lookup")


@pytest.mark.parametrize("times", [1, 2])
def test_predicted_and_measured_speed_up(times: float) -> None:
    rounds = [slower(each, times) for each in ROUNDS]
    result = forecast(rounds, PAIR, None)
    # Accepted were 4 of the 5 that were judged; 3 drafted give 1 + .8 + .64 + .512 tokens.
    assert chance_of_acceptance(by_draft_model(rounds)) == pytest.approx(0.8)
    assert result.predicted == pytest.approx((2 * 2.952 + 1) / (2 * 2.8 + 1))
    assert result.measured == pytest.approx(7 / 6.6)
    assert result.note == ""


def test_what_lies_between_passes_is_paid_by_every_token() -> None:
    round_ = drafted(1, 1, 0.1, 1.5)
    rounds = [replace(round_, spent=replace(round_.spent, other_s=0.4))]
    # A plain token costs 1 s and half of the 0.4 s.
    assert forecast(rounds, PAIR, None).measured == pytest.approx(2 * 1.2 / 2.0)


def test_lookup_is_predicted_by_its_own_time_and_the_draft_models_price_stands_beside_it() -> None:
    pairs = (PairCosts(TARGET, None), DEAR_PAIR)
    alone, beside = (forecast([LOOKED_UP], each, None) for each in pairs)
    assert alone.predicted == beside.measured == pytest.approx(4 / 2.5)
    assert alone.note == ""
    assert "slow this machine down by 17%" in beside.note
    assert chance_of_acceptance(by_draft_model([LOOKED_UP])) is None
    # Nor was rejected what the end of the text cuts.
    assert chance_of_acceptance([replace(ROUNDS[0], confirmed=ROUNDS[0].confirmed[:1])]) == 1


@pytest.mark.parametrize(
    ("costs", "chance", "words"),
    [
        # One token, accepted three times in four: 1.75 tokens for 2.1 steps.
        (DEAR_PAIR, None, "the usual 75% acceptance it would slow this machine down by 17%"),
        (DEAR_PAIR, 1.0, "its 100% acceptance it would slow this machine down by 5%"),
        (replace(DEAR_PAIR, sure=False), None, "the machine was busy when it was measured"),
    ],
)
def test_where_drafting_is_off_its_price_is_noted(
    costs: PairCosts, chance: float | None, words: str
) -> None:
    assert USUAL_CHANCE == 0.75
    assert words in forecast([PLAIN], costs, chance).note
    for free in (None, CHEAP):
        assert forecast([PLAIN], PairCosts(TARGET, free), 0.9).note == ""


def test_a_machine_that_is_busy_for_a_while_gains_as_much() -> None:
    rounds = [PLAIN, drafted(3, 2, 0.3, 2.5), PLAIN, drafted(3, 3, 0.3, 2.5), PLAIN] * 20
    calm = forecast(rounds, PAIR, None).measured
    for start in range(0, 80, 7):
        busy = [
            slower(each, 3) if start <= at < start + 20 else each for at, each in enumerate(rounds)
        ]
        assert forecast(busy, PAIR, None).measured == pytest.approx(calm, rel=0.01)


BESIDE = "beside 4 others a draft"


@pytest.mark.parametrize(
    ("drafter", "others", "costs", "short", "sentence"),
    [
        ("off", 4, None, "it is switched off", "it was asked for without drafts"),
        ("auto", 0, None, "nothing to look up", "the text had nothing to look up"),
        ("auto", 1, PairCosts(FLAT), "nothing to look up", "the text had nothing to look up"),
        ("auto", 4, PairCosts(STEEP), "would be slower here", f"{BESIDE} costs more than"),
        ("auto", 4, PairCosts(FLAT, DEAR), "would be slower here", f"{BESIDE} of this model costs"),
        ("auto", 1, PairCosts(FLAT, CHEAP), "would be slower here", "no draft promised to"),
        ("auto", 0, DEAR_PAIR, "would be slower here", "a draft of this model costs more"),
        ("auto", 0, PairCosts(FLAT, CHEAP, sure=False), "measured while the machine was busy", "no draft promised to"),
    ],
)  # fmt: skip
def test_why_nothing_was_drafted(
    drafter: str, others: int, costs: PairCosts | None, short: str, sentence: str
) -> None:
    assert no_drafting(drafter, costs, others) == f"no drafting: {short}"
    assert reason([PLAIN], drafter, others, costs, None).startswith(f"off: {sentence}")


def test_what_drafted() -> None:
    rounds = [drafted(3, 3, 0.3, 2.5), PLAIN]
    assert reason(rounds, "auto", 2, None, None) == "on: model drafted in 1 of 2 rounds"
    rounds = [drafted(3, 3, 0.3, 2.5), LOOKED_UP]
    assert reason(rounds, "auto", 0, None, None).startswith("on: model and lookup drafted in 2 of")
