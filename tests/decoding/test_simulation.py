"""The simulator itself: it charges what it says, and its asserts catch who deserves it."""

from itertools import product

import numpy as np
import pytest

from lab.simulator.assessment import assess, clairvoyant, plain_of
from lab.simulator.catalogue import build
from lab.simulator.clairvoyant import (
    MODEL_LENGTHS,
    best_length,
    best_stops,
    expected_rate,
)
from lab.simulator.contenders import Contender, MovingAverage, fixed_lookup, fixed_model, plain
from lab.simulator.costs import F16, GPU
from lab.simulator.loop import WARM_UP, plain_seconds, regret, run, worst_window
from lab.simulator.pair import Machine, VirtualModel
from lab.simulator.replay import Choice, Replay
from lab.simulator.texts import short_replies
from lab.simulator.world import GapLaw
from localspec.decoding.model import Role

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


@pytest.mark.parametrize("asked", [5, 13, 15, 30])
def test_a_replay_of_short_replies_catches_up_with_the_questions(asked: int) -> None:
    make = short_replies(GPU, 0.8, n=12, asked=asked)
    taken, replay = run(make(1), fixed_model(3)).seconds, Replay.of(make(1))
    np.testing.assert_allclose(taken, replay.seconds(every_regime(Choice(3), replay)), rtol=1e-9)


def test_copying_takes_what_a_replay_takes_or_a_little_less() -> None:
    """The drafter goes on in the source that it copied from; a replay looks for a match each time."""
    world, replay = build("bimodal-copy-gpu", 2), Replay.of(build("bimodal-copy-gpu", 2))
    taken = run(world, fixed_lookup(7, 4)).seconds[-1]
    replayed = replay.seconds(every_regime(Choice(0, 7, 4), replay))[-1]
    assert 0.995 * replayed < taken < replayed * (1 + 1e-9)


def test_the_clock_jitters_about_the_expected_seconds() -> None:
    machine = Machine(build("hopeless-gpu", 0))
    for _ in range(4000):
        machine.charge(Role.TARGET, 1, 300)
    # The mean of 4000 factors with a spread of 5 %: four standard errors.
    assert machine.now_s != machine.expected_s
    assert machine.now_s / machine.expected_s == pytest.approx(1, abs=4 * 0.05 / 4000**0.5)


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


@pytest.mark.parametrize(("agreement", "length"), [*product((0.5, 0.85, 0.99), (1, 4, 15))])
def test_the_expected_rate_is_what_long_runs_earn(agreement: float, length: int) -> None:
    rates = []
    for seed in range(6):
        replay = Replay.of(build(f"stationary-gpu-{agreement}", seed))
        seconds = replay.seconds(every_regime(Choice(length), replay))
        rates.append((len(seconds) - 1 - WARM_UP) / (seconds[-1] - seconds[WARM_UP]))
    error = float(np.std(rates, ddof=1)) / len(rates) ** 0.5
    expected = expected_rate(GPU, agreement, length, 0)
    assert float(np.mean(rates)) == pytest.approx(expected, abs=5 * error + 1e-9)


def test_who_knows_the_chances_drafts_as_far_as_they_pay_and_gaps_are_worth_what_they_say() -> None:
    assert best_length(F16, 0.3, 0) == best_length(GPU, 0.0, 0) == 0
    assert best_length(GPU, 1.0, 0) == MODEL_LENGTHS[-1]
    assert 1 <= best_length(GPU, 0.5, 0) < best_length(GPU, 0.9, 0)
    loss = {
        name: regret(clairvoyant(name, 0), clairvoyant(name, 0, sees_gaps=True))
        for name in ("stationary-f16-0.85", "gaps-say-nothing-gpu")
    }
    assert loss["stationary-f16-0.85"] > 0.03
    assert abs(loss["gaps-say-nothing-gpu"]) < 0.005


def test_gaps_that_say_nothing_stop_where_the_best_length_is_reached() -> None:
    stops = best_stops(GPU, GapLaw((1.0, 1.5), (1.0, 1.5)), 0.7, 0)
    length = best_length(GPU, 0.7, 0)
    survivals = [0.7**i for i in range(12)]
    drafted = next(i for i, chance in enumerate(survivals) if chance < stops[i])
    # The grid of survivals is coarse, and neighbouring lengths earn nearly the same.
    assert abs(drafted - length) <= 1


def test_the_clairvoyant_is_no_slower_than_plain_where_plain_is_best() -> None:
    for name in ("hopeless-gpu", "dear", "stationary-q4_k_m-0.95"):
        assert regret(plain_of(name, 0), clairvoyant(name, 0)) == pytest.approx(0, abs=1e-9)


def test_windows_and_regret_see_a_loss() -> None:
    plain_s = plain_seconds(build("hopeless-gpu", 0))
    steps = np.diff(plain_s)
    steps[600:700] *= 1.5
    slowed = np.concatenate([[0.0], np.cumsum(steps)])
    assert worst_window(slowed, plain_s) == pytest.approx(500 / 550)
    assert regret(slowed, plain_s) == pytest.approx(50 / 900)


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


def test_where_nothing_changes_a_naive_policy_does_well_and_plain_decoding_does_not() -> None:
    assert assess("stationary-gpu-0.85", 0, MovingAverage).regret < 0.1
    assert assess("stationary-gpu-0.85", 0, plain).regret > 1
