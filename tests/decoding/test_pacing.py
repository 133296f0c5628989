import pytest

from localspec.decoding.pacing import Pacing

PLAIN = 1.0


def pacing(usual: float = 0.8, rate: float = 1.0, step: float = 0.1, longest: int = 8) -> Pacing:
    """A target whose pass costs one second and 0.05 a drafted token; gaps are chances."""
    return Pacing(longest, lambda gap: gap, usual, step, lambda k: 1 + 0.05 * k, rate)


def test_sure_tokens_are_followed_by_more() -> None:
    assert pacing().goes_on([0.99])
    assert pacing().goes_on([0.99, 0.99, 0.99])


def test_an_unlikely_token_ends_the_draft() -> None:
    assert not pacing().goes_on([0.99, 0.1])
    assert not pacing(usual=0.1).goes_on([0.9])


def test_the_longest_draft_is_an_end() -> None:
    assert not pacing(longest=2).goes_on([1.0, 1.0])


@pytest.mark.parametrize(
    ("gaps", "kept"),
    [([0.99, 0.9, 0.9], 3), ([0.99, 0.03], 1), ([0.02], 0), ([0.9, 0.01, 0.99], 1), ([], 0)],
)
def test_only_tokens_that_are_worth_their_width_are_verified(gaps: list[float], kept: int) -> None:
    assert pacing().keeps(gaps) == kept


def test_a_dearer_token_that_makes_the_pass_cheaper_is_kept() -> None:
    dip = {0: 1.0, 1: 2.0, 2: 2.6, 3: 2.1}
    stair = Pacing(3, lambda gap: gap, 0.5, 0.1, lambda k: dip[k], 1.0)
    assert stair.goes_on([0.99, 0.95])
    assert stair.keeps([0.99, 0.95, 0.3]) == 3


def test_time_that_is_worth_more_makes_it_choosier() -> None:
    gaps = [0.9, 0.3]
    assert pacing(rate=1.0).keeps(gaps) == 2
    assert pacing(rate=6.0).keeps(gaps) < 2
