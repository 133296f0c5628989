"""The highest logits of a long row are those of a full sort, whatever the row looks like."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.decoding.top import ranked_ids, top_ids
from tests.decoding.rows import row_of, shaped_row


def slow_top(row: NDArray[np.float32], top_k: int) -> list[int]:
    order = sorted(range(row.size), key=lambda token: (-row[token], token))
    return sorted(order[:top_k])


@given(
    st.integers(0, 10_000),
    st.integers(1, 5_000),
    st.integers(1, 20),
    st.sampled_from(("normal", "ties", "ascending", "constant", "holes")),
)
@settings(max_examples=400, deadline=None)
def test_top_ids_are_those_of_a_full_sort(seed: int, size: int, top_k: int, kind: str) -> None:
    row = shaped_row(seed, size, kind)
    expected = list(range(size)) if top_k >= size else slow_top(row, top_k)
    assert top_ids(row, top_k).tolist() == expected


@pytest.mark.parametrize("size", [32_000, 49_152, 151_936, 262_144])
@pytest.mark.parametrize("kind", ["normal", "ties", "ascending", "constant", "holes"])
def test_top_ids_of_a_real_vocabulary_keep_the_lowest_among_equals(size: int, kind: str) -> None:
    row = shaped_row(size, size, kind)
    order = np.lexsort((np.arange(size), -row))
    for top_k in (1, 40, 200, 1000, size // 64, size - 1):
        assert np.array_equal(top_ids(row, top_k), np.sort(order[:top_k]))


def test_top_ids_of_zero_keep_all() -> None:
    assert top_ids(row_of(1, -np.inf, 3), 0).tolist() == [0, 1, 2]


@pytest.mark.parametrize("finite", [0, 1, 39, 40, 41, 500])
def test_top_ids_of_a_row_that_is_mostly_minus_infinity(finite: int) -> None:
    row = np.full(151_936, -np.inf, dtype=np.float32)
    row[7 : 7 + 16 * finite : 16] = np.arange(finite) % 50
    assert top_ids(row, 40).tolist() == slow_top(row, 40)


@pytest.mark.parametrize("top_k", [1, 3, 40, 1000])
@pytest.mark.parametrize("places", [[0], [999], [5, 6, 700], range(400, 500)])
def test_nan_is_among_the_highest_wherever_it_is(places: Sequence[int], top_k: int) -> None:
    row = shaped_row(1, 1000, "normal")
    row[list(places)] = np.nan
    assert np.isnan(row[top_ids(row, top_k)].max())


@given(
    st.integers(0, 10_000),
    st.integers(1, 3_000),
    st.integers(1, 200),
    st.sampled_from(("normal", "ties", "constant", "holes")),
)
@settings(max_examples=200, deadline=None)
def test_ranked_ids_are_the_beginning_of_a_stable_sort(
    seed: int, size: int, most: int, kind: str
) -> None:
    row = shaped_row(seed, size, kind)
    order = np.argsort(-row, kind="stable")
    assert np.array_equal(ranked_ids(row, most), order[:most])
