"""Users' own patterns: what they may say, and that the longest of their matches counts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.gates.patterns import RuleSet, require_longest
from localspec.gates.rules import OWN, GateRule
from localspec.gates.text_gate import TextGate
from tests.chat.cutting import cut
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
TEXTS = st.text("ab1. -x", max_size=12)


def masked(pattern: str, text: str) -> str:
    """Return a text with the longest match at every place masked, as Python's own expressions find it."""
    found, at = "", 0
    while at < len(text):
        ends = range(len(text), at, -1)
        end = next((e for e in ends if re.fullmatch(pattern, text[at:e])), None)
        found += text[at] if end is None else "[masked: x]"
        at = end or at + 1
    return found


@examples(300)
@given(PATTERNS, TEXTS, st.data())
def test_longest_match_is_masked_however_the_text_is_cut(
    pattern: str, text: str, data: st.DataObject
) -> None:
    if re.fullmatch(pattern, ""):
        return
    reader = TextGate(RuleSet([GateRule("x", OWN, pattern)]), {"x": "mask"})
    passed = [each for chunk in cut(data, text) for each in reader.feed(chunk)]
    assert "".join(e.text for e in [*passed, *reader.flush()]) == masked(pattern, text)


def test_case_is_ignored_where_the_pattern_says_so() -> None:
    reader = TextGate(RuleSet([GateRule("x", OWN, "(?i)Key[x-z]")]), {"x": "mask"})
    passed = [*reader.feed("kEyX KEYz keyw"), *reader.flush()]
    assert "".join(each.text for each in passed) == "[masked: x] [masked: x] keyw"


@pytest.mark.parametrize(
    ("pattern", "word"),
    [
        ("a*", "no longest match"),
        ("a+b", "no longest match"),
        ("a{2,}", "no longest match"),
        ("a{3,2}", "min repeat greater"),
        ("a{9999}", "no range"),
        ("(a", "missing"),
        ("a)", "unbalanced"),
        ("[a", "not closed"),
        ("[b-a]", "bad character range"),
        ("(?=a)", "not known"),
        (r"\b", "not known"),
        (r"(a)\1", "not known"),
        ("?", "nothing to repeat"),
        ("a{0}", "matches nothing"),
    ],
)
def test_what_is_no_pattern_says_why(pattern: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        require_longest(pattern)
