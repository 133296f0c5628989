"""Vectors in few bytes keep their neighbours."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.retrieval.vectors import differing, encoded, signs_of, similarities


def drawn(count: int, width: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


@given(st.integers(1, 300), st.integers(0, 9))
def test_a_byte_a_number_keeps_directions(width: int, seed: int) -> None:
    vectors = drawn(20, width, seed)
    codes = encoded(vectors)
    assert codes.dtype == np.int8
    for vector in vectors:
        assert np.allclose(similarities(codes, vector), vectors @ vector, atol=0.02)


def test_a_vector_of_nothing_is_like_none() -> None:
    codes = encoded(np.zeros((2, 8), np.float32))
    assert not similarities(codes, np.ones(8, np.float32)).any()


@pytest.mark.parametrize("width", [8, 13, 64, 384])
def test_signs_are_counted_whatever_the_width(width: int) -> None:
    codes = encoded(drawn(30, width, 3))
    wanted = ((codes > 0) != (codes[4] > 0)).sum(axis=1)
    assert (differing(signs_of(codes), signs_of(codes)[4]) == wanted).all()
