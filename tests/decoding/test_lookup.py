from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from localspec.decoding.drafter import Draft
from localspec.decoding.lookup_drafter import LookupDrafter

from localspec.decoding.choose import Chooser
from localspec.decoding.noise import Noise
from localspec.options import SamplingParams

CHOOSER = Chooser(SamplingParams(), Noise(0))


def propose(drafter: LookupDrafter, tokens: Sequence[int], draft_length: int) -> Draft:
    with pytest.raises(StopIteration) as finished:
        next(drafter.propose(tokens, draft_length, CHOOSER))
    draft = finished.value.value
    assert isinstance(draft, Draft)
    return draft


def slow_lookup(
    text: Sequence[int], draft_length: int, eog: Sequence[int], min_match: int, max_match: int
) -> tuple[int, ...]:
    """Compare the end of the text with every earlier place, latest first."""
    best_end, best_length = 0, 0
    for end in range(len(text) - 1, min_match - 1, -1):
        length = 0
        while length < min(max_match, end) and text[end - length - 1] == text[-length - 1]:
            length += 1
        if length >= min_match and length > best_length:
            best_end, best_length = end, length
    if best_length == 0:
        return ()
    drafted: list[int] = []
    copied = list(text)
    for at in range(best_end, best_end + draft_length):
        copied.append(copied[at])
        drafted.append(copied[at])
        if drafted[-1] in eog:
            break
    return tuple(drafted)


# At most 16 earlier places are tried; texts of up to 17 tokens have no more.
short_texts = st.lists(st.integers(0, 2), min_size=1, max_size=17)


@given(short_texts, st.integers(-1, 6), st.integers(1, 4), st.integers(0, 4), st.booleans())
@settings(max_examples=250, deadline=None)
def test_drafts_are_those_of_the_slow_reference(
    text: list[int], draft_length: int, min_match: int, longer: int, eog: bool
) -> None:
    ends = (2,) if eog else ()
    max_match = min_match + longer
    drafted = propose(LookupDrafter(ends, min_match, max_match), text, draft_length)
    expected = slow_lookup(text, draft_length, ends, min_match, max_match)
    assert drafted.tokens == (expected if draft_length > 0 else ())
    assert len(drafted.confidences) == len(drafted.tokens)
    assert drafted.drafter == "lookup"


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), min_size=1, max_size=6))
@settings(max_examples=120, deadline=None)
def test_what_was_asked_before_does_not_matter(texts: list[list[int]]) -> None:
    """Any sequence of texts: extended, cut back, diverging, repeated."""
    used = LookupDrafter((), min_match=2, max_match=4)
    for text in texts:
        assert propose(used, text, 5) == propose(LookupDrafter((), 2, 4), text, 5)
        assert propose(used, text, 5) == propose(LookupDrafter((), 2, 4), text, 5)


def test_continuation_of_the_match_is_proposed() -> None:
    assert propose(LookupDrafter((), 2), [1, 2, 3, 4, 5, 1, 2], 3).tokens == (3, 4, 5)


def test_longest_match_wins_over_the_latest() -> None:
    assert propose(LookupDrafter((), 1), [8, 1, 2, 3, 9, 2, 4, 8, 1, 2], 1).tokens == (3,)


def test_latest_of_equal_matches_wins() -> None:
    assert propose(LookupDrafter((), 2), [1, 2, 3, 1, 2, 4, 1, 2], 1).tokens == (4,)


def test_match_shorter_than_the_least_proposes_nothing() -> None:
    assert propose(LookupDrafter((), 3), [1, 2, 3, 4, 1, 2], 3) == Draft(drafter="lookup")


def test_match_that_reaches_the_end_goes_on_in_its_own_copy() -> None:
    assert propose(LookupDrafter((), 1), [7, 8, 7, 8], 5).tokens == (7, 8, 7, 8, 7)


def test_draft_stops_at_end_of_generation() -> None:
    assert propose(LookupDrafter({3}, 2), [1, 2, 3, 4, 1, 2], 5).tokens == (3,)


def test_longer_match_is_surer() -> None:
    short = propose(LookupDrafter((), 1), [1, 2, 3, 2], 1).confidences[0]
    long = propose(LookupDrafter((), 1), [1, 2, 3, 1, 2], 1).confidences[0]
    assert 0 < short < long < 1


def test_only_the_latest_sixteen_matches_are_tried() -> None:
    """A text of nothing but one n-gram costs no more than any other."""
    longest_first = [5, 6, 1, 2, 3] + [1, 2, 4] * 16 + [5, 6, 1, 2]
    assert propose(LookupDrafter((), 2), longest_first, 1).tokens == (4,)
    assert propose(LookupDrafter((), 2), longest_first[:5] + longest_first[8:], 1).tokens == (3,)
