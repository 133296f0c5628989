"""Rules that are made of others: either of two, and one that begins where the text of an answer has spelled a trigger."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.constraint import Automaton


class Either:
    """Allows what one of some rules does, for as long as an answer follows it; see `Automaton`.

    A state has one of each rule, None of one that the answer has left.
    """

    def __init__(self, *rules: Automaton[Any]) -> None:
        self._rules = rules

    def start(self) -> tuple[Any, ...]:
        """Return the state before the first token."""
        return tuple(each.start() for each in self._rules)

    def step(self, state: tuple[Any, ...], token: int) -> tuple[Any, ...]:
        """Return the state after a token that `allows` lets follow."""
        one = np.array([token], dtype=np.int64)
        return tuple(
            None if each is None or not rule.allows(each, one)[0] else rule.step(each, token)
            for rule, each in zip(self._rules, state, strict=True)
        )

    def allows(self, state: tuple[Any, ...], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each of `ids`, shape (n,), whether it may follow."""
        allowed = np.zeros(ids.size, dtype=np.bool_)
        for rule, each in self._left(state):
            allowed |= rule.allows(each, ids)
        return allowed

    def forced(self, state: tuple[Any, ...]) -> tuple[int, ...]:
        """Return what is forced, once the answer follows one rule alone."""
        left = self._left(state)
        return left[0][0].forced(left[0][1]) if len(left) == 1 else ()

    def _left(self, state: tuple[Any, ...]) -> list[tuple[Automaton[Any], Any]]:
        return [each for each in zip(self._rules, state, strict=True) if each[1] is not None]


class Trigger:
    """A text, and which tokens spell it; made once for all answers.

    Args:
        text: not empty.
        pieces: bytes of each token, by id.
        control: bytes of those control tokens that the text may be made of, by id.
    """

    def __init__(self, text: str, pieces: Sequence[bytes], control: Mapping[int, bytes]) -> None:
        self.text = text.encode()
        self.pieces = list(pieces)
        for token, piece in control.items():
            self.pieces[token] = piece
        self._past: dict[tuple[int, bool], NDArray[np.int64]] = {}

    def running_past(self, begun: int, *, or_to: bool) -> NDArray[np.int64]:
        """Return the tokens that run past its end, of which so many bytes are there already; `or_to`: or end with it."""
        if (begun, or_to) not in self._past:
            rest = self.text[begun:]
            size = len(rest) - or_to  # what may be spelled of it
            ids = [
                token
                for token, piece in enumerate(self.pieces)
                if 0 <= piece.find(rest) < len(piece) - size
                and (not begun or piece.startswith(rest))
            ]
            self._past[begun, or_to] = np.array(ids, dtype=np.int64)
        return self._past[begun, or_to]


State = tuple[Any, bytes]
"""State of the rule, None before the trigger; and the end of the text before it, in which it may have begun."""


class AfterTrigger:
    """Leaves an answer free up to a trigger; see `Automaton`. That ends with a token: one that would run past it may not follow, for the rule would not see it.

    Args:
        rule: binds what follows the trigger; None lets it never be complete.
        trigger: begins the rule.
    """

    def __init__(self, rule: Automaton[Any] | None, trigger: Trigger) -> None:
        self._rule = rule
        self._trigger = trigger

    def start(self) -> State:
        """Return the state before the first token."""
        return None, b""

    def step(self, state: State, token: int) -> State:
        """Return the state after a token that `allows` lets follow."""
        bound, tail = state
        if self._rule is not None and bound is not None:
            return self._rule.step(bound, token), b""
        text, trigger = tail + self._trigger.pieces[token], self._trigger.text
        if self._rule is not None and text.endswith(trigger):
            return self._rule.start(), b""
        begun = range(min(len(trigger) - 1, len(text)), 0, -1)
        size = next((size for size in begun if trigger.startswith(text[-size:])), 0)
        return None, text[len(text) - size :]

    def allows(self, state: State, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each of `ids`, shape (n,), whether it may follow."""
        bound, tail = state
        if self._rule is not None and bound is not None:
            return self._rule.allows(bound, ids)
        past, never = self._trigger.running_past, self._rule is None
        allowed = ~np.isin(ids, past(0, or_to=never))
        for size in range(1, len(tail) + 1):
            if self._trigger.text.startswith(tail[-size:]):
                allowed &= ~np.isin(ids, past(size, or_to=never))
        return allowed

    def forced(self, state: State) -> tuple[int, ...]:
        """Return what the rule forces."""
        return () if self._rule is None or state[0] is None else self._rule.forced(state[0])
