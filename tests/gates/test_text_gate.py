"""TextGate: wherever a text is cut, it says the same of it; nothing of a secret is let through, and little is held back."""

import re
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.planted import FORMATS, Planted, planted
from localspec.gates.gate import Gate, gate_of_toml, usual_gate
from localspec.gates.patterns import PLAIN, RuleSet, _scoped
from localspec.gates.rules import RULES, GateRule
from localspec.gates.text_gate import Finding, Stretch
from tests.chat.cutting import cut
from tests.examples import examples

SHOWS_HEAD = {each.name for each in RULES if each.shows_head}
LONGEST = 3 + 512 + 4 + 8
"""Of a match of any usual rule: the head of a web token."""
ABOUT = ["The value is ", " (see ", "\n- ", "\n```\n", ' = "', "café 12: ", "a@b "]
BEHIND = ["", " and more", ".\n\nThat is all", '")', ", 7 times", "\n```"]


def seen(passed: Sequence[Stretch]) -> str:
    return "".join(each.text for each in passed)


def masked(secret: Planted) -> str:
    head = secret.head if secret.rule in SHOWS_HEAD else ""
    return f"{head}[masked: {secret.rule}]"


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, str]:
    """Return a text with secrets in it, and how it may be seen."""
    random = Random(draw(st.integers(0, 1 << 30)))
    whole = wanted = ""
    for _ in range(draw(st.integers(0, 3))):
        secret = planted(random)
        about, behind = draw(st.sampled_from(ABOUT)), draw(st.sampled_from(BEHIND)) + " "
        whole += about + secret.text + behind
        wanted += about + masked(secret) + behind
    return whole, wanted


@examples(60)
@given(texts(), st.data())
def test_any_cut_gives_the_same_and_shows_no_secret(
    made: tuple[str, str], data: st.DataObject
) -> None:
    whole, wanted = made
    reader, shown, taken = usual_gate().text(), "", 0
    for chunk in cut(data, whole):
        passed = reader.feed(chunk)
        shown += seen(passed)
        taken += sum(each.taken for each in passed)
        assert wanted.startswith(shown)
    passed = reader.flush()
    assert shown + seen(passed) == wanted
    assert taken + sum(each.taken for each in passed) == len(whole)


@pytest.mark.parametrize("which", FORMATS)
def test_text_that_ends_in_a_secret_shows_nothing_of_it(which: str) -> None:
    random = Random(which)
    for _ in range(5):
        secret = planted(random, which)
        for size in range(len(secret.head) + 1, len(secret.text)):
            reader = usual_gate().text()
            shown = seen(reader.feed(f"It is {secret.text[:size]}"))
            assert f"It is {masked(secret)}".startswith(shown)
            shown += seen(reader.flush(cut=True))
            # Of numbers the first digits are nobody's.
            few = 9 if secret.rule in {"telephone number", "payment card"} else 0
            if size - len(secret.head) > few:
                assert shown == f"It is {masked(secret)}"


@pytest.mark.parametrize(
    ("text", "seen_of_it"),
    [
        ("sk-or", "[masked: API key]"),
        ("sk-or-v1-a", "[masked: API key]"),
        ("password := aB3", "password := [masked: password]"),
    ],
)
def test_text_that_is_cut_where_head_and_body_begin_alike_shows_nothing(
    text: str, seen_of_it: str
) -> None:
    reader = usual_gate().text()
    assert seen([*reader.feed(text), *reader.flush(cut=True)]) == seen_of_it


@examples(50)
@given(st.text(), st.data())
def test_what_holds_nothing_passes_as_it_is(text: str, data: st.DataObject) -> None:
    reader = usual_gate().text()
    shown = ""
    for chunk in cut(data, text):
        shown += seen(reader.feed(chunk))
        assert reader.held <= LONGEST + 1
    shown += seen(reader.flush())
    assert reader.counts or shown == text


def test_no_more_is_held_back_than_the_longest_match() -> None:
    gate = gate_of_toml('use = []\n[[pattern]]\nname = "x"\npattern = "ab{2,5}c"', "gate")
    reader = gate.text()
    shown = [seen(reader.feed(each)) for each in " abbbbbbz abbc."]
    assert shown == [" ", *[""] * 6, "abbbbbb", "z", " ", *[""] * 4, "[masked: x]."]


def test_words_are_held_back_only_while_they_may_be_an_address() -> None:
    reader = usual_gate().text()
    assert seen(reader.feed("so john")) == "so "
    assert seen(reader.feed(".doe")) == ""
    assert seen(reader.feed(" went")) == "john.doe "


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
    ],
)  # fmt: skip
def test_rules_mask(rules: list[GateRule | tuple[str, str]], text: str, masked: str) -> None:
    given = [GateRule(each[0], "own", each[1]) if isinstance(each, tuple) else each for each in rules]  # fmt: skip
    assert rule_gate(*given).cleaned(text) == masked


def test_stop_ends_the_text_and_note_lets_it_through() -> None:
    gate = rule_gate(GateRule("a", "own", "aa"), GateRule("b", "own", "bb"), a="note", b="stop")
    reader = gate.text()
    assert seen(reader.feed("1 aa 2 bb 3 aa")) == "1 aa 2 [masked: b]"
    assert reader.stopped
    assert seen([*reader.feed(" 4"), *reader.flush()]) == ""
    assert reader.counts == {("a", "note"): 1, ("b", "stop"): 1}
    assert gate.cleaned("1 bb 2") == "1 [masked: b] 2"


def test_what_ask_rules_find_is_masked_and_kept_in_memory() -> None:
    reader = rule_gate(GateRule("a", "own", "a[0-9]"), a="ask").text()
    assert seen([*reader.feed("a1 a2"), *reader.flush()]) == "[masked: a] [masked: a]"
    assert reader.findings == [Finding("a", "a1"), Finding("a", "a2")]


WORDS = st.text("abTKAx_.(:,= \n0139-'", max_size=40)


@examples(200)
@given(st.lists(WORDS | st.sampled_from(["AKIA", "my_token", "(044", "key:", "so"]), max_size=8))
def test_plain_words_pass_as_they_would_if_all_rules_were_tried(chunks: list[str]) -> None:
    quick, slow = usual_gate().text(), usual_gate().text()
    slow._words = lambda: None  # type: ignore[method-assign]
    for chunk in chunks:
        assert seen(quick.feed(chunk)) == seen(slow.feed(chunk))
    assert seen(quick.flush()) == seen(slow.flush())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@examples(15)
@given(st.data())
def test_no_match_of_a_rule_is_plain_words(rule: GateRule, data: st.DataObject) -> None:
    head = re.sub(r"\(\?=\[[^]]*\]\)", "", rule.head)  # which are there to be quick
    text = data.draw(st.from_regex(_scoped(head) + _scoped(rule.body), fullmatch=True))
    assert not PLAIN.fullmatch(f" {text} ")
