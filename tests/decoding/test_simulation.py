"""The simulator itself: it charges what it says, and its asserts catch who deserves it."""

import os
from itertools import product

import numpy as np
import pytest

from localspec.decoding.model import Role
from tests.decoding.simulator.assessment import assess
from tests.decoding.simulator.catalogue import WORLDS, build
from tests.decoding.simulator.contenders import (
    Contender,
    MovingAverage,
    adaptive,
    fixed_lookup,
    fixed_model,
    plain,
)
from tests.decoding.simulator.costs import ACROSS, F16
from tests.decoding.simulator.loop import run
from tests.decoding.simulator.pair import Machine, VirtualModel
from tests.decoding.simulator.replay import Choice, Replay
from tests.decoding.simulator.texts import short_replies

REPLAYED = ["stationary-gpu-0.85", "bimodal-f16", "deep-gpu", "slow-midway-f16"]


def every_regime(choice: Choice, replay: Replay) -> dict[int, Choice]:
    return dict.fromkeys(set(replay.world.regimes.tolist()), choice)


@pytest.mark.first(2)
@pytest.mark.parametrize(("name", "length"), [*product(REPLAYED, (0, 1, 5))])
def test_a_replay_takes_what_the_loop_takes(name: str, length: int) -> None:
    contender = fixed_model(length) if length else plain
    world, replay = build(name, 3), Replay.of(build(name, 3))
    replayed = replay.seconds(every_regime(Choice(length), replay))
    np.testing.assert_allclose(run(world, contender).seconds, replayed, rtol=1e-9)


def test_a_pass_costs_what_it_evaluates_beyond_the_cache() -> None:
    world = build("hopeless-f16", 0)
    machine = Machine(world)
    model = VirtualModel(Role.DRAFT_MODEL, machine)
    machine.n_confirmed = 300
    model.prefill(world.text[:299])
    before = machine.expected_s
    model.logits(world.text[:300], 1)
    assert machine.expected_s - before == pytest.approx(world.costs.draft.of(1))
    before, machine.n_confirmed = machine.expected_s, 305
    model.logits(world.text[:305], 1)
    assert machine.expected_s - before == pytest.approx(world.costs.draft.of(5))
    model.logits([*world.text[:305], world.wrong[305]], 1)
    before = machine.expected_s
    model.logits(world.text[:307], 1)
    assert machine.expected_s - before == pytest.approx(world.costs.draft.of(2))


@pytest.mark.parametrize("seed", [0, 1])  # greedy, and at temperature 0.8
def test_the_draft_model_agrees_as_often_as_its_chance_says(seed: int) -> None:
    world = build("stationary-gpu-0.7", seed)
    machine, chooser = Machine(world), world.chooser()
    model = VirtualModel(Role.DRAFT_MODEL, machine)
    start, end = world.turns[0]
    hits = 0
    for n in range(start, end):
        machine.n_confirmed = n
        chosen = chooser.choose(model.logits(world.text[:n], 1)[0], world.text[:n])
        assert (chosen == world.text[n]) == world.agrees(n)
        hits += chosen == world.text[n]
    # A binomial of 1200 at 0.7: four standard errors.
    assert hits / (end - start) == pytest.approx(0.7, abs=0.053)


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("name", "contender"),
    [
        ("adversarial-gpu", MovingAverage),
        ("breaking-copy-q4_k_m", fixed_lookup(7)),  # where bets are broken
        ("honeymoon-gpu", MovingAverage),
        ("hopeless-f16", MovingAverage),
    ],
)
def test_who_always_drafts_is_caught(name: str, contender: Contender) -> None:
    outcome = assess(name, 0, contender)
    assert outcome.regret > 0.05
    assert outcome.window < 0.97


# The adaptive policy: near the clairvoyant, and never much below plain.


# The clairvoyant runs on the same coins, so that a policy like it scores exactly 0; what spreads
# over seeds is the policy's luck in finding out. Where the text changes its kind that is 2 to 5
# points (12 in repetitive-gpu): five seeds leave a standard error of 1 to 2.
CHANGING = ("bimodal", "edit", "gaps-mislead", "staircase-copy", "dear-copy", "repetitive")
# LOCALSPEC_WORLD_SEEDS=10 makes a longer sweep of the same asserts.
SWEEP = int(os.environ.get("LOCALSPEC_WORLD_SEEDS", "0"))


def seeds(name: str) -> range:
    return range(SWEEP or (3 if name.startswith(CHANGING) else 2))


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
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow, id=name)
    for name in WORLDS
    if not name.endswith(("-0.7", "-0.99"))  # between others
]
NEVER_ASKED = ("dear", "dear-copy")


@pytest.mark.first(1)
@pytest.mark.parametrize("name", EVERY)
def test_regret_is_small_and_no_500_tokens_are_much_slower_than_plain(name: str) -> None:
    outcomes = [assess(name, seed, adaptive) for seed in seeds(name)]
    regrets = [outcome.regret for outcome in outcomes]
    assert sum(regrets) / len(regrets) <= REACHED.get(name, 0.05)
    assert min(outcome.window for outcome in outcomes) >= 0.97
    if name in NEVER_ASKED:  # a draft model that cannot win
        assert [outcome.run.draft_passes for outcome in outcomes] == [0] * len(outcomes)


@pytest.mark.parametrize("agreement", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("length", [64, 150])
def test_a_draft_model_that_can_hardly_win_is_not_asked(agreement: float, length: int) -> None:
    """By the tables it could win, so it is loaded; but what is accepted nine times in ten loses."""
    world = short_replies(ACROSS, agreement, length=length, n=3)(0)
    assert run(world, adaptive).draft_passes == 0


def test_a_short_draft_that_would_pay_is_asked_soon() -> None:
    world = short_replies(F16, 0.85, length=20, n=1)(0)
    assert run(world, adaptive).draft_passes > 0


@pytest.mark.first(1)
@pytest.mark.parametrize("offer", ["version", "misleading", "heads"])
def test_what_else_may_draft_costs_little_and_changes_no_text(offer: str) -> None:
    alone, offered = (
        assess(name, 1, adaptive)
        for name in ("hopeless-eighth-q4_k_m", f"hopeless-eighth-q4_k_m+{offer}")
    )
    assert offered.window >= 0.97
    assert offered.regret <= max(0.05, alone.regret)
