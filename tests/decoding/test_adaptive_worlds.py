"""The adaptive policy in simulated worlds: near the clairvoyant, and never much below plain.

Regret is taken from the 300th token on against a clairvoyant that runs on the same coins, so
that only what the policy did differs; expected seconds are compared, not those of the jittery
clock. `lab/benchmarks/policy_worlds.py` states its standard error over the seeds.
"""

import os

import pytest

from lab.simulator.assessment import assess
from lab.simulator.catalogue import WORLDS, build
from lab.simulator.contenders import adaptive
from lab.simulator.costs import ACROSS, F16
from lab.simulator.loop import run
from lab.simulator.texts import short_replies

# The clairvoyant runs on the same coins, so that a policy like it scores exactly 0; what spreads
# over seeds is the policy's luck in finding out. Where the text changes its kind that is 2 to 5
# points (12 in repetitive-gpu): five seeds leave a standard error of 1 to 2.
CHANGING = ("bimodal", "edit", "gaps-mislead", "staircase-copy", "dear-copy", "repetitive")
# LOCALSPEC_WORLD_SEEDS=10 makes a longer sweep of the same asserts.
SWEEP = int(os.environ.get("LOCALSPEC_WORLD_SEEDS", "0"))


def seeds(name: str) -> range:
    return range(SWEEP or (5 if name.startswith(CHANGING) else 2))


# What is reached where a twentieth is not: `docs/decisions/policy.md`. A policy that promises to lose no more than a budget
# has to find out when the text changes its kind; against an adversary the yardstick is the best fixed setting, which meets another text.
REACHED = {
    "bimodal-f16": 0.2,
    "bimodal-copy-f16": 0.12,
    "bimodal-four-times": 0.25,
    "bimodal-rtx3090-q4_0": 0.15,
    "bimodal-metal-q8_0": 0.12,
    "stationary-eighth-q4_k_m-0.95": 0.25,
    "bimodal-eighth-q4_k_m": 0.25,
    "bimodal-eighth-f16": 0.25,
    "gaps-mislead-f16": 0.22,
    "adversarial-copy-q4_k_m": 0.13,
}


# A few kinds are quick enough to run always; the others are for `-m slow`.
QUICK = ("hopeless-f16", "dear")
EVERY = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow, id=name) for name in WORLDS
]
NEVER_ASKED = ("dear", "dear-copy")


@pytest.mark.first(1)
@pytest.mark.parametrize("name", EVERY)
def test_regret_is_at_most_a_twentieth_and_no_500_tokens_are_slower_than_097_of_plain(
    name: str,
) -> None:
    outcomes = [assess(name, seed, adaptive) for seed in seeds(name)]
    regrets = [outcome.regret for outcome in outcomes]
    assert sum(regrets) / len(regrets) <= REACHED.get(name, 0.05)
    assert min(outcome.window for outcome in outcomes) >= 0.97
    if name in NEVER_ASKED:  # a draft model that cannot win
        assert [outcome.run.draft_passes for outcome in outcomes] == [0] * len(outcomes)


@pytest.mark.parametrize("agreement", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("length", [64, 150])
def test_a_draft_model_is_not_asked_where_it_would_have_to_be_right_nearly_always(
    agreement: float, length: int
) -> None:
    """By the tables it could win, so it is loaded; but what is accepted nine times in ten loses."""
    world = short_replies(ACROSS, agreement, length=length, n=3)(0)
    assert run(world, adaptive).draft_passes == 0


def test_where_a_short_draft_would_pay_it_is_asked_soon() -> None:
    world = short_replies(F16, 0.85, length=20, n=1)(0)
    assert run(world, adaptive).draft_passes > 0


@pytest.mark.parametrize("offer", ["version", "misleading", "heads"])
def test_what_else_may_draft_costs_little_and_changes_no_text(offer: str) -> None:
    alone, offered = (
        assess(name, 1, adaptive)
        for name in ("hopeless-eighth-q4_k_m", f"hopeless-eighth-q4_k_m+{offer}")
    )
    assert offered.window >= 0.97
    assert offered.regret <= max(0.05, alone.regret)


def test_a_world_has_what_it_is_offered() -> None:
    assert build("dear", 0).said_before == ()
    kept = build("dear+misleading+heads", 0)
    assert kept.has_heads
    assert len(kept.said_before) > 100
    assert kept.text == build("dear", 0).text
