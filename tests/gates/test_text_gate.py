"""TextGate: wherever a text is cut, the same passes; nothing of a secret does, and little is held back. Users' own patterns: the longest match counts."""

import re
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.gates.gate import Gate, gate_of_toml, usual_gate
from localspec.gates.patterns import PLAIN, RuleSet, _scoped, require_longest
from localspec.gates.rules import OWN, RULES, GateRule
from localspec.gates.text_gate import Finding, Stretch
from tests.chat.cutting import cut
from tests.examples import LONG, examples
from tests.gates.streaming import streamed
from tests.support.secrets import FORMATS, Planted, planted

SHOWS_HEAD = {each.name for each in RULES if each.shows_head}
LONGEST = 3 + 512 + 4 + 8
"""Of a match of any usual rule: the head of a web token."""
ABOUT = ["The value is ", " (see ", "\n- ", "\n```\n", ' = "', "café 12: ", "a@b "]
BEHIND = ["", " and more", ".\n\nThat is all", '")', ", 7 times", "\n```"]


def visible(passed: Sequence[Stretch]) -> str:
    return "".join(each.text for each in passed)


def masked(secret: Planted) -> str:
    head = secret.head if secret.rule in SHOWS_HEAD else ""
    return f"{head}[masked: {secret.rule}]"


@examples(60)
@given(st.integers(0, 1 << 30), st.integers(0, 3), st.data())
def test_any_cut_shows_the_same(seed: int, count: int, data: st.DataObject) -> None:
    random, whole, wanted = Random(seed), "", ""
    for secret in [planted(random) for _ in range(count)]:
        about, behind = data.draw(st.sampled_from(ABOUT)), data.draw(st.sampled_from(BEHIND)) + " "
        whole += about + secret.text + behind
        wanted += about + masked(secret) + behind
    assert streamed(usual_gate().text(), cut(data, whole)) == wanted


@pytest.mark.parametrize("which", FORMATS)
def test_text_that_ends_in_a_secret_shows_nothing_of_it(which: str) -> None:
    random = Random(which)
    for _ in range(5 if LONG else 2):
        secret = planted(random, which)
        # Of numbers the first digits are harmless.
        few = 9 if secret.rule in {"telephone number", "payment card"} else 0
        for size in range(len(secret.head) + 1, len(secret.text)):
            reader = usual_gate().text()
            shown = visible(reader.feed(f"It is {secret.text[:size]}"))
            assert f"It is {masked(secret)}".startswith(shown)
            shown += visible(reader.flush(cut=True))
            assert size - len(secret.head) <= few or shown == f"It is {masked(secret)}"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("sk-or", "[masked: API key]"), ("sk-or-v1-a", "[masked: API key]"),
        ("password := aB3", "password := [masked: password]"),
        # Of numbers six digits of the body tell enough.
        ("CH93007620", "[masked: account number]"), ("CH9300762", "CH9300762"), ("411111111", "[masked: payment card]"), ("41111111", "41111111"),
    ],
)  # fmt: skip
def test_text_that_is_cut_where_head_and_body_begin_alike(text: str, masked: str) -> None:
    assert streamed(usual_gate().text(), [text], cut=True) == masked


@examples(50)
@given(st.text(), st.data())
def test_what_holds_nothing_passes_as_it_is(text: str, data: st.DataObject) -> None:
    reader = usual_gate().text()
    passed = streamed(reader, cut(data, text), most_held=LONGEST + 1)
    assert reader.counts or passed == text


def test_no_more_is_held_back_than_the_longest_match() -> None:
    gate = gate_of_toml('use = []\n[[pattern]]\nname = "x"\npattern = "ab{2,5}c"', "gate")
    for reader, chunks, passed in (
        (gate.text(), " abbbbbbz abbc.", [" ", *[""] * 6, "abbbbbb", "z", " ", *[""] * 4, "[masked: x]."]),
        (usual_gate().text(), ["so john", ".doe", " went"], ["so ", "", "john.doe "]),
    ):  # fmt: skip
        assert [visible(reader.feed(each)) for each in chunks] == passed


def rule_gate(*rules: GateRule, **actions: str) -> Gate:
    known = {each.name: actions.get(each.name, "mask") for each in rules}
    return Gate(RuleSet(rules), known)  # type: ignore[arg-type]


def keys(tail: str) -> GateRule:
    return GateRule("k", "own", "[a-z]{3}", "k-", tail=tail, end="!!")


