import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.decoding.round import PROMPT, Draft, Round, Verdict
from localspec.decoding.stats import (
    AcceptanceStats,
    expected_confirmed,
    expected_speed_up,
)

# One machine's measured milliseconds by width of a pass: Qwen2.5-Coder 1.5B, Q4_K_M, two CPU
# cores. A step of the 0.5B draft model cost 14.2 ms there.
TARGET_MS = {1: 22.7, 2: 41.5, 3: 55.8, 4: 68.5, 5: 83.7, 6: 98.4, 8: 114.9}
PASS_COSTS = {width: cost / TARGET_MS[1] for width, cost in TARGET_MS.items()}
COST_RATIO = 14.2 / 22.7


def done(drafter: str, drafted: int, accepted: int, confirmed: int | None = None) -> Round:
    """Return a round that drafted and accepted so many tokens, and was cut to those confirmed."""
    draft = Draft((1,) * drafted, (0.5,) * drafted, drafter)
    tokens = (1,) * (accepted + 1 if confirmed is None else confirmed)
    return Round(draft, Verdict(accepted, 1), tokens)


def test_worked_example_in_counts() -> None:
    stats = AcceptanceStats()
    for _ in range(4):
        stats.add(done("model", 4, 2))
    assert (stats.rounds, stats.confirmed) == (4, 12)
    assert stats.acceptance_rate == 0.5
    assert stats.mean_acceptance_length == 3


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.6, 0.84, 0.98])
@pytest.mark.parametrize("draft_length", [0, 1, 3, 8])
def test_expected_confirmed_is_the_mean_of_simulated_rounds(rate: float, draft_length: int) -> None:
    """Within four standard errors of 20,000 rounds; draws are fixed."""
    n_rounds = 20_000
    accepted = np.random.default_rng(7).random((n_rounds, draft_length)) < rate
    confirmed = accepted.cumprod(axis=1).sum(axis=1) + 1
    error = confirmed.std() / math.sqrt(n_rounds)
    assert abs(confirmed.mean() - expected_confirmed(rate, draft_length)) <= 4 * error + 1e-12


def test_expected_confirmed_when_all_or_nothing_is_accepted() -> None:
    assert expected_confirmed(1.0, 5) == 6
    assert expected_confirmed(0.0, 5) == 1
    assert expected_confirmed(1 - 1e-9, 5) == pytest.approx(6)


@given(st.floats(0, 1), st.integers(0, 16))
@settings(max_examples=200, deadline=None)
def test_expected_confirmed_is_a_geometric_sum(rate: float, draft_length: int) -> None:
    expected = math.fsum(rate**accepted for accepted in range(draft_length + 1))
    assert expected_confirmed(rate, draft_length) == pytest.approx(expected, rel=1e-6)


def test_textbook_speed_up_assumes_that_width_is_free() -> None:
    assert expected_speed_up(0.8, 4, 0.1) == pytest.approx(expected_confirmed(0.8, 4) / 1.4)
    assert expected_speed_up(0.8, 0, 0.1) == 1
    assert expected_speed_up(1.0, 3, 1.0) == 1


@pytest.mark.parametrize("rate", [0.53, 0.61, 0.84, 0.94, 0.98])
@pytest.mark.parametrize("draft_length", [1, 2, 3, 4, 5])
def test_draft_model_is_a_loss_at_measured_costs_whatever_is_accepted(
    rate: float, draft_length: int
) -> None:
    measured = expected_speed_up(rate, draft_length, COST_RATIO, PASS_COSTS)
    assert measured < 1
    assert measured < expected_speed_up(rate, draft_length, COST_RATIO)


def test_measured_costs_explain_the_measured_half_speed() -> None:
    """llama-server with this pair at length 3 and 84 % ran at 24.5 instead of 45.5 tokens/s."""
    assert expected_speed_up(0.84, 3, COST_RATIO, PASS_COSTS) == pytest.approx(0.64, abs=0.01)


def test_free_draft_that_is_mostly_right_is_a_gain_at_measured_costs() -> None:
    """A lookup costs next to nothing; at 98 % it pays even here."""
    assert expected_speed_up(0.98, 7, 0.0, PASS_COSTS) > 1.4
    assert expected_speed_up(0.3, 7, 0.0, PASS_COSTS) < 1


def test_no_draft_costs_nothing_and_gains_nothing() -> None:
    assert expected_speed_up(0.9, 0, COST_RATIO, PASS_COSTS) == 1


def test_rates_of_nothing_are_none() -> None:
    stats = AcceptanceStats()
    assert stats.acceptance_rate is None
    assert stats.mean_acceptance_length is None
    stats.add(done("off", 0, 0))
    assert stats.acceptance_rate is None
    assert stats.mean_acceptance_length == 1


def test_counts_are_kept_by_drafter_too() -> None:
    stats = AcceptanceStats()
    stats.add(done("model", 3, 2))
    stats.add(done("lookup", 5, 5))
    stats.add(done("model", 3, 0))
    assert (stats.rounds, stats.drafted, stats.accepted, stats.confirmed) == (3, 11, 7, 10)
    model, lookup = stats.by_drafter["model"], stats.by_drafter["lookup"]
    assert (model.rounds, model.drafted, model.accepted, model.confirmed) == (2, 6, 2, 4)
    assert (lookup.rounds, lookup.drafted, lookup.accepted, lookup.confirmed) == (1, 5, 5, 6)
    assert model.acceptance_rate == pytest.approx(1 / 3)
    assert model.by_drafter == {}


def test_a_round_in_which_a_lookup_proposes_nothing_is_a_plain_one() -> None:
    stats = AcceptanceStats()
    stats.add(done("lookup", 0, 0))
    stats.add(done("lookup", 2, 1))
    stats.add(done("model", 0, 0))
    rounds = {name: each.rounds for name, each in stats.by_drafter.items()}
    assert rounds == {"off": 1, "lookup": 1, "model": 1}, "the draft model was asked"


def test_the_first_token_is_no_round() -> None:
    stats = AcceptanceStats()
    stats.add(done(PROMPT, 0, 0))
    assert stats == AcceptanceStats()


def test_what_was_accepted_behind_the_end_is_not_in_the_text_and_does_not_count() -> None:
    stats = AcceptanceStats()
    stats.add(done("lookup", 5, 4, confirmed=2))
    assert (stats.drafted, stats.accepted, stats.confirmed) == (5, 2, 2)
