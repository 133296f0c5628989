"""The automaton of a grammar answers by the prefix alone, lets EOG follow only at an end, and is sure of what it forces."""

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import llguidance
import numpy as np
import pytest

from localspec.decoding.constraint import AnswerConstraint
from localspec.errors import PassFailed, UsageError
from localspec.grammar import Grammars, require_sound
from localspec.grammar import automaton as automaton_module
from localspec.grammar.automaton import GrammarAutomaton, GrammarState, _Cursor
from localspec.options import ReplyOptions
from tests.grammar.answers import END, ByteVocabulary
from tests.support.planting import Bug, plant, table

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "nationality": {"enum": ["french", "finnish"]},
        "tags": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
    },
    "required": ["name", "nationality"],
    "additionalProperties": False,
}
LONGER = ('{"', '":', '": "', '", "', "name", "nation", "nationality", "ality", "fr", "ench", "fin", "nish", "tags", "12", " [", "]}", '"}', "é", "\n  ")  # fmt: skip
VOCABULARY = ByteVocabulary(*LONGER, more_eog=2)
SAID: tuple[dict[str, Any], ...] = (
    {"json_schema": PERSON},
    {"json_schema": {}},
    {"grammar": 'root ::= "a" root "b" | [0-9]+'},
    {"regex": "(name|nation(ality)?)+é?"},
    {"lark": 'start: "[" (INT ("," INT)*)? "]"\nINT: /[0-9]{1,4}/'},
)
GRAMMARS = Grammars(VOCABULARY)
ALL = np.arange(len(VOCABULARY.pieces()))


def after(rule: GrammarAutomaton, ids: list[int]) -> GrammarState:
    state = rule.start()
    for token in ids:
        assert rule.allows(state, np.array([token])).all(), f"{token} is refused"
        state = rule.step(state, token)
    return state


def ids_of(text: str) -> list[int]:
    return VOCABULARY.tokenize(text, add_special=False, parse_special=False)


def fresh(said: dict[str, Any], answer: list[int]) -> list[bool]:
    """Return the mask behind an answer, of a matcher that read nothing else."""
    constraint = AnswerConstraint(Grammars(VOCABULARY)(ReplyOptions(**said)), 0)
    return list(constraint.allows(answer, ALL))


def drafted(said: dict[str, Any], seed: int, steps: int) -> Iterator[tuple[list[int], list[bool]]]:
    """Yield masks along a text that grows, with drafts that are asked about and then taken in part, or not at all."""
    chance = Random(seed)
    constraint = AnswerConstraint(GRAMMARS(ReplyOptions(**said)), 2)
    prompt, answer = [5, 5], list[int]()
    for _ in range(steps):
        draft = list(answer)
        for _ in range(chance.randrange(6)):
            mask = list(constraint.allows([*prompt, *draft], ALL))
            yield list(draft), mask
            allowed = [token for token, may in enumerate(mask) if may]
            wild = chance.random() < 0.1 or not allowed
            draft.append(chance.randrange(ALL.size) if wild else chance.choice(allowed))
        move = chance.random()
        kept = chance.randrange(len(answer), len(draft) + 1)
        answer = [] if move < 0.05 else draft[:kept] if move < 0.9 else answer[: len(answer) // 2]
        if any(token in VOCABULARY.eog for token in answer):
            answer = []
        while answer and not constraint.allows([*prompt, *answer], ALL).any():
            answer.pop()  # no draft is taken that goes beyond the grammar


def check(seed: int) -> None:
    for said in SAID:
        for answer, mask in drafted(said, seed, 12):
            assert mask == fresh(said, answer), (said, answer)


@pytest.mark.first(1)
@pytest.mark.parametrize("seed", range(6))
def test_rejected_drafts_leave_no_trace(seed: int) -> None:
    check(seed)


def test_nor_do_they_where_few_masks_and_states_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton_module, "_MASKS", 2)
    monkeypatch.setattr("localspec.decoding.constraint._MOST_STATES", 2)
    check(7)


