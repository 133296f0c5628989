"""Whether the text has become another kind: a run of wrong tokens says so, a single one does not."""

from collections.abc import Iterable

import pytest

from localspec.decoding.drafters.change import TextKinds

SURE = 0.97


def seen(fates: Iterable[bool], usual: float = SURE) -> TextKinds:
    change = TextKinds()
    for hit in fates:
        change.see(usual, hit=hit)
    return change


def test_nothing_has_changed_at_first() -> None:
    assert not TextKinds().worse
    assert TextKinds().chance(SURE) == pytest.approx(SURE)


def test_one_wrong_token_among_many_is_no_change_and_three_in_a_row_are() -> None:
    right = [True] * 60
    assert not seen([*right, False]).worse
    assert seen([*right, False]).chance(SURE) > 0.9
    assert seen([*right, False, False, False]).worse
    assert seen([*right, False, False, False]).chance(SURE) < 0.6


@pytest.mark.parametrize("usual", [0.5, 0.8, 0.97])
def test_a_text_that_stays_as_it_is_has_not_changed(usual: float) -> None:
    """As often wrong as usual, evenly."""
    every = round(1 / (1 - usual))
    assert not seen([(n + 1) % every != 0 for n in range(300)], usual).worse


def test_a_text_that_has_changed_back_is_believed_within_a_dozen_tokens() -> None:
    bad = [True] * 60 + [False, False, True] * 10
    assert seen(bad).worse
    assert not seen(bad + [True] * 12).worse


def test_what_is_forgotten_is_that_it_looked_worse() -> None:
    change = seen([False] * 6)
    assert change.worse
    change.forget()
    assert not change.worse
    assert change.chance(SURE) >= SURE - 0.01
    better = seen([True] * 60, 0.5)
    before = better.chance(0.5)
    better.forget()
    assert better.chance(0.5) == pytest.approx(before, abs=0.02)
