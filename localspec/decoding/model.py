"""A model is a function from tokens to logits, and `Pass` is the request for a call of it.

What a model has cached is its own business: it keeps the longest common prefix with the
request before, evaluates the rest, and nothing above ever rolls anything back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]
"""Rows of logits, shape (rows, n_vocab). Valid only until the next call of the same model."""


class Role(StrEnum):
    """Which of the two models a pass is meant for."""

    # The hash of a plain Enum is Python code, and models are looked up by it some nine times a round.

    TARGET = "target"
    DRAFT_MODEL = "draft_model"


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """The request for the logits after each of the last `rows` tokens of `tokens`.

    With no rows it is the request to evaluate them ahead, and its answer has none.

    Args:
        role: of the model.
        tokens: from the first on, whatever of them is cached; branches last.
        rows: how many, those of the branches included.
        more: takes the rows and returns the token to go on with, whose one row it is given next; None at the end. So
            a whole draft is one request, whose answer holds the last row.
        branches: of as many tokens at the end, each an alternative to one of those that the rows are of, how many of
            `tokens` come before it; descending. None of them is kept.
    """

    role: Role
    tokens: Sequence[int]
    rows: int
    more: Callable[[Logits], int | None] | None = None
    branches: tuple[int, ...] = ()

    @property
    def chain(self) -> Sequence[int]:
        """The tokens less the branches: what stays cached."""
        return (
            self.tokens[: len(self.tokens) - len(self.branches)] if self.branches else self.tokens
        )


@dataclass(frozen=True, slots=True, eq=False)
class Passed:
    """What came of a pass.

    Args:
        logits: the rows that were asked for, valid until the next pass of the same model.
        evaluated: tokens that were evaluated for it.
        seconds: what it took; of a pass shared with other sequences, this one's share.
        truncate_s: removing from the cache what the request does not begin with, not in `seconds`.
        waited_s: seconds between request and answer that went to other sequences.
        more_s: seconds in the request's `more`.
    """

    logits: Logits
    evaluated: int
    seconds: float = 0.0
    truncate_s: float = 0.0
    waited_s: float = 0.0
    more_s: float = 0.0


class LanguageModel(Protocol):
    """A causal language model over a context of `n_ctx` tokens."""

    @property
    def n_vocab(self) -> int:
        """Number of token ids, and the width of a row of logits."""

    @property
    def n_ctx(self) -> int:
        """Most tokens that a request may hold."""

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Return how many of `tokens`, from the first on, are cached."""

    def prefill(self, tokens: Sequence[int]) -> int:
        """Evaluate `tokens` ahead of a request for rows; return how many were not yet cached.

        Raises:
            Cancelled: the model's `CancelFlag` was set; what was evaluated stays cached.
        """

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        """Return the logits after each of the last `rows` tokens, in order, zero-copy.

        Raises:
            Cancelled: the model's `CancelFlag` was set.
        """

    def truncate(self, n_past: int) -> None:
        """Forget everything cached beyond the first `n_past` tokens."""
