"""Ids of a cut head: what was said, what might have been, and of all else the lowest."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from localspec.tailor.measure import often_spoken


def test_what_was_said_comes_first_and_then_the_lowest_ids() -> None:
    counts = np.zeros(5000)
    counts[[4000, 4500]] = (3.0, 1.0)
    assert often_spoken([counts, counts], 4).tolist() == [0, 1, 4000, 4500]


def test_what_might_have_been_said_weighs_more_than_a_low_id() -> None:
    counts = np.zeros(5000)
    counts[[7, 4000]] = (0.999, 0.001)
    assert often_spoken([counts], 3).tolist() == [0, 7, 4000]
    counts[4000] = 1e-9
    assert often_spoken([counts], 3).tolist() == [0, 1, 7]


@given(st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=30), st.integers(1, 30))
def test_so_many_ids_ascending(weights: list[float], n_ids: int) -> None:
    ids = often_spoken([np.array(weights)], min(n_ids, len(weights)))
    assert ids.tolist() == sorted(set(ids.tolist()))
    assert len(ids) == min(n_ids, len(weights))
