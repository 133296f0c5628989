"""Patterns: they match what Python's own expressions match, and never without an end."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.gates.patterns import Positions, chars, concatenated, longest, positions
from tests.examples import examples

ATOMS = st.sampled_from(["a", "b", "[ab]", "[^a]", r"\d", r"\w", ".", r"\.", "[a-c0-3-]", " "])
COUNTS = st.sampled_from(["", "", "?", "{2}", "{0,2}", "{1,3}"])


def joined(parts: list[str]) -> str:
    return "".join(parts)


def grouped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    either = st.lists(inner, min_size=1, max_size=3).map("|".join)
    return st.builds(lambda group, count: f"({group}){count}", either, COUNTS)


PIECES = st.builds(lambda atom, count: atom + count, ATOMS, COUNTS)
PATTERNS = st.recursive(
    st.lists(PIECES, min_size=1, max_size=3).map(joined),
    lambda inner: st.lists(inner | grouped(inner), min_size=1, max_size=2).map(joined),
    max_leaves=4,
)
TEXTS = st.text("ab1. -x", max_size=8)


def matches(found: Positions, text: str) -> bool:
    if not text:
        return found.empty
    wanted, read = found.first, frozenset[int]()
    for char in text:
        read = frozenset(at for at in wanted if char in found.classes[at])
        wanted = frozenset(after for at in read for after in found.follow[at])
    return bool(read & found.last)


@examples(300)
@given(PATTERNS, st.lists(TEXTS, max_size=8))
def test_pattern_matches_what_python_says(pattern: str, texts: list[str]) -> None:
    found = positions(pattern)
    for text in texts:
        wanted = re.fullmatch(pattern, text, re.ASCII) is not None
        assert matches(found, text) == wanted, (pattern, text)
        assert not wanted or len(text) <= longest(found)


@examples(100)
@given(PATTERNS, PATTERNS, st.lists(TEXTS, max_size=8))
def test_one_pattern_behind_another_matches_both(one: str, other: str, texts: list[str]) -> None:
    found = concatenated(positions(one), positions(other))
    for text in texts:
        wanted = re.fullmatch(f"(?:{one})(?:{other})", text, re.ASCII) is not None
        assert matches(found, text) == wanted, (one, other, text)


def test_case_is_ignored_where_the_pattern_says_so() -> None:
    found = positions("(?i)Key[x-z]")
    assert [matches(found, each) for each in ("kEyX", "KEYz", "keyw")] == [True, True, False]


def test_class_of_characters() -> None:
    found = chars(r"a-c\s.-")
    assert [each in found for each in "abc .-\ndé"] == [True] * 7 + [False] * 2


@pytest.mark.parametrize(
    ("pattern", "word"),
    [
        ("a*", "no longest match"),
        ("a+b", "no longest match"),
        ("a{2,}", "number after the comma"),
        ("a{3,2}", "no range"),
        ("a{9999}", "no range"),
        ("(a{2000}){9}", "shorten"),
        ("(a", "not closed"),
        ("a)", "not opened"),
        ("[a", "ends in the middle"),
        ("[b-a]", "upside down"),
        ("(?=a)", "of groups"),
        (r"\b", "not known"),
        ("?", "repeats nothing"),
        ("a{0}", "repeats nothing"),
    ],
)
def test_what_is_no_pattern_says_why(pattern: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        positions(pattern)
