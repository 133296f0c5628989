"""The highest logits of a long row are those of a full sort, and those that a constraint lets follow those of a row masked first."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.decoding.sampling import candidates
from localspec.decoding.top import allowed_ids, ranked_ids, top_ids
from localspec.errors import PassFailed
from localspec.options import SamplingParams
from tests.decoding.rows import row_of, shaped_row
from tests.examples import examples

KINDS = ("normal", "ties", "ascending", "constant", "holes")
SIZES = st.one_of(st.integers(1, 300), st.integers(300, 5_000))


def best_first(row: NDArray[np.float32]) -> NDArray[np.int64]:
    return np.argsort(-row, kind="stable")


@given(st.integers(0, 10_000), SIZES, st.integers(1, 200), st.sampled_from(KINDS))
@examples(400)
def test_top_ids_are_those_of_a_full_sort_and_ranked_ids_its_beginning(
    seed: int, size: int, top_k: int, kind: str
) -> None:
    row = shaped_row(seed, size, kind)
    order = best_first(row)[:top_k]
    assert np.array_equal(ranked_ids(row, top_k), order)
    assert np.array_equal(top_ids(row, top_k), np.sort(order))


@pytest.mark.parametrize("size", [32_000, 49_152, 151_936, 262_144])
@pytest.mark.parametrize("kind", KINDS)
def test_top_ids_of_a_real_vocabulary_keep_the_lowest_among_equals(size: int, kind: str) -> None:
    row = shaped_row(size, size, kind)
    order = best_first(row)
    for top_k in (1, 40, 200, 1000, size // 64, size - 1):
        assert np.array_equal(top_ids(row, top_k), np.sort(order[:top_k]))
    assert top_ids(row, 0).size == size


@pytest.mark.parametrize("finite", [0, 1, 39, 40, 41, 500])
def test_top_ids_of_a_row_that_is_mostly_minus_infinity(finite: int) -> None:
    row = np.full(151_936, -np.inf, dtype=np.float32)
    row[7 : 7 + 16 * finite : 16] = np.arange(finite) % 50
    assert np.array_equal(top_ids(row, 40), np.sort(best_first(row)[:40]))


@pytest.mark.parametrize("top_k", [1, 3, 40, 1000])
@pytest.mark.parametrize("places", [[0], [999], [5, 6, 700], range(400, 500)])
def test_nan_is_among_the_highest_wherever_it_is(places: Sequence[int], top_k: int) -> None:
    row = shaped_row(1, 1000, "normal")
    row[list(places)] = np.nan
    assert np.isnan(row[top_ids(row, top_k)].max())


PARAMS = (
    SamplingParams(),
    SamplingParams(temperature=0),
    SamplingParams(temperature=0, repeat_penalty=1.5),
    SamplingParams(top_k=0),
    SamplingParams(top_k=1),
    SamplingParams(top_k=400, top_p=1, min_p=0),
    SamplingParams(
        top_k=3, repeat_penalty=2, presence_penalty=1, logit_bias=((0, 9), (2, -np.inf))
    ),
)


class Counting:
    """A constraint over ids alone, and what it was asked about."""

    def __init__(self, seed: int, size: int, share: float) -> None:
        self.allowed = np.random.default_rng(seed).random(size) < share
        self.allowed[seed % size] = True
        self.ids: list[int] = []

    def __call__(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        self.ids += ids.tolist()
        return np.asarray(self.allowed[ids])


@given(
    st.integers(0, 10_000),
    st.sampled_from((1, 5, 300, 4_000, 49_152)),
    st.sampled_from(KINDS),
    st.sampled_from((0.0, 0.001, 0.05, 0.5, 1.0)),
    st.sampled_from(PARAMS),
    st.lists(st.integers(0, 4), max_size=9),
)
@examples(500)
def test_lazily_found_candidates_are_those_of_a_row_masked_first(
    seed: int, size: int, kind: str, share: float, params: SamplingParams, history: list[int]
) -> None:
    row, allows = shaped_row(seed, size, kind), Counting(seed, size, share)
    history = [token % size for token in history]
    masked = np.where(allows.allowed, row, np.float32(-np.inf))
    try:
        expected = candidates(masked, history, params)
    except PassFailed:
        with pytest.raises(PassFailed):
            candidates(row, history, params, allows)
        return
    kept = candidates(row, history, params, allows)
    # Ids without a logit are kept of the masked row, with no weight; here they are left out.
    weighty = np.isfinite(expected.log_weights) & (masked[expected.ids] > -np.inf)
    assert np.array_equal(kept.ids, expected.ids[weighty])
    assert np.array_equal(kept.log_weights, expected.log_weights[weighty])
    allowed_ids(row, params.top_k, allows)
    assert np.isfinite(row[allows.ids]).all(), "asked about an id without a logit"


def test_few_ids_are_asked_about_where_the_best_may_follow_and_all_where_only_the_last_may() -> (
    None
):
    row, allows = shaped_row(3, 151_936, "normal"), Counting(3, 151_936, 0.9)
    allowed_ids(row, 40, allows)
    assert len(allows.ids) == 80
    allows.ids.clear()
    allowed_ids(row, 1, allows)
    assert len(allows.ids) <= 65
    falling, last = -np.arange(151_936, dtype=np.float32), Counting(151_935, 151_936, 0.0)
    for most in (0, 1, 40):
        assert allowed_ids(falling, most, last).tolist() == [151_935]


@pytest.mark.parametrize("params", PARAMS)
def test_nothing_that_may_follow_fails_the_pass(params: SamplingParams) -> None:
    with pytest.raises(PassFailed, match="grammar"):
        candidates(row_of(1, 2, 3), [], params, lambda ids: np.zeros(ids.size, dtype=np.bool_))
