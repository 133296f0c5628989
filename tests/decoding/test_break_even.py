import pytest

from localspec.decoding.costs import PassCosts
from localspec.decoding.stats import could_win, window_length

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32)
Q4_K_M = PassCosts(
    WIDTHS,
    (0.0227, 0.0415, 0.0558, 0.0685, 0.0837, 0.0984, 0.1149, 0.1434, 0.1377, 0.2503),
)
GPU = PassCosts(WIDTHS, (0.01, 0.01, 0.01, 0.011, 0.011, 0.011, 0.012, 0.014, 0.015, 0.02))
DEAR = PassCosts((1, 32), (0.0142, 0.1543))
CHEAP = PassCosts((1, 32), (0.001, 0.002))


@pytest.mark.parametrize(
    ("target", "draft_model", "wins"),
    [(Q4_K_M, DEAR, False), (GPU, CHEAP, True), (GPU, GPU, False), (Q4_K_M, CHEAP, True)],
)
def test_a_draft_model_could_win_only_where_its_passes_and_wide_ones_are_cheap_enough(
    target: PassCosts, draft_model: PassCosts, wins: bool
) -> None:
    assert could_win(target, draft_model, 31) is wins


def test_a_window_takes_the_draft_model_two_plain_steps() -> None:
    slow = PassCosts((1, 32), (0.001, 0.0032))  # a tenth of a millisecond for each token
    assert window_length(GPU, slow, 4096) == 200
    assert window_length(GPU, slow, 150) == 150, "no more than its context"
    assert window_length(GPU, DEAR, 4096) == 32, "enough to show what it is good for"
