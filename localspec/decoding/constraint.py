"""Constraint: which token ids may follow a prefix. Grammars will implement it."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Constraint(Protocol):
    """A rule over token sequences, asked before any other sampling transform.

    It is asked for prefixes that a draft only proposes, too, and must answer by the prefix
    alone: state that a rejected draft could leave behind would change the text.
    """

    def allows(self, prefix: Sequence[int], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Say for each of `ids`, shape (n,), whether it may follow `prefix`.

        At least one id of the whole vocabulary must be allowed after every prefix.
        """
        ...
