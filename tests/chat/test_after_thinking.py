"""Thoughts are free, and the answer after them is bound from its first character."""

from typing import Any

import numpy as np

from localspec.chat.answer_constraint import AfterThinking
from localspec.chat.thinking import ThinkingTags
from localspec.decoding.constraint import AnswerConstraint
from tests.chat.toy_tokenizer import (
    CONTROL,
    FIRST_BYTE,
    FIRST_WORD,
    USER_DEFINED,
    WORDS,
    ToyTokenizer,
    spelled,
)

EOG = 3
TAGS = ThinkingTags("<think>", "</think>")
OPEN = len(CONTROL) + USER_DEFINED.index("<think>")
CLOSE = len(CONTROL) + USER_DEFINED.index("</think>")
BREAK = len(CONTROL) + USER_DEFINED.index("\n\n")
ALL = np.array([*range(FIRST_WORD + len(WORDS)), *range(FIRST_BYTE, FIRST_BYTE + 256)])


class Digits:
    """An automaton: one or more digits, then an EOG."""

    def start(self) -> int:
        return 0

    def step(self, state: int, token: int) -> int:
        return state + 1

    def allows(self, state: int, ids: Any) -> Any:
        digits = (ids >= FIRST_BYTE + ord("0")) & (ids <= FIRST_BYTE + ord("9"))
        return digits | ((ids == EOG) & (state > 0))

    def forced(self, state: int) -> tuple[int, ...]:
        return ()


class Seven(Digits):
    """A seven, then an EOG."""

    def allows(self, state: int, ids: Any) -> Any:
        return np.isin(ids, [EOG if state else spelled("7")[0]])

    def forced(self, state: int) -> tuple[int, ...]:
        return (EOG,) if state else (*spelled("7"), EOG)


def rule(opened: ThinkingTags | None = None, tags: ThinkingTags = TAGS) -> AnswerConstraint[Any]:
    return AnswerConstraint(AfterThinking(Digits(), [tags], opened, ToyTokenizer(), {}, {EOG}), 0)


def allowed(answer: list[int], opened: ThinkingTags | None = None) -> set[int]:
    return set(ALL[rule(opened).allows(answer, ALL)].tolist())


DIGITS = set(spelled("0123456789"))


def test_a_reply_begins_with_the_answer_or_with_a_thought() -> None:
    assert allowed([]) == DIGITS | {OPEN}


def test_an_answer_that_has_begun_is_bound_and_thinks_no_more() -> None:
    assert allowed(spelled("4")) == DIGITS | {EOG}


def test_thoughts_are_free_but_for_an_end_in_the_midst_of_them() -> None:
    for thoughts in ([OPEN], [OPEN, *spelled("9 or {")], [OPEN, BREAK, OPEN]):
        assert allowed(thoughts) == set(ALL.tolist()) - {EOG}
    assert allowed([], opened=TAGS) == set(ALL.tolist()) - {EOG}


def test_behind_thoughts_comes_white_space_once_and_then_the_answer() -> None:
    blanks = {BREAK, *spelled(" \t\n\r\x0b\x0c")}
    for thoughts in ([OPEN, *spelled("hm"), CLOSE], [OPEN, *spelled("hm</think>")]):
        assert allowed(thoughts) == DIGITS | blanks
        assert allowed([*thoughts, BREAK]) == DIGITS
        assert allowed([*thoughts, BREAK, *spelled("12")]) == DIGITS | {EOG}
        assert allowed([*thoughts, *spelled("12")]) == DIGITS | {EOG}


def test_thoughts_that_the_prompt_has_opened_close_likewise() -> None:
    assert allowed([*spelled("hm"), CLOSE, BREAK], opened=TAGS) == DIGITS


def test_no_token_closes_the_thoughts_and_begins_the_answer_at_once() -> None:
    """The rule would not see the beginning."""
    tags = ThinkingTags("<think>", "hel")  # of the word hello, which is one token
    constraint = AnswerConstraint(
        AfterThinking(Digits(), [tags], tags, ToyTokenizer(), {}, {EOG}), 0
    )
    assert not constraint.allows(spelled("x"), np.array([FIRST_WORD]))[0]
    assert constraint.allows(spelled("xhel"), np.array(spelled("3")))[0]


def test_a_tag_of_several_tokens_may_turn_out_to_be_one_until_the_last() -> None:
    tags = ThinkingTags("12x", "y")  # begins as an answer does
    constraint = AnswerConstraint(
        AfterThinking(Digits(), [tags], None, ToyTokenizer(), {}, {EOG}), 0
    )

    def may(text: str) -> set[int]:
        return set(ALL[constraint.allows(spelled(text), ALL)].tolist())

    assert may("") == DIGITS
    assert may("12") == DIGITS | {EOG, *spelled("x")}
    assert may("13") == DIGITS | {EOG}
    assert may("12x") == set(ALL.tolist()) - {EOG}
    assert may("12xhmy") > DIGITS


def test_where_several_blocks_may_come_another_or_what_begins_an_answer_follows_one() -> None:
    tags = [
        ThinkingTags("<think>", "</think>", more=True),
        ThinkingTags("hello", "", words=True),
        ThinkingTags("hello[THINK]", "", words=True),
    ]
    control = {CONTROL.index("[THINK]"): b"[THINK]"}
    automaton = AfterThinking(Digits(), tags, None, ToyTokenizer(), control, {EOG})
    constraint = AnswerConstraint(automaton, 0)
    blanks, thought = {BREAK, *spelled(" \t\n\r\x0b\x0c")}, [OPEN, *spelled("hm"), CLOSE]

    def may(answer: list[int]) -> set[int]:
        return set(ALL[constraint.allows(answer, ALL)].tolist())

    assert may(thought) == DIGITS | blanks | {OPEN, FIRST_WORD}
    assert may([*thought, *thought]) == may(thought)
    assert may([*thought, FIRST_WORD]) == DIGITS | blanks | {*control}
    assert may([*thought, FIRST_WORD, *control]) == DIGITS | blanks
    assert may([FIRST_WORD, *spelled("1")]) == DIGITS | {EOG}


def test_what_is_forced_is_certain_only_once_nothing_but_the_answer_can_follow() -> None:
    constraint = AnswerConstraint(
        AfterThinking(Seven(), [TAGS], None, ToyTokenizer(), {}, {EOG}), 0
    )
    thoughts = [OPEN, *spelled("hm"), CLOSE]
    assert constraint.forced([]) == (), "a thought may come"
    assert constraint.forced([OPEN]) == ()
    assert constraint.forced(thoughts) == (), "white space may come"
    assert constraint.forced([*thoughts, BREAK]) == (*spelled("7"), EOG)
    assert constraint.forced(spelled("7")) == (EOG,)
    for prefix in ([*thoughts, BREAK], spelled("7")):
        forced = constraint.forced(prefix)
        for at, token in enumerate(forced):
            assert ALL[constraint.allows([*prefix, *forced[:at]], ALL)].tolist() == [token]