def check_far(seed: int) -> None:
    """Ask about places in two texts by turns, without asking on the way there."""
    chance, rule = Random(seed), GRAMMARS(ReplyOptions(json_schema=PERSON))
    texts = ['{"name": "é", "nationality": "french"}', '{"name": "exy", "nationality": "finnish"}']
    states: list[tuple[list[int], GrammarState]] = [([], rule.start())]
    for text in texts:
        answer, state = states[0]
        for token in ids_of(text):
            answer, state = [*answer, token], rule.step(state, token)
            states.append((answer, state))
    for _ in range(20):
        answer, state = chance.choice(states)
        assert list(rule.allows(state, ALL)) == fresh({"json_schema": PERSON}, answer)


def check_all() -> None:
    for seed in range(4):
        check_far(seed)
        check(seed)


def test_places_far_from_each_other_have_their_own_masks() -> None:
    check_far(1)


ELSEWHERE = table(
    """
    _Cursor._go_to
    never goes back | call rollback | self._matcher.rollback(0)
    goes back by one | call rollback | self._matcher.rollback(min(back, 1))
    goes on in the wrong order | call consume_tokens | self._matcher.consume_tokens(tokens)
    forgets where it is | name state 1 | self._at
    """,
    _Cursor._go_to,
)


@pytest.mark.parametrize("bug", ELSEWHERE, ids=lambda bug: bug.name)
def test_a_matcher_that_stands_elsewhere_is_caught(
    bug: Bug, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, bug)
    with pytest.raises((AssertionError, PassFailed)):
        check_all()


def test_eog_may_follow_exactly_where_the_grammar_may_end() -> None:
    rule, eog = GRAMMARS(ReplyOptions(json_schema=PERSON)), sorted(VOCABULARY.eog)
    ids = ids_of('{"name": "é", "nationality": "finnish", "tags": [12]}')
    for end in range(len(ids)):
        assert not rule.allows(after(rule, ids[:end]), np.array(eog)).any()
    state = after(rule, ids)
    assert np.flatnonzero(rule.allows(state, ALL)).tolist() == eog
    ended = rule.step(state, eog[1])
    assert rule.allows(rule.step(ended, 5), ALL).all(), "what follows an end is cut"
    number = GRAMMARS(ReplyOptions(regex="[0-9]+"))
    assert rule.allows(state, np.array(eog)).all()
    assert not number.allows(number.start(), np.array(eog)).any()
    assert number.allows(after(number, ids_of("7")), np.array([*eog, ord("7")])).all()


def test_an_end_that_is_allowed_too_early_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = "_ | np.isin(np.arange(len(_)), [*self._eog])"
    plant(monkeypatch, Bug("an end at any time", GrammarAutomaton.allows, "call mask", wrong))
    with pytest.raises(AssertionError):
        test_eog_may_follow_exactly_where_the_grammar_may_end()


def test_what_is_forced_is_all_that_may_follow_and_no_more_is_said() -> None:
    """Token by token, by masks of a matcher that read nothing else."""
    said: dict[str, Any] = {"json_schema": PERSON}
    constraint = AnswerConstraint(GRAMMARS(ReplyOptions(**said)), 1)
    ids = ids_of('{"name": "x", "nationality": "french"}')
    found = 0
    for end in range(len(ids)):
        answer = list(ids[:end])
        for token in constraint.forced([9, *answer]):
            assert np.flatnonzero(fresh(said, answer)).tolist() == [token]
            answer.append(token)
            found += 1
    assert found > 2
    for end in (2, len(ids), 5, 1, 9, 4):
        constraint.forced([9, *ids[:end]])
        assert list(constraint.allows([9, *ids[: end - 1]], ALL)) == fresh(said, ids[: end - 1])
    assert constraint.forced([9, *ids_of('{"')]) == tuple(ids_of("name"))
    assert constraint.forced([9, *ids_of('{"na')]) == (), "a token that is none of a text's own"
    assert constraint.forced([9, 1, 1, 1]) == (), "nothing follows what is not allowed"


