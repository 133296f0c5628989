"""GrammarAutomaton: what texts a grammar allows, token by token; see `Automaton` in `decoding`."""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from localspec.grammar.matcher import require_sane

if TYPE_CHECKING:
    from llguidance import LLMatcher

_MASKS = 96
"""Masks that are kept: more than any draft is long."""


@dataclass(slots=True, eq=False)
class GrammarState:
    """Where an answer is in its grammar: behind a token, which follows another state. Never changed.

    Args:
        cursor: reads its text.
        before: the state that the token follows; None at the beginning.
        token: its id.
        ended: whether an EOG was among the tokens.
    """

    cursor: "_Cursor"
    before: "GrammarState | None" = None
    token: int = -1
    ended: bool = False
    mask: NDArray[np.bool_] | None = None  # the cursor's: kept for a while
    length: int = field(init=False)

    def __post_init__(self) -> None:
        self.length = 0 if self.before is None else self.before.length + 1


class GrammarAutomaton:
    """What texts a grammar allows.

    EOG may follow exactly where the grammar may end; control tokens never may. Where the grammar forces a text, only
    the tokens may follow that the model's own tokenizer makes of it.

    Args:
        matcher: at the beginning of the texts; is copied.
        eog: ids that end a generation.
        n_vocab: number of ids.
    """

    def __init__(self, matcher: "LLMatcher", eog: Collection[int], n_vocab: int) -> None:
        self._matcher = matcher
        self._eog = frozenset(eog)
        self._n_vocab = n_vocab

    def start(self) -> GrammarState:
        """Return the state before the first token."""
        return GrammarState(_Cursor(self._matcher.deep_copy(), self._n_vocab))

    def step(self, state: GrammarState, token: int) -> GrammarState:
        """Return the state after a token that `allows` lets follow."""
        ended = state.ended or token in self._eog
        return GrammarState(state.cursor, state, token, ended=ended)

    def allows(self, state: GrammarState, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each of `ids`, shape (n,), whether it may follow.

        Raises:
            PassFailed: the grammar is too complex to tell.
        """
        if state.ended:
            return np.ones(ids.size, dtype=np.bool_)  # whatever follows an end is cut
        mask: NDArray[np.bool_] = state.cursor.mask(state)[ids]
        return mask

    def takes(self, state: GrammarState, token: int) -> bool:
        """Return whether the text of a token may follow, also where the model's own tokenizer would spell that otherwise."""
        return not state.ended and state.cursor.takes(state, token)

    def forced(self, state: GrammarState) -> tuple[int, ...]:
        """Return the tokens of which each is the only one that may follow those before it."""
        return () if state.ended else state.cursor.forced(state)


class _Cursor:
    """One matcher that goes along the tokens of an answer, and back where a draft was rejected.

    Args:
        matcher: at the beginning.
        n_vocab: number of ids.
    """

    def __init__(self, matcher: "LLMatcher", n_vocab: int) -> None:
        self._matcher = matcher
        self._n_vocab = n_vocab
        self._at: GrammarState | None = None
        self._masked: deque[GrammarState] = deque()

    def mask(self, state: GrammarState) -> NDArray[np.bool_]:
        """Return for each id whether it may follow, shape (n_vocab,)."""
        if state.mask is None:
            self._go_to(state)
            state.mask = self._mask()
            self._masked.append(state)
            if len(self._masked) > _MASKS:
                self._masked.popleft().mask = None
        return state.mask

    def takes(self, state: GrammarState, token: int) -> bool:
        self._go_to(state)
        taken = self._matcher.validate_tokens([token])
        require_sane(self._matcher)
        return bool(taken)

    def forced(self, state: GrammarState) -> tuple[int, ...]:
        self._go_to(state)
        tokens = self._matcher.compute_ff_tokens()
        require_sane(self._matcher)
        forced: list[int] = []
        for token in tokens:
            if np.flatnonzero(self._mask()).tolist() != [token]:
                break
            forced.append(token)
            self._matcher.consume_token(token)
            require_sane(self._matcher)
        self._matcher.rollback(len(forced))
        require_sane(self._matcher)
        return tuple(forced)

    def _mask(self) -> NDArray[np.bool_]:
        packed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        require_sane(self._matcher)
        bits = np.unpackbits(packed, count=self._n_vocab, bitorder="little")
        return bits.astype(np.bool_)

    def _go_to(self, state: GrammarState) -> None:
        """Let the matcher stand behind the tokens of a state."""
        here, ahead = self._at, state
        tokens: list[int] = []
        back = 0
        while here is not ahead:
            # Whichever is longer goes back; where both are as long, the texts differ.
            if here is None or ahead.length >= here.length:
                if ahead.before is None:
                    break
                tokens.append(ahead.token)
                ahead = ahead.before
            else:
                back += 1
                here = here.before
        self._matcher.rollback(back)
        require_sane(self._matcher)
        self._matcher.consume_tokens(tokens[::-1])
        require_sane(self._matcher)
        self._at = state