@pytest.mark.parametrize(
    ("rules", "text", "masked"),
    [
        # The first rule counts where two match, and the first place before it.
        ([("one", "bc"), ("two", "bcd"), ("three", "ab")], "abcd bcd", "[masked: three]cd [masked: one]d"),
        # Characters around a match decide.
        ([GateRule("n", "own", "[0-9]{2}", before="0-9", after="0-9")], "12 345 a67b 8", "[masked: n] 345 a[masked: n]b 8"),
        # A tail belongs to the match, however long it is.
        ([keys("a-z.")], f"k-{'a' * 900}.b 1", "[masked: k] 1"),
        ([keys("a-z!")], "k-abcdef!gh!!ij k", "[masked: k]ij k"),
        # A pattern of a user's own may ignore case.
        ([GateRule("x", OWN, "(?i)Key[x-z]")], "kEyX KEYz keyw", "[masked: x] [masked: x] keyw"),
    ],
)  # fmt: skip
def test_rules_mask(rules: list[GateRule | tuple[str, str]], text: str, masked: str) -> None:
    given = [GateRule(each[0], "own", each[1]) if isinstance(each, tuple) else each for each in rules]  # fmt: skip
    assert rule_gate(*given).cleaned(text) == masked


def test_actions_stop_note_and_ask() -> None:
    gate = rule_gate(GateRule("a", "own", "aa"), GateRule("b", "own", "bb"), a="note", b="stop")
    reader = gate.text()
    assert visible(reader.feed("1 aa 2 bb 3 aa")) == "1 aa 2 [masked: b]"
    assert reader.stopped
    assert visible([*reader.feed(" 4"), *reader.flush()]) == ""
    assert reader.counts == {("a", "note"): 1, ("b", "stop"): 1}
    assert gate.cleaned("1 bb 2") == "1 [masked: b] 2"
    reader = rule_gate(GateRule("a", "own", "a[0-9]"), a="ask").text()
    assert streamed(reader, ["a1 a2"]) == "[masked: a] [masked: a]"
    assert reader.findings == [Finding("a", "a1"), Finding("a", "a2")]


WORDS = st.text("abTKAx_.(:,= \n0139-'", max_size=40)


@examples(200)
@given(st.lists(WORDS | st.sampled_from(["AKIA", "my_token", "(044", "key:", "so"]), max_size=8))
def test_plain_words_pass_as_they_would_if_all_rules_were_tried(chunks: list[str]) -> None:
    quick, slow = usual_gate().text(), usual_gate().text()
    slow._words = lambda: None  # type: ignore[method-assign]
    for chunk in chunks:
        assert visible(quick.feed(chunk)) == visible(slow.feed(chunk))
    assert visible(quick.flush()) == visible(slow.flush())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@examples(15)
@given(st.data())
def test_no_match_of_a_rule_is_plain_words(rule: GateRule, data: st.DataObject) -> None:
    head = re.sub(r"\(\?=\[[^]]*\]\)", "", rule.head)  # which are there to be quick
    text = data.draw(st.from_regex(_scoped(head) + _scoped(rule.body), fullmatch=True))
    assert not PLAIN.fullmatch(f" {text} ")


ATOMS = st.sampled_from(["a", "b", "[ab]", "[^a]", r"\d", r"\w", ".", r"\.", "[a-c0-3-]", " "])
COUNTS = st.sampled_from(["", "", "?", "{2}", "{0,2}", "{1,3}"])


def grouped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    either = st.lists(inner, min_size=1, max_size=3).map("|".join)
    return st.builds("({}){}".format, either, COUNTS)


PATTERNS = st.recursive(
    st.lists(st.builds("{}{}".format, ATOMS, COUNTS), min_size=1, max_size=3).map("".join),
    lambda inner: st.lists(inner | grouped(inner), min_size=1, max_size=2).map("".join),
    max_leaves=4,
)


@examples(300)
@given(PATTERNS, st.text("ab1. -x", max_size=12), st.data())
def test_longest_match_is_masked(pattern: str, text: str, data: st.DataObject) -> None:
    if re.fullmatch(pattern, ""):
        return
    wanted, at = "", 0
    while at < len(text):
        ends = range(len(text), at, -1)
        end = next((e for e in ends if re.fullmatch(pattern, text[at:e])), None)
        wanted += text[at] if end is None else "[masked: x]"
        at = end or at + 1
    reader = rule_gate(GateRule("x", OWN, pattern)).text()
    assert streamed(reader, cut(data, text)) == wanted


@pytest.mark.parametrize(
    ("pattern", "word"),
    [
        ("a*", "no longest match"), ("a+b", "no longest match"), ("a{2,}", "no longest match"),
        ("a{3,2}", "min repeat greater"), ("a{9999}", "no range"), ("(a", "missing"), ("a)", "unbalanced"),
        ("[a", "not closed"), ("[b-a]", "bad character range"), ("(?=a)", "not known"), (r"\b", "not known"),
        (r"(a)\1", "not known"), ("?", "nothing to repeat"), ("a{0}", "matches nothing"),
    ],
)  # fmt: skip
def test_what_is_no_pattern_names_the_reason(pattern: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        require_longest(pattern)
