"""The schedule: every run beside a run of `off`, every prompt before a second repeat."""

from itertools import groupby, islice, pairwise

import pytest

from localspec.bench.measure import schedule
from localspec.bench.trial import Slot


def groups(slots: list[Slot]) -> list[list[str]]:
    def key(slot: Slot) -> tuple[object, ...]:
        return slot.repeat, slot.temperature, slot.prompt, slot.group

    return [[slot.mode for slot in run] for _, run in groupby(slots, key)]


@pytest.mark.parametrize("others", [["a"], ["a", "b"], ["a", "b", "c"], list("abcdefg")])
def test_every_mode_is_a_neighbour_of_off_once_for_each_prompt_and_repeat(
    others: list[str],
) -> None:
    slots = list(schedule(3, ["off", *others], [0.0, 0.8], repeats=3))
    for group in groups(slots):
        assert group.count("off") == 1
        at = group.index("off")
        assert all(abs(at - each) <= 1 for each in range(len(group)))
    for other in others:
        of_mode = [slot for slot in slots if slot.mode == other]
        assert len({(s.prompt, s.temperature, s.repeat) for s in of_mode}) == 3 * 2 * 3
        assert len(of_mode) == 3 * 2 * 3


def test_off_alone_is_measured_too() -> None:
    assert groups(list(schedule(3, ["off"], [0.0], repeats=1))) == [["off"]] * 3


@pytest.mark.parametrize("seed", range(4))
def test_each_of_two_modes_goes_first_in_half_of_the_runs_and_of_the_repeats(seed: int) -> None:
    prompts = range(12)
    slots = list(schedule(len(prompts), ["off", "auto"], [0.0], repeats=2, seed=seed))
    order = [group[0] == "off" for group in groups(slots)]
    once, again = order[: len(prompts)], order[len(prompts) :]
    assert sum(once) == len(prompts) / 2
    assert all(one != other for one, other in zip(once, again, strict=True))


def test_the_order_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    modes = ["off", "a", "b", "c"]
    one, again, other = (list(schedule(3, modes, [0.0], 5, seed)) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_every_prompt_is_seen_before_the_second_repeat() -> None:
    slots = list(schedule(3, ["off", "auto"], [0.0, 0.8], repeats=2))
    half = slots[: len(slots) // 2]
    assert {slot.repeat for slot in half} == {0}
    assert {(s.prompt, s.temperature) for s in half} == {
        (p, t) for p in range(3) for t in (0.0, 0.8)
    }


def test_without_a_number_of_repeats_it_goes_on_in_changing_order() -> None:
    slots = list(islice(schedule(3, ["a", "b"], [0.8], None), 40))
    firsts = [slot.mode for slot in slots[::2]]
    assert all(one != other for one, other in pairwise(firsts))
    assert slots[-1].repeat == 6
