"""Constraint: which token ids may follow a prefix; and how a grammar, which has states, becomes one."""

from collections.abc import Collection, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

S = TypeVar("S")
_MOST_STATES = 96
"""States that are kept: more than any draft is long."""


class Constraint(Protocol):
    """A rule over token sequences, asked before any other sampling transform.

    It is asked for prefixes that a draft only proposes, too, and must answer by the prefix
    alone: state that a rejected draft could leave behind would change the text.
    """

    def allows(self, prefix: Sequence[int], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each of `ids`, shape (n,), whether it may follow `prefix`.

        At least one id of the whole vocabulary ought to be allowed after every prefix that was
        itself allowed; where none is, the pass fails.
        """

    def forced(self, prefix: Sequence[int]) -> tuple[int, ...]:
        """Return tokens that are certain to follow `prefix`: each is the only id that `allows` lets follow those before it.

        Not all of them: fewer, or none, where finding out would take long.
        """


class MinLength:
    """Rules out the tokens that end a generation before it is long enough, unless nothing else may follow.

    Args:
        eog: ids that end a generation.
        until: tokens, those of the prompt included, before which none of them may follow.
        rule: what else binds the text; None leaves it free.
        n_vocab: number of ids.
    """

    def __init__(
        self, eog: Collection[int], until: float, rule: Constraint | None, n_vocab: int
    ) -> None:
        self._eog = np.array(sorted(eog), dtype=np.int64)
        self._until = until
        self._rule = rule
        self._others = np.setdiff1d(np.arange(n_vocab), self._eog)

    def allows(self, prefix: Sequence[int], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each of `ids` whether it may follow; see `Constraint`."""
        rule = self._rule
        allowed = np.ones(ids.size, dtype=np.bool_) if rule is None else rule.allows(prefix, ids)
        ends = allowed & np.isin(ids, self._eog)
        if len(prefix) >= self._until or not ends.any():
            return allowed
        if rule is not None and not rule.allows(prefix, self._others).any():
            return allowed
        return allowed & ~ends

    def forced(self, prefix: Sequence[int]) -> tuple[int, ...]:
        """Return what the rule forces, which an end is only where nothing else may follow; see `Constraint`."""
        return () if self._rule is None else self._rule.forced(prefix)


class Automaton(Protocol[S]):
    """A rule over the tokens of one answer, as states. A state is never changed, only followed."""

    def start(self) -> S:
        """Return the state before the first token."""

    def step(self, state: S, token: int) -> S:
        """Return the state after a token that `allows` lets follow `state`."""

    def allows(self, state: S, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each of `ids`, shape (n,), whether it may follow."""

    def forced(self, state: S) -> tuple[int, ...]:
        """Return tokens of which each is the only one that may follow those before it, as far as that is easily found out."""


class AnswerConstraint(Generic[S]):
    """An automaton that begins where the prompt ends, asked by prefix.

    Keeps the last states along the prefix it was asked about last; where another prefix departs
    from that one, what lies behind is forgotten. So a rejected draft leaves no trace.

    Args:
        automaton: the rule.
        begin: tokens of the prompt; it does not bind them.
    """

    def __init__(self, automaton: Automaton[S], begin: int) -> None:
        self._automaton = automaton
        self._begin = begin
        self._tokens: list[int] = []
        self._states = [automaton.start()]  # the last of these is the one after all of the tokens

    def allows(self, prefix: Sequence[int], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each of `ids` whether it may follow; see `Constraint`."""
        if self._follow(prefix[self._begin :]):
            return self._automaton.allows(self._states[-1], ids)
        return np.zeros(ids.size, dtype=np.bool_)

    def forced(self, prefix: Sequence[int]) -> tuple[int, ...]:
        """Return tokens that are certain to follow; see `Constraint`."""
        follows = self._follow(prefix[self._begin :])
        return self._automaton.forced(self._states[-1]) if follows else ()

    def _follow(self, tokens: Sequence[int]) -> bool:
        """Go to the state after an answer; False where the automaton does not let it through."""
        answer = tokens if isinstance(tokens, list) else list(tokens)
        same = min(len(self._tokens), len(answer))
        known = self._tokens if same == len(self._tokens) else self._tokens[:same]
        if known != answer[:same]:
            same = next(at for at in range(same) if known[at] != answer[at])
        forgotten = len(self._tokens) - same
        if forgotten >= len(self._states):
            self._tokens, self._states = [], [self._automaton.start()]
        elif forgotten:
            del self._tokens[same:]
            del self._states[-forgotten:]
        for token in answer[len(self._tokens) :]:
            state = self._states[-1]
            if not self._automaton.allows(state, np.array([token], dtype=np.int64))[0]:
                return False
            self._tokens.append(token)
            self._states.append(self._automaton.step(state, token))
            del self._states[:-_MOST_STATES]
        return True
