"""What drafts are worth: tables that were measured, and answers replayed by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.decoding.costs import PassCosts
from localspec.tailor.worth import could_pay, most_step, replayed, speed_up, why_not

# Qwen2.5-Coder-1.5B on two cores, docs/measurements/pass-costs.md.
WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32)
Q4_K_M = PassCosts(WIDTHS, (22.7, 41.5, 55.8, 68.5, 83.7, 98.4, 114.9, 143.4, 137.7, 250.3))
F16 = PassCosts(WIDTHS, (50.8, 78.5, 90.8, 96.8, 105.4, 111.2, 133.9, 161.4, 186.7, 323.0))
WIDE_IS_FREE = PassCosts((1, 64), (1.0, 1.0))
FREE_DRAFT = PassCosts((1, 2), (1e-9, 1e-9))


def test_nothing_pays_where_passes_are_dear_and_a_draft_does_where_they_are_cheap() -> None:
    assert not could_pay(Q4_K_M)
    assert could_pay(F16)
    assert could_pay(WIDE_IS_FREE)
    assert "takes 3.0 steps" in why_not(Q4_K_M)
    assert "may cost 0.0" in why_not(Q4_K_M)
    assert "free" in why_not(PassCosts((1, 32), (1.0, 32.0)))


@pytest.mark.parametrize("costs", [Q4_K_M, F16, WIDE_IS_FREE])
@pytest.mark.parametrize("acceptance", [0.7, 0.9, 0.96])
def test_a_draft_at_the_limit_wins_by_a_tenth(costs: PassCosts, acceptance: float) -> None:
    most = most_step(costs, acceptance)
    if most > 0:
        assert speed_up(costs, acceptance, most) == pytest.approx(1.1)
    else:
        assert speed_up(costs, acceptance, 0.0) <= 1.1


def test_answers_are_replayed_round_by_round() -> None:
    # The first token comes with the prompt. Drafts of one: the second is wrong, of the next two passes each confirms a
    # drafted token and one more, and behind each of these drafts the model has two tokens to evaluate.
    hits = [False, False, True, True, True, True]
    target, draft = (
        PassCosts((1, 2, 3, 32), (10.0, 11.0, 99.0, 999.0)),
        PassCosts((1, 2), (1.0, 1.5)),
    )
    spent = (11 + 1) + (11 + 1) + (11 + 1.5)
    found = replayed({"code": [hits]}, target, draft).by_kind["code"]
    assert found == pytest.approx(50 / spent)


def test_a_free_draft_that_is_always_right_confirms_all_it_may() -> None:
    found = replayed({"code": [[True] * 31]}, WIDE_IS_FREE, FREE_DRAFT)
    assert found.speed == pytest.approx(30)
    assert replayed({"code": [[False] * 31]}, WIDE_IS_FREE, FREE_DRAFT).speed == pytest.approx(1)


@settings(max_examples=30)
@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=20), min_size=1, max_size=2))
def test_more_right_tokens_never_earn_less(answers: list[list[bool]]) -> None:
    draft = PassCosts((1, 2), (0.1, 0.1))
    worse = replayed({"code": answers}, WIDE_IS_FREE, draft).speed
    better = replayed({"code": [[True] * len(each) for each in answers]}, WIDE_IS_FREE, draft).speed
    assert 1.0 <= worse <= better + 1e-9


def test_a_kind_of_text_that_gains_nothing_counts_as_plain() -> None:
    hits = {"code": [[True] * 31], "chat": [[False] * 31]}
    found = replayed(hits, WIDE_IS_FREE, PassCosts((1, 2), (0.5, 0.5)))
    assert found.by_kind["chat"] == 1.0
    assert found.by_kind["code"] > 1.5
    assert found.speed == pytest.approx((found.by_kind["code"]) ** 0.5)
