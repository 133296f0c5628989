"""AfterThinking: a rule that binds the answer and leaves the thoughts before it free.

A block of thoughts that the prompt has opened, or that the model opens at once, runs to its closing tag; from there on
the rule holds. A model that does not think answers under the rule from its first token.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from localspec.chat.thinking import ThinkingTags
from localspec.chat.tokenizer import Tokenizer
from localspec.decoding.constraint import Automaton

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Opening:
    """A tag that may still be meant: ids that it needs yet, and what it opens."""

    ids: tuple[int, ...]
    tags: ThinkingTags


@dataclass(frozen=True, slots=True)
class ThinkingState(Generic[S]):
    """Where a reply is.

    Args:
        answer: state of the rule; None where no answer can have begun.
        openings: tags that the reply may be spelling.
        thoughts: the tags that they stand between; None outside of them.
        tail: end of the thoughts, in which the closing tag may have begun.
        blank: whether white space may still come between thoughts and answer.
    """

    answer: S | None
    openings: tuple[Opening, ...] = ()
    thoughts: ThinkingTags | None = None
    tail: bytes = b""
    blank: bool = False


class AfterThinking(Generic[S]):
    """See `Automaton`.

    Args:
        rule: binds the answer.
        tags: what the template knows as thoughts.
        opened: the block that the prompt has opened, if any.
        tokenizer: spells the tags.
        pieces: bytes of control tokens that tags are made of, by id.
        eog: ids that end a generation: no thought may.
    """

    def __init__(
        self,
        rule: Automaton[S],
        tags: Sequence[ThinkingTags],
        opened: ThinkingTags | None,
        tokenizer: Tokenizer,
        pieces: Mapping[int, bytes],
        eog: Collection[int],
    ) -> None:
        self._rule = rule
        self._tokenizer = tokenizer
        self._pieces = pieces
        self._eog = np.array(sorted(eog), dtype=np.int64)
        self._opened = opened
        self._openings = tuple(
            Opening(
                tuple(tokenizer.tokenize(each.open, add_special=False, parse_special=True)), each
            )
            for each in tags
        )

    def start(self) -> ThinkingState[S]:
        """Return the state where the prompt ends."""
        if self._opened is not None:
            return ThinkingState(None, thoughts=self._opened)
        return ThinkingState(self._rule.start(), self._openings)

    def step(self, state: ThinkingState[S], token: int) -> ThinkingState[S]:
        """Return the state after a token that `allows` lets follow."""
        if state.thoughts is not None:
            return self._thought(state.thoughts, state.tail + self._piece(token))
        if state.blank and self._piece(token).isspace():
            return ThinkingState(state.answer)
        answer = state.answer
        if answer is not None:
            allowed = self._rule.allows(answer, np.array([token], dtype=np.int64))[0]
            answer = self._rule.step(answer, token) if allowed else None
        met = [Opening(each.ids[1:], each.tags) for each in state.openings if each.ids[0] == token]
        openings = tuple(each for each in met if each.ids)
        for each in met:
            if not each.ids and not each.tags.words:
                return ThinkingState(None, thoughts=each.tags)
            if not each.ids:
                return ThinkingState(self._rule.start(), openings, blank=True)
        return ThinkingState(answer, openings)

    def allows(self, state: ThinkingState[S], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each of `ids`, shape (n,), whether it may follow."""
        if state.thoughts is not None:
            return ~np.isin(ids, self._eog) & self._each(ids, state, self._stays_apart)
        allowed = np.zeros(ids.size, dtype=np.bool_)
        if state.answer is not None:
            allowed |= self._rule.allows(state.answer, ids)
        if state.blank:
            allowed |= self._each(ids, state, lambda _, piece: piece.isspace())
        return allowed | np.isin(ids, [each.ids[0] for each in state.openings])

    def forced(self, state: ThinkingState[S]) -> tuple[int, ...]:
        """Return what the rule forces, once nothing but the answer can follow."""
        if state.answer is None or state.openings or state.blank:
            return ()
        return self._rule.forced(state.answer)

    def _thought(self, tags: ThinkingTags, tail: bytes) -> ThinkingState[S]:
        close = tags.close.encode()
        if close in tail:
            openings = self._openings if tags.more else ()
            return ThinkingState(self._rule.start(), openings, blank=tail.endswith(close))
        kept = len(close) - 1
        return ThinkingState(None, thoughts=tags, tail=tail[-kept:] if kept else b"")

    def _stays_apart(self, state: ThinkingState[S], piece: bytes) -> bool:
        """Say whether a token does not close the thoughts and begin the answer at once: the rule would not see that."""
        assert state.thoughts is not None, "asked within thoughts"  # noqa: S101
        _, closed, rest = (state.tail + piece).partition(state.thoughts.close.encode())
        return not closed or not rest or rest.isspace()

    def _each(
        self,
        ids: NDArray[np.int64],
        state: ThinkingState[S],
        holds: Callable[[ThinkingState[S], bytes], bool],
    ) -> NDArray[np.bool_]:
        return np.array(
            [holds(state, self._piece(token)) for token in ids.tolist()], dtype=np.bool_
        )

    def _piece(self, token: int) -> bytes:
        piece = self._pieces.get(token)
        return self._tokenizer.piece(token) if piece is None else piece
