"""AfterTrigger: a rule that begins where the text of an answer has spelled a trigger, and leaves what comes before it free."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.constraint import Automaton

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class TriggerState(Generic[S]):
    """Where an answer is.

    Args:
        bound: state of the rule; None before the trigger.
        tail: end of the text before it, in which it may have begun.
    """

    bound: S | None = None
    tail: bytes = b""


class AfterTrigger(Generic[S]):
    """See `Automaton`. The trigger ends with a token: one that would run past it may not follow, for the rule would not see it.

    Args:
        rule: binds what follows the trigger.
        trigger: a text, not empty.
        pieces: bytes of each token, by id.
        control: bytes of those control tokens that the trigger may be made of, by id.
    """

    def __init__(
        self,
        rule: Automaton[S],
        trigger: str,
        pieces: Sequence[bytes],
        control: Mapping[int, bytes],
    ) -> None:
        self._rule = rule
        self._trigger = trigger.encode()
        self._pieces = pieces
        self._control = control
        self._running_past: dict[int, NDArray[np.int64]] = {}

    def start(self) -> TriggerState[S]:
        """Return the state before the first token."""
        return TriggerState()

    def step(self, state: TriggerState[S], token: int) -> TriggerState[S]:
        """Return the state after a token that `allows` lets follow."""
        if state.bound is not None:
            return TriggerState(self._rule.step(state.bound, token))
        text = state.tail + self._control.get(token, self._pieces[token])
        if text.endswith(self._trigger):
            return TriggerState(self._rule.start())
        begun = range(min(len(self._trigger) - 1, len(text)), 0, -1)
        kept = next((size for size in begun if self._trigger.startswith(text[-size:])), 0)
        return TriggerState(tail=text[len(text) - kept :])

    def allows(self, state: TriggerState[S], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each of `ids`, shape (n,), whether it may follow."""
        if state.bound is not None:
            return self._rule.allows(state.bound, ids)
        allowed = ~np.isin(ids, self._past(0))
        for size in range(1, len(state.tail) + 1):
            if self._trigger.startswith(state.tail[-size:]):
                allowed &= ~np.isin(ids, self._past(size))
        return allowed

    def forced(self, state: TriggerState[S]) -> tuple[int, ...]:
        """Return what the rule forces."""
        return () if state.bound is None else self._rule.forced(state.bound)

    def _past(self, begun: int) -> NDArray[np.int64]:
        """Return the tokens that run past the trigger's end, of which so many bytes are there already."""
        found = self._running_past.get(begun)
        if found is None:
            rest = self._trigger[begun:]
            found = np.array(
                [
                    token
                    for token, piece in enumerate(self._pieces)
                    if (piece.startswith(rest) and piece != rest if begun else rest in piece[:-1])
                ],
                dtype=np.int64,
            )
            self._running_past[begun] = found
        return found
