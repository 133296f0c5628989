"""Searching layers: what is found, and how seldom is asked."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.tailor.search import dispensable

N_LAYERS = 6


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=N_LAYERS, max_size=N_LAYERS), st.integers(0, N_LAYERS))
def test_layers_that_add_up_are_found_exactly(harms: list[float], most: int) -> None:
    def worth(left_out: tuple[int, ...]) -> float:
        return -sum(harms[layer] for layer in left_out)

    found = list(dispensable(N_LAYERS, most, worth))
    assert [len(left_out) for left_out, _ in found] == list(range(1, most + 1))
    for left_out, value in found:
        assert left_out == tuple(sorted(left_out))
        assert value == worth(left_out)
        best = max(worth(each) for each in combinations(range(N_LAYERS), len(left_out)))
        assert value >= best - 1e-9


def test_what_matters_only_beside_others_is_seen() -> None:
    # Either of the first two may go, not both.
    def worth(left_out: tuple[int, ...]) -> float:
        return 1.0 - 0.1 * len(left_out) - 5.0 * ({0, 1} <= set(left_out)) + 0.05 * (0 in left_out)

    (first, _), (second, value) = dispensable(4, 2, worth)
    assert first == (0,)
    assert 1 not in second
    assert value > 0


def test_each_set_is_asked_for_once_and_few_are() -> None:
    asked = list[tuple[int, ...]]()

    def worth(left_out: tuple[int, ...]) -> float:
        asked.append(left_out)
        return -float(sum(left_out))

    list(dispensable(28, 14, worth))
    assert len(asked) == len(set(asked))
    assert len(asked) <= 1 + 28 + 4 * 14
