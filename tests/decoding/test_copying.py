from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.decoding.drafters.copying import CopySource


def followed(tokens: Sequence[int]) -> CopySource:
    source = CopySource()
    source.begin(tokens)
    return source


@pytest.mark.parametrize(
    ("tokens", "length", "continuation"),
    [
        ([], 0, []),
        ([1, 2, 3, 4, 1], 0, []),
        ([1, 2, 3, 1, 2], 2, [3, 1, 2]),
        ([1, 2, 3, 4, 5, 6, 1, 2, 3], 3, [4, 5, 6]),
        ([9, 1, 2, 3, 4, 8, 1, 2, 3, 5, 9, 1, 2, 3], 4, [4, 8, 1]),  # the longer match
        ([1, 2, 3, 4, 7, 1, 2, 3, 5, 7, 1, 2, 3], 4, [5, 7, 1]),  # the later of equals
        ([1, 2, 1, 2, 1], 3, [2, 1, 2]),  # into its own copy
    ],
)
def test_the_longest_and_latest_match_predicts(
    tokens: list[int], length: int, continuation: list[int]
) -> None:
    source = followed(tokens)
    assert source.length == length
    assert source.predict(3) == continuation


def test_every_new_token_shows_whether_it_was_predicted() -> None:
    source = followed([1, 2, 3, 4, 5, 6, 7, 1, 2, 3])
    lengths = []
    for token, right in ((4, True), (5, True), (9, False), (8, None)):
        lengths.append(source.length)
        assert source.follow(token) is right
    assert lengths == [3, 4, 5, 0]
    assert source.length == 0


def test_places_that_go_on_differently_dispute_each_other() -> None:
    assert followed([1, 2, 3, 4, 9, 1, 2, 3, 5, 8, 1, 2, 3]).disputed
    assert not followed([1, 2, 3, 4, 9, 1, 2, 3, 4, 8, 1, 2, 3]).disputed


def test_where_a_long_copy_broke_off_it_is_expected_to_go_on() -> None:
    """Two tokens after an edit suffice, though the same two stand elsewhere, and later."""
    passage = list(range(10, 40))
    text = [*passage, *range(50, 80), 8, 25, 26, 9, *passage[:12], 77]
    source = followed(text[:-1])
    for token in (text[-1], 25, 26):
        source.follow(token)
    assert source.near
    assert source.length == 2
    assert source.predict(3) == [27, 28, 29]


def test_without_a_copy_that_broke_off_the_later_of_equals_comes_first() -> None:
    passage = list(range(10, 40))
    source = followed([*passage, 8, 25, 26, 9, 7, 25, 26])
    assert not source.near
    assert source.predict(1) == [9]


def test_another_text_is_followed_from_its_start_and_nothing_is_left_of_the_one_before() -> None:
    source = followed([1, 2, 3, 4, 5, 6, 1, 2, 3])
    source.begin([7, 8, 9, 6, 7, 8, 9])
    assert source.predict(2) == [6, 7]
    source.begin([1, 2])
    assert source.predict(2) == []


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(0, 60))
def test_following_in_steps_ends_where_a_match_truly_is(tokens: list[int], cut: int) -> None:
    source = followed(tokens[:cut])
    for token in tokens[cut:]:
        source.follow(token)
    if source.length:
        first = source.predict(1)[0]
        ends = [
            end
            for end in range(source.length, len(tokens))
            if tokens[end - source.length : end] == tokens[len(tokens) - source.length :]
        ]
        assert first in {tokens[end] for end in ends}
