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
OPEN, CLOSE, BREAK = (
    len(CONTROL) + USER_DEFINED.index(text) for text in ("<think>", "</think>", "\n\n")
)
ALL = np.array([*range(FIRST_WORD + len(WORDS)), *range(FIRST_BYTE, FIRST_BYTE + 256)])
FREE = set(ALL.tolist()) - {EOG}
DIGITS = set(spelled("0123456789"))
BLANKS = {BREAK, *spelled(" \t\n\r\x0b\x0c")}


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


def constraint(
    *tags: ThinkingTags,
    opened: ThinkingTags | None = None,
    rule: Digits | None = None,
    control: dict[int, bytes] | None = None,
) -> AnswerConstraint[Any]:
    automaton = AfterThinking(
        rule or Digits(), tags or [TAGS], opened, ToyTokenizer(), control or {}, {EOG}
    )
    return AnswerConstraint(automaton, 0)


def allowed(answer: str | list[int], of: AnswerConstraint[Any] | None = None) -> set[int]:
    ids = spelled(answer) if isinstance(answer, str) else answer
    return set(ALL[(of or constraint()).allows(ids, ALL)].tolist())


def test_thoughts_are_free_and_the_answer_behind_them_is_bound() -> None:
    assert allowed([]) == DIGITS | {OPEN}
    assert allowed("4") == DIGITS | {EOG}, "an answer that has begun thinks no more"
    for thoughts in ([OPEN], [OPEN, *spelled("9 or {")], [OPEN, BREAK, OPEN]):
        assert allowed(thoughts) == FREE
    opened = constraint(opened=TAGS)
    assert allowed([], opened) == FREE
    assert allowed([*spelled("hm"), CLOSE, BREAK], opened) == DIGITS
    for thoughts in ([OPEN, *spelled("hm"), CLOSE], [OPEN, *spelled("hm</think>")]):
        assert allowed(thoughts) == DIGITS | BLANKS
        assert allowed([*thoughts, BREAK]) == DIGITS
        assert allowed([*thoughts, BREAK, *spelled("12")]) == DIGITS | {EOG}
        assert allowed([*thoughts, *spelled("12")]) == DIGITS | {EOG}


def test_tags_of_several_tokens_and_tokens_of_several_parts() -> None:
    # The rule would not see the beginning.
    tags = ThinkingTags("<think>", "hel")  # of the word hello, which is one token
    bound = constraint(tags, opened=tags)
    assert not bound.allows(spelled("x"), np.array([FIRST_WORD]))[0]
    assert bound.allows(spelled("xhel"), np.array(spelled("3")))[0]
    bound = constraint(ThinkingTags("12x", "y"))  # begins as an answer does
    assert allowed("", bound) == DIGITS
    assert allowed("12", bound) == DIGITS | {EOG, *spelled("x")}
    assert allowed("13", bound) == DIGITS | {EOG}
    assert allowed("12x", bound) == FREE
    assert allowed("12xhmy", bound) > DIGITS


def test_where_several_blocks_may_come_another_or_what_begins_an_answer_follows_one() -> None:
    control = {CONTROL.index("[THINK]"): b"[THINK]"}
    bound = constraint(
        ThinkingTags("<think>", "</think>", more=True),
        ThinkingTags("hello", "", words=True),
        ThinkingTags("hello[THINK]", "", words=True),
        control=control,
    )
    thought = [OPEN, *spelled("hm"), CLOSE]
    for thoughts in (thought, thought * 2):
        assert allowed(thoughts, bound) == DIGITS | BLANKS | {OPEN, FIRST_WORD}
    assert allowed([*thought, FIRST_WORD], bound) == DIGITS | BLANKS | {*control}
    assert allowed([*thought, FIRST_WORD, *control], bound) == DIGITS | BLANKS
    assert allowed([FIRST_WORD, *spelled("1")], bound) == DIGITS | {EOG}


def test_what_is_forced_is_certain_only_once_nothing_but_the_answer_can_follow() -> None:
    bound, thoughts = constraint(rule=Seven()), [OPEN, *spelled("hm"), CLOSE]
    assert bound.forced([]) == (), "a thought may come"
    assert bound.forced([OPEN]) == ()
    assert bound.forced(thoughts) == (), "white space may come"
    assert bound.forced([*thoughts, BREAK]) == (*spelled("7"), EOG)
    assert bound.forced(spelled("7")) == (EOG,)
    for prefix in ([*thoughts, BREAK], spelled("7")):
        forced = bound.forced(prefix)
        for at, token in enumerate(forced):
            assert allowed([*prefix, *forced[:at]], bound) == {token}
