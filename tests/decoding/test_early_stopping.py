from dataclasses import replace

import pytest

from localspec.decoding.drafters.backoff import Hindsight
from localspec.decoding.drafters.early_stopping import EarlyStopping


def stopping(
    usual: float = 0.8, rate: float = 1.0, step: float = 0.1, longest: int = 8
) -> EarlyStopping:
    """A target whose pass costs one second and 0.05 a drafted token; gaps are chances."""
    verify_s = [1 + 0.05 * k for k in range(longest + 1)]
    return EarlyStopping(usual, step, verify_s, rate)


def goes_on(stopping: EarlyStopping, chances: list[float]) -> bool:
    growth = stopping.grow()
    return [growth.goes_on(chance) for chance in chances][-1]


def kept(stopping: EarlyStopping, chances: list[float]) -> int:
    growth = stopping.grow()
    for chance in chances:
        growth.goes_on(chance)
    return growth.kept


def test_sure_tokens_are_followed_by_more() -> None:
    assert goes_on(stopping(), [0.99])
    assert goes_on(stopping(), [0.99, 0.99, 0.99])


def test_an_unlikely_token_ends_the_draft() -> None:
    assert not goes_on(stopping(), [0.99, 0.1])
    assert not goes_on(stopping(usual=0.1), [0.9])


def test_the_longest_draft_is_an_end() -> None:
    assert not goes_on(stopping(longest=2), [1.0, 1.0])


@pytest.mark.parametrize(
    ("gaps", "count"),
    [([0.99, 0.9, 0.9], 3), ([0.99, 0.03], 1), ([0.02], 0), ([0.9, 0.01, 0.99], 1), ([], 0)],
)
def test_only_tokens_that_are_worth_their_width_are_verified(gaps: list[float], count: int) -> None:
    assert kept(stopping(), gaps) == count


def test_a_dearer_token_that_makes_the_pass_cheaper_is_kept() -> None:
    stair = EarlyStopping(0.5, 0.1, (1.0, 2.0, 2.6, 2.1), 1.0)
    assert goes_on(stair, [0.99, 0.95])
    assert kept(stair, [0.99, 0.95, 0.3]) == 3


def test_time_that_is_worth_more_makes_it_choosier() -> None:
    gaps = [0.9, 0.15]
    assert kept(stopping(usual=0.99, rate=1.0), gaps) == 2
    assert kept(stopping(usual=0.99, rate=6.0), gaps) < 2


def test_where_only_short_drafts_can_be_afforded_time_is_worth_what_they_would_earn() -> None:
    gaps = [0.9, 0.15]
    assert kept(stopping(usual=0.99, rate=6.0, longest=2), gaps) == 2
    assert stopping().best_rate(0.0) == 1.0
    assert stopping(longest=1).best_rate(0.5) == pytest.approx(1.5 / 1.15)


@pytest.mark.parametrize(("right", "begins"), [(0, False), (1, True), (6, True)])
def test_what_would_have_been_right_decides_whether_drafting_begins(
    right: int, begins: bool
) -> None:
    """Passes are so cheap here that even one in six pays; right about nothing is another matter."""
    hindsight = [Hindsight(1.0, each < right) for each in range(6)]
    tried = replace(stopping(step=0.05), compared=(True,) * 6)
    assert tried.look_back == 6
    assert tried.begins(hindsight) is begins


def test_dear_passes_want_more_to_have_been_right() -> None:
    dear_s = [1 + 0.3 * k for k in range(9)]
    dear = replace(stopping(step=0.2), verify_s=dear_s, compared=(True,) * 6)
    assert not dear.begins([Hindsight(1.0, each < 2) for each in range(6)])
    assert dear.begins([Hindsight(1.0, each < 5) for each in range(6)])


@pytest.mark.parametrize(("count", "could"), [(10, True), (6, False)])
def test_it_could_begin_where_the_best_that_is_compared_would_have_it_begin(
    count: int, could: bool
) -> None:
    # Ten hits speak for 0.95, six for 0.925; a draft of seven tokens has to be that sure to pay.
    dear = EarlyStopping(0.8, 0.0, (1.0, *[9.0] * 6, 6.5), 1.0, compared=(True,) * count)
    assert dear.could_begin is could
    assert dear.begins([Hindsight(1.0, hit=True)] * count) is could


def test_copied_tokens_do_not_speak_for_it() -> None:
    dear = EarlyStopping(0.8, 0.0, (1.0, *[9.0] * 6, 6.5), 1.0, compared=(True,) * 6 + (False,) * 4)
    assert not dear.could_begin
