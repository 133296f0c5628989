"""What is kept under a constraint is what a row has kept in which all other ids were masked first."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.decoding.allowed import allowed_ids
from localspec.decoding.sampling import candidates
from localspec.errors import PassFailed
from localspec.options import SamplingParams
from tests.decoding.rows import row_of, shaped_row
from tests.examples import examples

SIZES = (1, 5, 300, 4_000, 49_152)
KINDS = ("normal", "ties", "ascending", "constant", "holes")
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


class Asked:
    """A constraint over ids alone, which counts what it is asked."""

    def __init__(self, allowed: NDArray[np.bool_]) -> None:
        self.allowed = allowed
        self.asked: list[int] = []

    def __call__(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        self.asked += ids.tolist()
        return np.asarray(self.allowed[ids])


def some(seed: int, size: int, share: float) -> Asked:
    allowed = np.random.default_rng(seed).random(size) < share
    allowed[seed % size] = True
    return Asked(allowed)


@given(
    st.integers(0, 10_000),
    st.sampled_from(SIZES),
    st.sampled_from(KINDS),
    st.sampled_from((0.0, 0.001, 0.05, 0.5, 1.0)),
    st.sampled_from(PARAMS),
    st.lists(st.integers(0, 4), max_size=9),
)
@examples(500)
def test_lazily_found_candidates_are_those_of_a_row_masked_first(
    seed: int, size: int, kind: str, share: float, params: SamplingParams, history: list[int]
) -> None:
    row, allows = shaped_row(seed, size, kind), some(seed, size, share)
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
    weighty = np.isfinite(expected.log_weights)
    assert np.array_equal(kept.ids, expected.ids[weighty])
    assert np.array_equal(kept.log_weights, expected.log_weights[weighty])


@given(
    st.integers(0, 10_000),
    st.sampled_from(SIZES),
    st.sampled_from(KINDS),
    st.sampled_from((0.0, 0.001, 0.05, 0.5, 1.0)),
    st.sampled_from((0, 1, 2, 40, 1000)),
)
@examples(300)
def test_no_id_is_asked_about_twice_in_its_blocks_and_none_without_a_logit(
    seed: int, size: int, kind: str, share: float, most: int
) -> None:
    row, allows = shaped_row(seed, size, kind), some(seed, size, share)
    ids = allowed_ids(row, most, allows)
    assert (np.diff(ids) > 0).all()
    assert allows.allowed[ids].all()
    assert np.isfinite(row[allows.asked]).all()


def test_few_ids_are_asked_about_where_the_best_may_follow() -> None:
    row = shaped_row(3, 151_936, "normal")
    allows = some(3, row.size, 0.9)
    allowed_ids(row, 40, allows)
    assert len(allows.asked) == 80
    allows.asked.clear()
    allowed_ids(row, 1, allows)
    assert len(allows.asked) <= 64


def test_the_best_of_all_is_found_where_only_the_last_may_follow() -> None:
    row = -np.arange(151_936, dtype=np.float32)
    allows = Asked(np.zeros(row.size, dtype=np.bool_))
    allows.allowed[-1] = True
    for most in (0, 1, 40):
        assert allowed_ids(row, most, allows).tolist() == [row.size - 1]


def test_nothing_that_may_follow_fails_the_pass() -> None:
    allows = Asked(np.zeros(3, dtype=np.bool_))
    for params in PARAMS:
        with pytest.raises(PassFailed, match="grammar"):
            candidates(row_of(1, 2, 3), [], params, allows)
