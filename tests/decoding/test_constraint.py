"""An automaton asked by prefix answers by the prefix alone, whatever it was asked before."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.decoding import constraint as constraint_module
from localspec.decoding.constraint import AnswerConstraint
from tests.examples import examples
from tests.support.planting import Bug, plant
from tests.toy import Brackets

N_VOCAB = 8
IDS = np.arange(N_VOCAB)


def afresh(automaton: Brackets, answer: list[int]) -> list[bool]:
    state = automaton.start()
    for token in answer:
        if not automaton.allows(state, np.array([token]))[0]:
            return [False] * N_VOCAB
        state = automaton.step(state, token)
    return list(automaton.allows(state, IDS))


def check(seed: int, begin: int) -> None:
    """Ask about a text that grows, is taken back, departs, and starts again."""
    random = Random(seed)
    automaton = Brackets(eog=(N_VOCAB - 1,), deepest=4)
    constraint = AnswerConstraint(automaton, begin)
    prompt, answer = [9] * begin, list[int]()
    for _ in range(40):
        move = random.random()
        if move < 0.3:
            del answer[random.randrange(len(answer) + 1) :]
        elif move < 0.4:
            answer = []
        allowed = [token for token, may in enumerate(afresh(automaton, answer)) if may]
        if allowed and move > 0.2:
            answer.append(random.choice(allowed if random.random() < 0.9 else range(N_VOCAB)))
        assert list(constraint.allows([*prompt, *answer], IDS)) == afresh(automaton, answer)


def check_many() -> None:
    for seed in range(100):
        check(seed, 2)


@given(st.integers(0, 1 << 30), st.integers(0, 5))
@examples(200)
def test_the_prefix_alone_decides(seed: int, begin: int) -> None:
    check(seed, begin)


@pytest.mark.parametrize("kept", [1, 2, 5])
def test_it_decides_also_where_few_states_are_kept(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constraint_module, "_MOST_STATES", kept)
    check_many()


@pytest.mark.parametrize(
    "bug",
    [
        Bug("a rejected draft's state stays", AnswerConstraint._follow, "delete", "pass", 1),
        Bug(
            "by length",
            AnswerConstraint._follow,
            "compare",
            "_ and len(self._tokens) != len(answer)",
        ),
    ],
    ids=lambda bug: bug.name,
)
def test_a_prefix_that_is_not_forgotten_is_caught(
    bug: Bug, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, bug)
    with pytest.raises(AssertionError):
        check_many()


def test_what_is_forced_is_asked_of_the_state_behind_the_prefix() -> None:
    class Forcing(Brackets):
        def forced(self, state: tuple[int, bool]) -> tuple[int, ...]:
            return (1,) * state[0]

    constraint = AnswerConstraint(Forcing(eog=(7,), deepest=4), 2)
    for prefix, forced in (([], ()), ([0, 0, 1, 0], (1, 1)), ([0], (1,)), ([0, 7], ())):
        assert constraint.forced([9, 9, *prefix]) == forced


def test_states_are_made_once_along_a_growing_text() -> None:
    automaton = Brackets(eog=(7,), deepest=90)
    constraint = AnswerConstraint(automaton, 0)
    text: list[int] = []
    for _ in range(30):
        constraint.allows(text, IDS)
        text.append(0)
    for end in (29, 28, 29, 30):
        constraint.allows(text[:end], IDS)
    assert automaton.steps == [29 + 2]
