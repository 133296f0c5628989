import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.decoding.choose import Chooser
from localspec.decoding.noise import Noise
from localspec.decoding.round import Draft, Verdict
from localspec.decoding.speculative import verify
from localspec.options import SamplingParams

GREEDY = Chooser(SamplingParams(temperature=0), Noise(0))


def rows_choosing(*tokens: int) -> NDArray[np.float32]:
    """Return one row per token, each of which has that token for its best."""
    rows = np.zeros((len(tokens), 10), dtype=np.float32)
    rows[np.arange(len(tokens)), tokens] = 5
    return rows


def draft(*tokens: int) -> Draft:
    return Draft(tokens, (0.5,) * len(tokens), "scripted")


@pytest.mark.parametrize(
    ("drafted", "chosen", "verdict"),
    [
        ((), (4,), Verdict(0, 4)),
        ((1,), (1, 2), Verdict(1, 2)),
        ((1,), (3, 2), Verdict(0, 3)),
        ((1, 2, 3), (1, 2, 3, 4), Verdict(3, 4)),
        ((1, 2, 3), (1, 2, 9, 4), Verdict(2, 9)),
        ((1, 2, 3), (1, 9, 3, 4), Verdict(1, 9)),
        ((1, 2, 3), (9, 2, 3, 4), Verdict(0, 9)),
    ],
)
def test_longest_matching_prefix_is_accepted(
    drafted: tuple[int, ...], chosen: tuple[int, ...], verdict: Verdict
) -> None:
    assert verify([0], draft(*drafted), rows_choosing(*chosen), GREEDY) == verdict


def test_bonus_token_comes_from_last_row() -> None:
    assert verify([0], draft(1, 1), rows_choosing(1, 1, 7), GREEDY).next_token == 7


def test_correction_comes_from_the_row_of_the_rejected_token() -> None:
    assert verify([0], draft(1, 2), rows_choosing(1, 6, 7), GREEDY).next_token == 6


def test_each_row_is_chosen_at_its_own_position_and_after_its_own_prefix() -> None:
    asked: list[list[int]] = []

    class Spy(Chooser):
        def choose(self, row: NDArray[np.float32], prefix: object) -> int:
            asked.append(list(prefix))  # type: ignore[call-overload]
            return int(row.argmax())

    verify([8, 9], draft(1, 2), rows_choosing(1, 2, 3), Spy(GREEDY.params, GREEDY.noise))
    assert asked == [[8, 9], [8, 9, 1], [8, 9, 1, 2]]


def test_nothing_is_chosen_after_the_first_rejected_token() -> None:
    rows = rows_choosing(5, 2, 3)
    rows[1:] = np.nan
    assert verify([0], draft(1, 2), rows, GREEDY) == Verdict(0, 5)


def test_confirmed_tokens_are_not_changed() -> None:
    tokens = [3, 4]
    verify(tokens, draft(1, 2), rows_choosing(1, 2, 3), GREEDY)
    assert tokens == [3, 4]


def test_penalty_of_a_drafted_token_counts_in_the_next_row() -> None:
    chooser = Chooser(SamplingParams(temperature=0, presence_penalty=9), Noise(0))
    rows = rows_choosing(1, 1)
    rows[1, 6] = 1
    assert verify([0], draft(1), rows, chooser) == Verdict(1, 6)
