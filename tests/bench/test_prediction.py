"""The textbook beside the measurement, in worlds where both are known."""

import pytest

from localspec.bench.prediction import (
    Costs,
    chance_of_acceptance,
    measured_costs,
    predict,
)
from localspec.decoding.costs import PassCosts
from localspec.decoding.round import Round
from localspec.decoding.stats import expected_speed_up
from tests.bench.runs import a_round, a_trial

STEP_S = 0.1
FLAT = PassCosts((1, 4), (STEP_S, STEP_S))
STEEP = PassCosts((1, 4), (STEP_S, 3 * STEP_S))


def drafted(accepted: int, verify_s: float = STEP_S, draft_s: float = 0.06) -> Round:
    return a_round(3, accepted, verify_s=verify_s, draft_s=draft_s, drafter="model")


# Of every eight drafted tokens that are judged, one is rejected: the chance is 7 / 8.
ROUNDS = [drafted(3), drafted(3), drafted(1)]


def test_the_chance_of_acceptance_leaves_out_what_was_never_judged() -> None:
    assert chance_of_acceptance(ROUNDS) == pytest.approx(7 / 8)
    assert chance_of_acceptance([drafted(0)]) == 0.0
    assert chance_of_acceptance([]) == 0.0


def test_rounds_of_one_length_give_the_textbooks_own_formula() -> None:
    costs = Costs(STEEP, {"model": 0.02})
    found = predict([a_trial("model:3", rounds=ROUNDS)], [a_trial()], costs, 1.0)
    assert found.textbook == pytest.approx(expected_speed_up(7 / 8, 3, 0.2))
    assert found.with_widths == pytest.approx(expected_speed_up(7 / 8, 3, 0.2, {4: 3.0}))


def test_costs_are_medians_by_width_and_drafter() -> None:
    trials = [
        a_trial(rounds=[a_round(verify_s=s) for s in (0.1, 0.1, 9.0)]),
        a_trial("model:3", rounds=[drafted(1, verify_s=0.3), drafted(1, verify_s=0.3)]),
    ]
    costs = measured_costs(trials)
    assert costs is not None
    assert costs.target == PassCosts((1, 4), (0.1, 0.3))
    assert costs.draft_step_s == {"model": pytest.approx(0.02)}
    assert measured_costs(trials[1:]) is None


def reason(rounds: list[Round], costs: Costs, measured: float, prefill_s: float = 0) -> str:
    runs = [a_trial("model:3", rounds=rounds, prefill_s=prefill_s)]
    return predict(runs, [a_trial(prefill_s=prefill_s)], costs, measured).reason


def test_wide_passes_are_named_where_they_cost() -> None:
    rounds = [drafted(accepted, verify_s=0.3) for accepted in (3, 3, 1)]
    assert "a pass of 4.0 tokens costs 3.0 steps" in reason(
        rounds, Costs(STEEP, {"model": 0.02}), 0.9
    )


def test_prefill_is_named_where_it_dilutes() -> None:
    found = reason(ROUNDS, Costs(FLAT, {"model": 0.02}), 1.05, prefill_s=10.0)
    assert "prefill is 95% of the time" in found


def test_drafting_is_named_where_it_cost_more_than_its_steps() -> None:
    rounds = [drafted(accepted, draft_s=0.6) for accepted in (3, 3, 1)]
    assert "drafting took 10.0 times its usual steps" in reason(
        rounds, Costs(FLAT, {"model": 0.02}), 0.48
    )


def test_all_else_is_named_where_nothing_in_the_rounds_explains_it() -> None:
    assert "passes, sampling and all else" in reason(ROUNDS, Costs(FLAT, {"model": 0.02}), 1.0)


def test_no_reason_is_given_within_ten_percent() -> None:
    assert reason(ROUNDS, Costs(FLAT, {"model": 0.02}), 2.0) == ""


def test_where_nothing_was_drafted_nothing_is_predicted_to_change() -> None:
    found = predict([a_trial("auto", rounds=[a_round()])], [a_trial()], Costs(FLAT, {}), 0.5)
    assert (found.textbook, found.with_widths, found.reason) == (1.0, 1.0, "")
