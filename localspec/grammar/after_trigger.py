"""AfterTrigger: a rule that begins where the text of an answer has spelled a trigger, and leaves what comes before it free.

Without a rule the trigger cannot be spelled, and all else is free.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.constraint import Automaton

S = TypeVar("S")


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
        self._found: dict[tuple[int, bool], NDArray[np.int64]] = {}

    def running_past(self, begun: int, *, or_to: bool) -> NDArray[np.int64]:
        """Return the tokens that run past its end, of which so many bytes are there already; `or_to`: or end with it."""
        if (begun, or_to) not in self._found:
            rest = self.text[begun:]
            kept = len(rest) - or_to  # what may be spelled of it
            found = (
                token
                for token, piece in enumerate(self.pieces)
                if (
                    piece.startswith(rest) and len(piece) > kept
                    if begun
                    else 0 <= piece.find(rest) < len(piece) - kept
                )
            )
            self._found[begun, or_to] = np.fromiter(found, dtype=np.int64)
        return self._found[begun, or_to]


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
        rule: binds what follows the trigger; None lets it never be complete.
        trigger: begins the rule.
    """

    def __init__(self, rule: Automaton[S] | None, trigger: Trigger) -> None:
        self._rule = rule
        self._trigger = trigger

    def start(self) -> TriggerState[S]:
        """Return the state before the first token."""
        return TriggerState()

    def step(self, state: TriggerState[S], token: int) -> TriggerState[S]:
        """Return the state after a token that `allows` lets follow."""
        if self._rule is not None and state.bound is not None:
            return TriggerState(self._rule.step(state.bound, token))
        text, trigger = state.tail + self._trigger.pieces[token], self._trigger.text
        if self._rule is not None and text.endswith(trigger):
            return TriggerState(self._rule.start())
        begun = range(min(len(trigger) - 1, len(text)), 0, -1)
        kept = next((size for size in begun if trigger.startswith(text[-size:])), 0)
        return TriggerState(tail=text[len(text) - kept :])

    def allows(self, state: TriggerState[S], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each of `ids`, shape (n,), whether it may follow."""
        if self._rule is not None and state.bound is not None:
            return self._rule.allows(state.bound, ids)
        never = self._rule is None
        allowed = ~np.isin(ids, self._trigger.running_past(0, or_to=never))
        for size in range(1, len(state.tail) + 1):
            if self._trigger.text.startswith(state.tail[-size:]):
                allowed &= ~np.isin(ids, self._trigger.running_past(size, or_to=never))
        return allowed

    def forced(self, state: TriggerState[S]) -> tuple[int, ...]:
        """Return what the rule forces."""
        if self._rule is None or state.bound is None:
            return ()
        return self._rule.forced(state.bound)
