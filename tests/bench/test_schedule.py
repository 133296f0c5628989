"""The schedule: every run beside a run of `off`, every prompt before a second repeat."""

from itertools import groupby, islice, pairwise

import pytest

from localspec.bench.measure import schedule
from localspec.bench.trial import Slot


def groups(slots: list[Slot]) -> list[list[str]]:
    def key(slot: Slot) -> tuple[object, ...]:
        return slot.repeat, slot.temperature, slot.prompt, slot.group

    return [[slot.mode for slot in run] for _, run in groupby(slots, key)]


@pytest.mark.parametrize("others", [[], ["a"], ["a", "b"], ["a", "b", "c"], list("abcdefg")])
def test_every_mode_is_a_neighbour_of_off_once_for_each_prompt_and_repeat(
    others: list[str],
) -> None:
    slots = list(schedule(3, ["off", *others], [0.0, 0.8], repeats=3))
    for group in groups(slots):
        assert group.count("off") == 1
        assert len(group) == 1 or len(group) <= 3
        assert len(group) < 3 or group[1] == "off"
    for other in others:
        places = [(s.prompt, s.temperature, s.repeat) for s in slots if s.mode == other]
        assert len(places) == len({*places}) == 3 * 2 * 3
    first = slots[: len(slots) // 3]
    both = {(s.prompt, s.temperature) for s in first}
    assert both == {(p, t) for p in range(3) for t in (0.0, 0.8)}, "before a second repeat"
    assert {slot.repeat for slot in first} == {0}


@pytest.mark.parametrize("seed", range(4))
def test_each_of_two_modes_goes_first_in_half_of_the_runs_and_of_the_repeats(seed: int) -> None:
    slots = list(schedule(12, ["off", "auto"], [0.0], repeats=2, seed=seed))
    order = [group[0] == "off" for group in groups(slots)]
    assert sum(order[:12]) == 6
    assert all(one != other for one, other in zip(order[:12], order[12:], strict=True))


def test_the_order_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    modes = ["off", "a", "b", "c"]
    one, again, other = (list(schedule(3, modes, [0.0], 5, seed)) for seed in (1, 1, 2))
    assert one == again != other


def test_without_a_number_of_repeats_it_goes_on_in_changing_order() -> None:
    slots = list(islice(schedule(3, ["a", "b"], [0.8], None), 40))
    assert all(one != other for one, other in pairwise(slot.mode for slot in slots[::2]))
    assert slots[-1].repeat == 6
