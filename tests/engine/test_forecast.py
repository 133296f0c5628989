"""Speed-ups by hand: costs that a person can add up."""

import pytest

from localspec.decoding.costs import PairCosts, PassCosts
from localspec.decoding.round import Draft, Round, Spent, Verdict
from localspec.engine.forecast import (
    USUAL_CHANCE,
    break_even,
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


def drafted(
    drafted: int,
    accepted: int,
    draft_s: float,
    verify_s: float,
    other_s: float = 0.0,
    *,
    by: str = "model",
) -> Round:
    draft = Draft((7,) * drafted, (0.5,) * drafted, by)
    spent = Spent(draft_s=draft_s, verify_s=verify_s, other_s=other_s)
    return Round(draft, Verdict(accepted, 8), (7,) * accepted + (8,), spent)


PLAIN = drafted(0, 0, 0.0, 1.0, by="off")


def test_what_was_predicted_and_what_it_came_to() -> None:
    rounds = [drafted(3, 3, 0.3, 2.5), drafted(3, 1, 0.3, 2.5), PLAIN]
    looked_back = forecast(rounds, PairCosts(TARGET, CHEAP), None)
    # Accepted were 4 of the 5 that were judged; 3 drafted give 1 + .8 + .64 + .512 tokens.
    assert chance_of_acceptance(by_draft_model(rounds)) == pytest.approx(0.8)
    assert looked_back.predicted == pytest.approx((2 * 2.952 + 1) / (2 * 2.8 + 1))
    assert looked_back.measured == pytest.approx(7 / 6.6)
    assert looked_back.note == ""


def test_a_machine_that_is_twice_as_slow_now_gains_as_much() -> None:
    rounds = [drafted(3, 3, 0.3, 2.5), drafted(3, 1, 0.3, 2.5), PLAIN]
    slow = [
        drafted(
            r.drafted, r.accepted, 2 * r.spent.draft_s, 2 * r.spent.verify_s, by=r.draft.drafter
        )
        for r in rounds
    ]
    now, then = (forecast(each, PairCosts(TARGET, CHEAP), None) for each in (slow, rounds))
    assert (now.predicted, now.measured) == pytest.approx((then.predicted, then.measured))


def test_what_lies_between_passes_is_paid_by_every_token() -> None:
    rounds = [drafted(1, 1, 0.1, 1.5, 0.4)]
    # A plain token costs 1 s and half of the 0.4 s.
    assert forecast(rounds, PairCosts(TARGET, CHEAP), None).measured == pytest.approx(2 * 1.2 / 2.0)


def test_lookup_is_predicted_by_its_own_time() -> None:
    rounds = [drafted(3, 3, 0.0, 2.5, by="lookup")]
    looked_back = forecast(rounds, PairCosts(TARGET, None), None)
    assert looked_back.predicted == pytest.approx(4 / 2.5)
    assert chance_of_acceptance(by_draft_model(rounds)) is None


def test_where_drafting_is_off_its_price_is_told() -> None:
    costs = PairCosts(TARGET, DEAR)
    # One token, accepted three times in four: 1.75 tokens for 2.1 steps.
    assert forecast([PLAIN], costs, None).note == (
        "draft model not used: at the usual 75% acceptance it would slow this machine down by 17%"
    )
    assert "at its 100% acceptance it would slow this machine down by 5%" in (
        forecast([PLAIN], costs, 1.0).note
    )
    assert USUAL_CHANCE == 0.75


def test_a_price_that_was_measured_beside_other_programs_is_not_told() -> None:
    note = forecast([PLAIN], PairCosts(TARGET, DEAR, sure=False), None).note
    assert note.startswith("draft model not used: the machine was busy when it was measured")


@pytest.mark.parametrize("draft_model", [None, CHEAP])
def test_where_it_would_cost_nothing_nothing_is_told(draft_model: PassCosts | None) -> None:
    assert forecast([PLAIN], PairCosts(TARGET, draft_model), 0.9).note == ""


def test_the_break_even_point_is_where_nothing_is_gained() -> None:
    # A drafted token pays from 1 + chance = 1.5 + 0.1 on.
    assert break_even(PairCosts(PassCosts((1, 2, 40), (1.0, 1.5, 400.0)), CHEAP)) == pytest.approx(
        0.6, abs=0.002
    )
    assert break_even(PairCosts(TARGET, PassCosts((1,), (5.0,)))) is None
    assert break_even(PairCosts(TARGET, None)) is None


def test_the_price_of_the_draft_model_is_told_beside_what_lookup_gained() -> None:
    looked_back = forecast([drafted(3, 3, 0.0, 2.5, by="lookup")], PairCosts(TARGET, DEAR), None)
    assert looked_back.measured == pytest.approx(4 / 2.5)
    assert "slow this machine down by 17%" in looked_back.note


def test_a_machine_that_is_busy_for_a_while_gains_as_much() -> None:
    rounds = [PLAIN, drafted(3, 2, 0.3, 2.5), PLAIN, drafted(3, 3, 0.3, 2.5), PLAIN] * 20
    calm = forecast(rounds, PairCosts(TARGET, CHEAP), None).measured
    for start in range(0, 80, 7):
        busy = [
            drafted(
                r.drafted, r.accepted, 3 * r.spent.draft_s, 3 * r.spent.verify_s, by=r.draft.drafter
            )
            if start <= at < start + 20
            else r
            for at, r in enumerate(rounds)
        ]
        assert forecast(busy, PairCosts(TARGET, CHEAP), None).measured == pytest.approx(
            calm, rel=0.01
        )


@pytest.mark.parametrize(
    ("rounds", "drafter", "beside", "costs", "said"),
    [
        ([drafted(3, 3, 0.3, 2.5), PLAIN], "auto", 2, None, "on: model drafted in 1 of 2 rounds"),
        (
            [drafted(3, 3, 0.3, 2.5), drafted(1, 0, 0.0, 1.0, by="lookup")],
            "auto",
            0,
            None,
            "on: model and lookup drafted in 2 of 2 rounds",
        ),
        ([PLAIN], "off", 4, None, "off: it was asked for without drafts"),
        ([PLAIN], "auto", 0, None, "off: the text had nothing to look up"),
        ([PLAIN], "auto", 4, PairCosts(STEEP), "off: beside 4 others a draft costs more than"),
        ([PLAIN], "auto", 1, PairCosts(FLAT), "off: the text had nothing to look up"),
        (
            [PLAIN],
            "auto",
            4,
            PairCosts(FLAT, DEAR),
            "off: beside 4 others a draft of this model costs more than it confirms",
        ),
        ([PLAIN], "auto", 1, PairCosts(FLAT, CHEAP), "off: no draft promised to confirm more"),
        ([PLAIN], "auto", 0, PairCosts(TARGET, DEAR), "off: a draft of this model costs more"),
    ],
)
def test_the_reason_is_a_sentence(
    rounds: list[Round], drafter: str, beside: int, costs: PairCosts | None, said: str
) -> None:
    told = reason(rounds, drafter, beside, costs, None)
    assert told.startswith(said)
    assert "\n" not in told


@pytest.mark.parametrize(
    ("drafter", "beside", "costs", "said"),
    [
        ("off", 4, None, "it is switched off"),
        ("auto", 0, None, "nothing to look up"),
        ("auto", 1, PairCosts(FLAT), "nothing to look up"),
        ("auto", 4, PairCosts(STEEP), "would be slower here"),
        ("auto", 4, PairCosts(FLAT, DEAR), "would be slower here"),
        ("auto", 1, PairCosts(FLAT, CHEAP), "would be slower here"),
        ("auto", 0, PairCosts(FLAT, CHEAP, sure=False), "measured while the machine was busy"),
    ],
)
def test_why_nothing_was_drafted_in_about_five_words(
    drafter: str, beside: int, costs: PairCosts | None, said: str
) -> None:
    assert no_drafting(drafter, costs, beside) == f"no drafting: {said}"
