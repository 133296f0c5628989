"""Timing passes in a virtual world, where time is a number."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from localspec.decoding.cancel import Cancelled
from localspec.llama.calibrate import OF_DRAFT_MODEL, OF_TARGET, sample

STAIRCASE = {1: 23, 2: 42, 3: 56, 4: 68, 5: 84, 6: 98, 7: 107, 8: 115, 9: 124, 12: 143, 16: 138}


def staircase_s(width: int) -> float:
    return STAIRCASE.get(width, 100 + 5 * width) / 1000


@dataclass(slots=True)
class World:
    """Passes take what `seconds` says, and nothing else takes time."""

    seconds: Callable[[int], float] = staircase_s
    now: float = 100.0
    passes: list[int] = field(default_factory=list)

    def run_pass(self, width: int) -> None:
        self.passes.append(width)
        self.now += self.seconds(width)

    def clock(self) -> float:
        return self.now


def test_costs_are_what_the_clock_says_at_every_width() -> None:
    world = World()
    schedule = replace(OF_TARGET, budget_s=9.0, first_s=9.0)
    costs = sample(world.run_pass, schedule, world.clock).costs
    assert costs.widths == tuple(sorted(OF_TARGET.widths))
    assert costs.seconds == pytest.approx([staircase_s(width) for width in costs.widths])


def test_a_disturbed_pass_does_not_count_where_an_undisturbed_one_was_seen() -> None:
    random = Random(3)
    world = World(lambda width: staircase_s(width) * random.choice([1.0, 1.0, 1.7, 40.0]))
    schedule = replace(
        OF_TARGET, widths=(1, 2, 4, 8), needed=4, enough=40, budget_s=1e9, most_s=1e9
    )
    costs = sample(world.run_pass, schedule, world.clock).costs
    assert costs.seconds == pytest.approx([staircase_s(width) for width in (1, 2, 4, 8)])


def test_narrow_passes_are_repeated_most_and_all_of_them_over_the_whole_time() -> None:
    world = World()
    sample(world.run_pass, OF_DRAFT_MODEL, world.clock)
    count = Counter(world.passes)
    assert count[1] > count[4] >= count[8] >= 1
    assert count[1] <= OF_DRAFT_MODEL.enough
    half = len(world.passes) // 2
    assert 1 in world.passes[:half]
    assert 1 in world.passes[half:]


def test_the_budget_is_kept() -> None:
    world = World()
    sample(world.run_pass, OF_TARGET, world.clock)
    assert world.now - 100.0 <= OF_TARGET.budget_s + 1e-6


def test_a_model_slower_than_the_budget_still_gives_every_narrow_width() -> None:
    world = World(lambda width: 4.5 * staircase_s(width))
    costs = sample(world.run_pass, OF_TARGET, world.clock).costs
    assert set(costs.widths) >= {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16}
    assert world.now - 100.0 <= OF_TARGET.most_s


@pytest.mark.parametrize("factor", [30, 1000])
def test_a_model_that_is_slower_still_ends_after_a_pass_or_two_too_many(factor: int) -> None:
    world = World(lambda width: factor * staircase_s(width))
    costs = sample(world.run_pass, OF_TARGET, world.clock).costs
    assert costs.widths[0] == 1
    assert world.now - 100.0 <= OF_TARGET.most_s + factor * 0.16
    assert costs.of(1) == pytest.approx(factor * 0.023)


def test_a_clock_too_coarse_to_see_a_pass_gives_costs_all_the_same() -> None:
    ticks = iter(range(10**6))

    def clock() -> float:
        return next(ticks) // 40 / 64

    costs = sample(lambda _width: None, OF_DRAFT_MODEL, clock).costs
    assert min(costs.seconds) > 0


def test_a_width_whose_passes_disagree_is_measured_until_they_agree() -> None:
    def seconds(width: int) -> float:
        bursts = width == 8 and world.passes.count(8) <= 2
        return staircase_s(width) * (1 + world.passes.count(8) if bursts else 1)

    world = World(seconds)
    schedule = replace(OF_TARGET, budget_s=9.0)
    costs = sample(world.run_pass, schedule, world.clock).costs
    assert costs.of(8) == pytest.approx(staircase_s(8))


def test_a_width_that_was_slow_twice_is_measured_again_where_a_wider_pass_was_no_slower() -> None:
    def seconds(width: int) -> float:
        slow = width == 16 and world.passes.count(16) <= 2
        return staircase_s(width) * (1.4 if slow else 1)

    world = World(seconds)
    costs = sample(world.run_pass, replace(OF_TARGET, budget_s=6.0), world.clock).costs
    assert costs.of(16) == pytest.approx(staircase_s(16))


@pytest.mark.parametrize(("times", "believed"), [(4, True), (99, False)])
def test_a_pass_of_four_that_is_undercut_by_one_of_six_is_measured_again(
    times: int, believed: bool
) -> None:
    """All that a pass of four does, one of six does, too: it cannot take less."""

    def seconds(width: int) -> float:
        slow = width == 4 and world.passes.count(4) <= times
        return staircase_s(width) * (1.6 if slow else 1)

    world = World(seconds)
    measured = sample(world.run_pass, replace(OF_TARGET, budget_s=6.0), world.clock)
    assert world.passes.count(4) > 4
    assert (measured.costs.of(4) == pytest.approx(staircase_s(4))) is believed
    assert measured.disturbed is not believed, "the next start measures once more"


def test_other_programs_show_in_the_spread() -> None:
    world, random = World(), Random(8)
    assert not sample(world.run_pass, OF_TARGET, world.clock).disturbed
    busy = World(lambda width: staircase_s(width) * random.uniform(1, 9))
    assert sample(busy.run_pass, OF_TARGET, busy.clock).disturbed


def test_a_measurement_without_a_repetition_is_not_relied_on() -> None:
    world = World(lambda width: 30 * staircase_s(width))
    measured = sample(world.run_pass, OF_TARGET, world.clock)
    assert measured.spread is None
    assert measured.disturbed


def test_progress_rises_to_the_end() -> None:
    world, shares = World(), list[float]()
    sample(world.run_pass, OF_TARGET, world.clock, shares.append)
    assert shares == sorted(shares)
    assert 0.8 < shares[-1] <= 1.0


def test_whoever_shows_the_progress_takes_time_that_does_not_count() -> None:
    world = World()

    def show(_share: float) -> None:
        world.now += 0.05

    costs = sample(world.run_pass, OF_TARGET, world.clock, show).costs
    assert costs.of(1) == pytest.approx(staircase_s(1))
    assert costs.of(16) == pytest.approx(staircase_s(16))


def test_what_fails_in_the_midst_of_a_pass_ends_the_measuring() -> None:
    def run_pass(width: int) -> None:
        if width == 8:
            raise Cancelled

    with pytest.raises(Cancelled):
        sample(run_pass, OF_TARGET, World().clock)
