"""Rounds: the verdict on a draft, where its tokens came from, what they cost, and how they are counted."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.drafter import PLAIN, Plan
from localspec.decoding.model import Role
from localspec.decoding.noise import Noise
from localspec.decoding.round import PROMPT, Draft, Round, Spent, Verdict
from localspec.decoding.speculative import speculative_round, verify
from localspec.decoding.stats import AcceptanceStats, expected_confirmed, expected_speed_up
from localspec.options import SamplingParams
from tests.toy import GREEDY, ScriptedDrafter

DRAFT = Draft((4, 3), (0.9, 0.8), "model", (1.0, 0.5), ((8, 5), (8, 5)))


def rows_choosing(*tokens: int) -> NDArray[np.float32]:
    """Return one row per token, each of which has that token for its best."""
    return 5 * np.eye(10, dtype=np.float32)[list(tokens)]


def draft(*tokens: int) -> Draft:
    return Draft(tokens, (0.5,) * len(tokens), "scripted")


@pytest.mark.parametrize(
    ("drafted", "chosen", "verdict"),
    [
        ((), (4,), Verdict(0, 4)),
        ((1,), (1, 2), Verdict(1, 2)),
        ((1,), (3, 2), Verdict(0, 3)),
        ((1, 1), (1, 1, 7), Verdict(2, 7)),
        ((1, 2, 3), (1, 2, 3, 4), Verdict(3, 4)),
        ((1, 2, 3), (1, 2, 9, 4), Verdict(2, 9)),
        ((1, 2, 3), (1, 9, 3, 4), Verdict(1, 9)),
        ((1, 2, 3), (9, 2, 3, 4), Verdict(0, 9)),
    ],
)
def test_longest_matching_prefix_is_accepted_and_nothing_is_chosen_behind_it(
    drafted: tuple[int, ...], chosen: tuple[int, ...], verdict: Verdict
) -> None:
    rows, tokens = rows_choosing(*chosen), [0]
    rows[verdict.accepted + 1 :] = np.nan
    assert verify(tokens, draft(*drafted), rows, GREEDY) == verdict
    assert tokens == [0]


def test_each_row_is_chosen_at_its_own_position_and_after_its_own_prefix() -> None:
    prefixes: list[list[int]] = []

    class Spy(Chooser):
        def choose(self, row: NDArray[np.float32], prefix: object) -> int:
            prefixes.append(list(prefix))  # type: ignore[call-overload]
            return int(row.argmax())

    verify([8, 9], draft(1, 2), rows_choosing(1, 2, 3), Spy(GREEDY.params, GREEDY.noise))
    assert prefixes == [[8, 9], [8, 9, 1], [8, 9, 1, 2]]


def test_penalty_of_a_drafted_token_counts_in_the_next_row() -> None:
    chooser = Chooser(SamplingParams(temperature=0, presence_penalty=9), Noise(0))
    rows = rows_choosing(1, 1)
    rows[1, 6] = 1
    assert verify([0], draft(1), rows, chooser) == Verdict(1, 6)


def test_round_asks_the_target_once_for_draft_and_one_row_more() -> None:
    passes = speculative_round([1, 2], Plan(ScriptedDrafter((3, 4)), 2), GREEDY)
    request = next(passes)
    assert (request.role, list(request.tokens), request.rows) == (Role.TARGET, [1, 2, 3, 4], 3)
    with pytest.raises(StopIteration) as finished:
        passes.send(rows_choosing(3, 4, 5))
    assert finished.value.value == (draft(3, 4), Verdict(2, 5))
    with pytest.raises(StopIteration) as finished:
        next(PLAIN.drafter.propose([1, 2], Plan(PLAIN.drafter, 100), GREEDY))
    assert finished.value.value == Draft((), (), "off")


def after(draft: Draft, accepted: int, next_token: int) -> Round:
    verdict = Verdict(accepted, next_token)
    return Round(draft, verdict, (*draft.tokens[:accepted], next_token))


CUT = Round(DRAFT, Verdict(2, 9), (4,))
"""Of which the end of a generation cut something."""


@pytest.mark.parametrize(
    ("done", "origins", "rank"),
    [
        (after(Draft(drafter=PROMPT), 0, 7), ("first",), None),
        (after(Draft(), 0, 7), ("plain",), None),
        (after(Draft(drafter="lookup"), 0, 7), ("plain",), None),
        (after(Draft((4,), (0.5,), "lookup"), 0, 8), ("correction",), None),
        (after(DRAFT, 0, 7), ("correction",), None),
        (after(DRAFT, 1, 8), ("model", "correction"), 2),
        (after(DRAFT, 1, 5), ("model", "correction"), 3),
        (after(DRAFT, 2, 8), ("model", "model", "bonus"), None),
        (CUT, ("model",), None),
    ],
)
def test_origins_of_what_is_confirmed_and_rank_of_a_correction(
    done: Round, origins: tuple[str, ...], rank: int | None
) -> None:
    assert (done.origins, done.correction_rank) == (origins, rank)
    assert done.is_first is (origins == ("first",))


def test_what_two_rounds_spent_is_added_stage_by_stage() -> None:
    spent = Spent(1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
    assert spent + spent == Spent(2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    assert (spent.round_s, spent.wall_s, spent.drafting_s) == (31.0, 63.0, 3.0)
    assert spent.drafting_s + spent.verify_s + spent.aside_s == spent.wall_s


# Counts.


def done(drafter: str, drafted: int, accepted: int, confirmed: int | None = None) -> Round:
    """Return a round that drafted and accepted so many tokens, and was cut to those confirmed."""
    draft = Draft((1,) * drafted, (0.5,) * drafted, drafter)
    tokens = (1,) * (accepted + 1 if confirmed is None else confirmed)
    return Round(draft, Verdict(accepted, 1), tokens)


def stats_of(*rounds: Round) -> AcceptanceStats:
    stats = AcceptanceStats()
    for each in rounds:
        stats.add(each)
    return stats


def test_counts_are_kept_in_all_and_by_drafter_and_the_first_token_is_no_round() -> None:
    stats = stats_of(
        done(PROMPT, 0, 0), done("model", 3, 2), done("lookup", 5, 5), done("model", 3, 0)
    )
    model, lookup = stats.by_drafter["model"], stats.by_drafter["lookup"]
    counts = [
        (each.rounds, each.drafted, each.accepted, each.confirmed)
        for each in (stats, model, lookup)
    ]
    assert counts == [(3, 11, 7, 10), (2, 6, 2, 4), (1, 5, 5, 6)]
    assert model.acceptance_rate == pytest.approx(1 / 3)
    assert stats.mean_acceptance_length == pytest.approx(10 / 3)
    assert model.by_drafter == {}
    nothing = stats_of(done(PROMPT, 0, 0))
    assert nothing == AcceptanceStats()
    assert (nothing.acceptance_rate, nothing.mean_acceptance_length) == (None, None)


def test_a_round_in_which_a_lookup_proposes_nothing_is_a_plain_one() -> None:
    stats = stats_of(done("lookup", 0, 0), done("lookup", 2, 1), done("model", 0, 0))
    rounds = {name: each.rounds for name, each in stats.by_drafter.items()}
    assert rounds == {"off": 1, "lookup": 1, "model": 1}, "the draft model was asked"


def test_what_was_accepted_behind_the_end_is_not_in_the_text_and_does_not_count() -> None:
    stats = stats_of(done("lookup", 5, 4, confirmed=2))
    assert (stats.drafted, stats.accepted, stats.confirmed) == (5, 2, 2)
    assert (CUT.drafted, CUT.accepted) == (2, 1)


# What drafting is worth by the textbook. One machine's measured milliseconds by width of a pass: Qwen2.5-Coder 1.5B,
# Q4_K_M, two CPU cores. A step of the 0.5B draft model cost 14.2 ms there.

TARGET_MS = {1: 22.7, 2: 41.5, 3: 55.8, 4: 68.5, 5: 83.7, 6: 98.4, 8: 114.9}
PASS_COSTS = {width: cost / TARGET_MS[1] for width, cost in TARGET_MS.items()}
COST_RATIO = 14.2 / 22.7
FREE = dict.fromkeys(range(1, 9), 1.0)


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.6, 0.84, 0.98])
@pytest.mark.parametrize("draft_length", [0, 1, 3, 8])
def test_expected_confirmed_is_the_mean_of_simulated_rounds(rate: float, draft_length: int) -> None:
    """Within four standard errors of 20,000 rounds; draws are fixed."""
    accepted = np.random.default_rng(7).random((20_000, draft_length)) < rate
    confirmed = accepted.cumprod(axis=1).sum(axis=1) + 1
    error = confirmed.std() / math.sqrt(20_000)
    assert abs(confirmed.mean() - expected_confirmed(rate, draft_length)) <= 4 * error + 1e-12


@given(st.one_of(st.floats(0, 1), st.just(1 - 1e-9)), st.integers(0, 16))
@settings(max_examples=200, deadline=None)
def test_expected_confirmed_is_a_geometric_sum(rate: float, draft_length: int) -> None:
    expected = math.fsum(rate**accepted for accepted in range(draft_length + 1))
    assert expected_confirmed(rate, draft_length) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("rate", [0.53, 0.61, 0.84, 0.94, 0.98])
def test_draft_model_is_a_loss_at_measured_costs_whatever_is_accepted(rate: float) -> None:
    for length in (1, 2, 3, 4, 5):
        measured = expected_speed_up(rate, length, COST_RATIO, PASS_COSTS)
        assert measured < min(1, expected_speed_up(rate, length, COST_RATIO, FREE))


@pytest.mark.parametrize(
    ("rate", "length", "ratio", "costs", "speed_up"),
    [
        (0.8, 4, 0.1, FREE, expected_confirmed(0.8, 4) / 1.4),
        (1.0, 3, 1.0, FREE, 1.0),
        (0.9, 0, COST_RATIO, PASS_COSTS, 1.0),
        (0.84, 3, COST_RATIO, PASS_COSTS, 0.64),  # llama-server: 24.5 instead of 45.5 tokens/s
        (0.98, 7, 0.0, PASS_COSTS, 1.47),  # a lookup costs next to nothing
        (0.3, 7, 0.0, PASS_COSTS, 0.28),
    ],
)
def test_speed_up_is_tokens_over_costs(
    rate: float, length: int, ratio: float, costs: dict[int, float], speed_up: float
) -> None:
    assert expected_speed_up(rate, length, ratio, costs) == pytest.approx(speed_up, abs=0.011)
