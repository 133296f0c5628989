"""After a budget of thoughts their closing tag is all that may follow, and what stands before and behind is as it would be without."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.chat.answer_constraint import AfterThinking
from localspec.chat.reply_text import split_thinking
from localspec.chat.thinking import ThinkingTags, tag_pieces, thinking_tags
from localspec.chat.thinking_budget import ThinkingBudget
from localspec.chat.tokenizer import spelling, tokenize_rendered
from localspec.decoding.constraint import AnswerConstraint
from tests.chat.test_after_thinking import ALL, CLOSE, EOG, OPEN, TAGS, Digits
from tests.chat.toy_tokenizer import ToyTokenizer, spelled

TOY = ToyTokenizer()
ENDING = ("\n", "\n\n")
MAGISTRAL = ThinkingTags("[THINK]", "[/THINK]")
CHANNELS = thinking_tags(
    "{{ '<|channel|>analysis<|message|>' }}{{ '<|channel|>final<|message|>' }}"
)
TOKENS = st.sampled_from([OPEN, CLOSE, *spelled("<think></think> \n12世a")])


def ids(text: str) -> list[int]:
    return tokenize_rendered(text, TOY, at_start=False)


def budget(
    most: int,
    *tags: ThinkingTags,
    opened: ThinkingTags | None = None,
    begun: str = "",
    ending: tuple[str, str] = ENDING,
    digits: bool = False,
) -> ThinkingBudget:
    known = sorted(tags or (TAGS,), key=lambda each: -len(each.open))
    pieces = tag_pieces(known, TOY)
    after = AfterThinking(Digits(), known, opened, TOY, pieces, {EOG}) if digits else None
    spell, behind = spelling(TOY, pieces), None if after is None else after.behind
    how = ids(begun), spell, ids, lambda _: ending, after, behind
    return ThinkingBudget(most, known, opened, *how)


def written(automaton: ThinkingBudget, wanted: Sequence[int]) -> list[int]:
    """Return what a model writes that wants these tokens, and gets the forced ones in their place."""
    state, reply = automaton.start(), list[int]()
    waiting = list(wanted)
    while waiting or state.closing:
        (may,) = np.nonzero(automaton.allows(state, ALL))
        token = int(ALL[may[0]]) if may.size == 1 else waiting.pop(0)
        if may.size == 1 and waiting:
            waiting.pop(0)
        if not automaton.allows(state, np.array([token]))[0]:
            continue  # it wanted what a rule forbids
        reply.append(token)
        state = automaton.step(state, token)
    return reply


def text_of(reply: Sequence[int]) -> str:
    return b"".join(TOY.piece(each, special=True) for each in reply).decode(errors="replace")


@pytest.mark.parametrize(
    ("most", "wanted", "text"),
    [
        (3, "<think>abcdefgh", "<think>abc\n</think>\n\ngh"),
        (3, "<think>ab</think>cdefg", "<think>ab</think>cdefg"),
        (3, "<think>abc</think>d", "<think>abc\n</think>\n\n"),
        (0, "<think>abcdef", "<think>\n</think>\n\ndef"),
        (9, "<think>abc", "<think>abc"),
        (1, "abc<think>def", "abc<think>def"),
        (1, "\n<think>abcdef", "\n<think>a\n</think>\n\nef"),
        (1, " <table>abc", " <table>abc"),
        (2, "<think>ab\nx", "<think>ab\n</think>\n\n"),
        (2, "<think>a\nbcdef", "<think>a\n</think>\n\ndef"),
    ],
)
def test_thoughts_end_after_so_many_tokens(most: int, wanted: str, text: str) -> None:
    assert text_of(written(budget(most), ids(wanted))) == text


@given(space=st.text("\u3000\xa0\u2003\x1c\x85 \n\u200b世a", max_size=6))
def test_white_space_before_a_tag_is_what_the_filter_takes_for_it(space: str) -> None:
    text = text_of(written(budget(2), spelled(f"{space}<think>abcdef")))
    assert split_thinking(text, (TAGS,))[0] == ("" if space.strip() else "ab\n")


def test_tags_count_however_they_are_spelled_and_characters_are_whole() -> None:
    spelt = spelled("<think>ab</thxxxxxxxxxxxxx")  # a tag that has begun is finished
    assert text_of(written(budget(6), spelt)).startswith("<think>ab</think>\n\n")
    assert text_of(written(budget(2), spelt)).startswith("<think>ab\n</think>\n\n")
    assert text_of(written(budget(2), ids("<think>a世xyz"))) == "<think>a世\n</think>\n\n"
    half = [OPEN, *spelled("世")[:2], *spelled("xyz")]  # which no text has
    assert text_of(written(budget(1), half)).startswith("<think>\ufffdx\n</think>")


@pytest.mark.parametrize(
    ("of", "wanted", "text"),
    [
        (budget(0, opened=TAGS), "abcdef", "\n</think>\n\ndef"),
        (budget(2, opened=TAGS), "abcdef", "ab\n</think>\n\nf"),
        (budget(4, begun="<think>abc"), "defghi", "d\n</think>\n\nhi"),
        (budget(1, begun="<think>abc"), "d", "\n</think>\n\n"),
        (budget(1, begun="abc"), "<think>ab", "<think>ab"),
    ],
)
def test_a_block_counts_from_its_opening(of: ThinkingBudget, wanted: str, text: str) -> None:
    assert text_of(written(of, ids(wanted))) == text


def test_control_tokens_and_channels_end_as_they_are_written() -> None:
    reply = written(budget(1, MAGISTRAL, ending=("", "")), ids("[THINK]abcd"))
    assert text_of(reply) == "[THINK]a[/THINK]cd"
    thoughts = "<|channel|>analysis<|message|>"
    final = ("", "<|channel|>final<|message|>")
    reply = written(budget(2, *CHANNELS, ending=final), ids(thoughts + "a" * 60))
    assert text_of(reply).startswith(f"{thoughts}aa<|end|><|start|>assistant{final[1]}a")
    # Where a call may follow, the model chooses the channel, and more thoughts have nothing left.
    again = ids(f"{thoughts}aa{'x' * 17}{thoughts}{'b' * 40}")
    text = text_of(written(budget(2, *CHANNELS, ending=("", "")), again))
    assert text.startswith(f"{thoughts}aa<|end|><|start|>assistant{thoughts}<|end|>")
    # Those that begin again are the last ones: the answer follows.
    assert final[1] in text
    assert text.count(thoughts) == 2
    words = "<|channel|>commentary<|message|>"
    assert text_of(written(budget(1, *CHANNELS), ids(words + "abcd"))) == words + "abcd"


@pytest.mark.parametrize("opened", [None, TAGS])
@given(wanted=st.lists(TOKENS, max_size=40), most=st.integers(0, 8), digits=st.booleans())
def test_what_is_forced_is_certain_and_no_thought_is_longer(
    wanted: list[int], most: int, digits: bool, opened: ThinkingTags | None
) -> None:
    automaton = budget(most, opened=opened, digits=digits)
    reply = written(automaton, wanted)
    bound: AnswerConstraint[Any] = AnswerConstraint(automaton, 0)
    for at in range(len(reply)):
        assert bound.allows(reply[:at], np.array(reply[at : at + 1]))[0]
        forced = bound.forced(reply[:at])
        for size, token in enumerate(forced):
            before = [*reply[:at], *forced[:size]]
            assert np.flatnonzero(bound.allows(before, ALL)).size == 1
            assert bound.allows(before, np.array([token]))[0]
    thinking, _ = split_thinking(text_of(reply), (TAGS,), opened)
    # A token is a character or a part of one, which is finished, or the opening tag again.
    assert len(thinking.replace("<think>", "o").rstrip("\n")) <= most + 3
    free = budget(1 << 30, opened=opened, digits=digits)
    same = min(len(reply), most)
    assert written(free, wanted)[:same] == reply[:same]


def test_a_rule_begins_right_behind_what_was_forced() -> None:
    automaton = budget(2, digits=True)
    bound: AnswerConstraint[Any] = AnswerConstraint(automaton, 0)
    thoughts = [OPEN, *spelled("hm"), *ids("\n</think>\n\n")]
    assert bound.forced([OPEN, *spelled("hm")]) == tuple(ids("\n</think>\n\n"))
    assert set(ALL[bound.allows(thoughts, ALL)].tolist()) == set(spelled("0123456789"))
    assert not bound.allows([OPEN, EOG], ALL).any(), "no thought ends a reply under a rule"
