"""VocabMap: a target's text in its draft model's ids, and the draft model's rows and tokens in the target's."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class VocabMap(Protocol):
    """What the ids of a target and of its draft model mean to each other, for one sequence.

    All that a draft is judged by (constraint, penalties, noise, the verdict) speaks of the target's ids; the draft
    model's passes speak of its own. It may remember the text, and answers by what it is given alone.
    """

    def begin(self) -> None:
        """Start a reply: the next text may be another one."""

    def read(self, tokens: Sequence[int]) -> Sequence[int] | None:
        """Return a text of the target's in the draft model's ids; None where it ends within a character."""

    def row(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return a row of the draft model's by the target's ids, valid until the next call; see `next`."""

    def next(self, logits: NDArray[np.float32], token: int) -> int:
        """Return the draft model's id to go on with where `token` of the target's was chosen of its `row`."""

    def spell(self, before: int | None, drafted: int) -> tuple[int, ...]:
        """Return how the target writes the draft model's id `drafted`, where its own token `before` stands before it.

        Args:
            before: is part of what is returned, and may be another one there; None writes `drafted` alone.
            drafted: what `next` returned.
        """


class SharedIds:
    """An id means the same to both.

    Args:
        n_vocab: ids from there on only one of them has: they are masked out of the draft, and nothing is
            proposed after one of them.
    """

    def __init__(self, n_vocab: int) -> None:
        self._n_vocab = n_vocab
        self.begin()

    def begin(self) -> None:
        """Look at the whole text again; see `VocabMap`."""
        self._looked_at, self._largest = 0, -1

    def read(self, tokens: Sequence[int]) -> Sequence[int] | None:
        """Return the text itself; of one that grows, only what is new is looked at."""
        self._largest = max([self._largest, *tokens[self._looked_at :]])
        self._looked_at = len(tokens)
        return tokens if self._largest < self._n_vocab else None

    def row(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the ids that both have."""
        return logits[: self._n_vocab]

    def next(self, logits: NDArray[np.float32], token: int) -> int:  # noqa: ARG002 - the protocol's signature
        """Return the token."""
        return token

    def spell(self, before: int | None, drafted: int) -> tuple[int, ...]:
        """Return both."""
        return (drafted,) if before is None else (before, drafted)
