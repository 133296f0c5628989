"""Either: what one of two rules allows, for as long as an answer follows either."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.constraint import Automaton

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class EitherState(Generic[A, B]):
    """States of both rules; None of one that the answer has left."""

    one: A | None
    other: B | None


class Either(Generic[A, B]):
    """See `Automaton`."""

    def __init__(self, one: Automaton[A], other: Automaton[B]) -> None:
        self._one = one
        self._other = other

    def start(self) -> EitherState[A, B]:
        """Return the state before the first token."""
        return EitherState(self._one.start(), self._other.start())

    def step(self, state: EitherState[A, B], token: int) -> EitherState[A, B]:
        """Return the state after a token that `allows` lets follow."""
        return EitherState(
            _followed(self._one, state.one, token), _followed(self._other, state.other, token)
        )

    def allows(self, state: EitherState[A, B], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each of `ids`, shape (n,), whether it may follow."""
        allowed = np.zeros(ids.size, dtype=np.bool_)
        if state.one is not None:
            allowed |= self._one.allows(state.one, ids)
        if state.other is not None:
            allowed |= self._other.allows(state.other, ids)
        return allowed

    def forced(self, state: EitherState[A, B]) -> tuple[int, ...]:
        """Return what is forced, once the answer follows one rule alone."""
        if state.other is None and state.one is not None:
            return self._one.forced(state.one)
        if state.one is None and state.other is not None:
            return self._other.forced(state.other)
        return ()


def _followed(rule: Automaton[A], state: A | None, token: int) -> A | None:
    if state is None or not rule.allows(state, np.array([token], dtype=np.int64))[0]:
        return None
    return rule.step(state, token)