def test_a_forced_token_that_is_not_looked_at_again_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = "(*forced, *tokens[-1:], 1)[:6]"
    plant(monkeypatch, Bug("more than is forced", _Cursor.forced, "return", wrong))
    with pytest.raises(AssertionError):
        test_what_is_forced_is_all_that_may_follow_and_no_more_is_said()


class BlankFirst(ByteVocabulary):
    """Writes a blank before the first word of a text, as some tokenizers do."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        whole = text if text.startswith("\n") else f" {text}"
        return super().tokenize(whole, add_special=add_special, parse_special=parse_special)


def test_forced_text_is_spelled_without_a_blank_that_a_tokenizer_adds() -> None:
    rule = Grammars(BlankFirst("name"))(ReplyOptions(regex="xname"))
    assert rule.forced(rule.step(rule.start(), ord("x"))) == (END + 1,)


def test_tokens_without_text_never_follow() -> None:
    vocabulary = ByteVocabulary("abc", "", "x")
    empty = vocabulary.pieces().index(b"", END + 1)
    anything = Grammars(vocabulary)(ReplyOptions(grammar="root ::= .*"))
    assert not anything.allows(anything.start(), np.array([empty]))[0]


def test_characters_that_several_tokens_spell_are_valid_utf_8() -> None:
    for said in ({"grammar": 'root ::= "x" .*'}, {"regex": "x[^a]*"}):
        rule = GRAMMARS(ReplyOptions(**said))  # type: ignore[arg-type]
        for begun, following, may in (
            (b"\xe6", 0x9D, True), (b"\xe6\x9d", 0xB1, True), (b"\xe6", ord("a"), False), (b"", 0x9D, False),
            # A longer spelling than need be, half of a pair of surrogates, and beyond Unicode.
            (b"\xe0", 0x80, False), (b"\xed", 0xA0, False), (b"\xf4", 0x90, False),
        ):  # fmt: skip
            state = after(rule, [ord("x"), *begun])
            assert rule.allows(state, np.array([following]))[0] == may
            assert not begun or not rule.allows(state, np.array(sorted(VOCABULARY.eog))).any()


def test_states_do_not_change_when_others_are_made_of_them() -> None:
    rule = GRAMMARS(ReplyOptions(json_schema=PERSON))
    state = after(rule, ids_of('{"name": "é'))
    before = rule.allows(state, ALL)
    for token in Random(3).sample(np.flatnonzero(before).tolist(), 20):
        rule.allows(rule.step(state, token), ALL)
    assert np.array_equal(rule.allows(state, ALL), before)


def test_masks_are_forgotten_but_for_the_last_ones() -> None:
    rule = GRAMMARS(ReplyOptions(regex="a*"))
    state, states = rule.start(), []
    for _ in range(automaton_module._MASKS + 20):
        rule.allows(state, ALL)
        states.append(state)
        state = rule.step(state, ord("a"))
    assert sum(each.mask is not None for each in states) == automaton_module._MASKS
    assert states[0].mask is None
    assert rule.allows(states[0], np.array([ord("a"), ord("b")])).tolist() == [True, False]


def test_a_grammar_that_gives_no_mask_ends_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within bounds that are too narrow for an ordinary one."""
    narrow = partial(llguidance.LLParserLimits, step_max_items=2)
    monkeypatch.setattr(llguidance, "LLParserLimits", lambda **_: narrow())
    said = ReplyOptions(grammar='root ::= "b" ("x" root | "y" root "z" | "w")')
    constraint = AnswerConstraint(Grammars(VOCABULARY)(said), 0)
    with pytest.raises(PassFailed, match="the grammar gives no mask") as caught:
        constraint.allows([ord("b")], ALL)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def test_a_token_in_a_grammar_is_refused_whatever_the_vocabulary_has() -> None:
    for lark in ("start: <think>", "start: <[12]>", 'start: "a" <[*]>  // x'):
        with pytest.raises(UsageError, match="is a token, but an answer is text"):
            require_sound(ReplyOptions(lark=lark))
    require_sound(ReplyOptions(lark='start: "<think>" /<[a]>/ # <think>'))
