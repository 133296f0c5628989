"""choose: the token that a position gets, fixed by seed and position before any draft exists."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.allowed import LOOKED_AT, Allows
from localspec.decoding.constraint import Constraint
from localspec.decoding.noise import Noise
from localspec.decoding.sampling import Candidates, candidates
from localspec.decoding.top import ranked_ids
from localspec.options import SamplingParams


def choose(candidates: Candidates, noise: Noise, position: int) -> int:
    """Return the token that a position gets: a draw from `candidates`, fixed by seed and position.

    Args:
        candidates: ids and log weights after every sampling transform; need not be normalised.
        noise: the seed's Gumbel numbers.
        position: index of the token in the sequence, prompt included.

    Source: Gumbel-max; shared between draft and target as in Daliri et al. 2024, arXiv:2408.07978.
    """
    if candidates.ids.size == 1:
        return int(candidates.ids[0])
    perturbed = candidates.log_weights + noise.gumbel(position, candidates.ids)
    return int(candidates.ids[np.argmax(perturbed)])


_NEAR = 3.0
_COMPARED = 6.0
"""At temperature 0: gaps below the first are worth looking for all rivals up to the second."""


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """The ids that came near a choice, and how near: by the score that decided.

    Args:
        ids: in any order, the chosen one among them.
        scores: of each; log weight and noise, or the logit at temperature 0.
    """

    ids: NDArray[np.int64]
    scores: NDArray[np.float64] | NDArray[np.float32]

    def rank(self, token: int) -> int | None:
        """Return the place of an id, 1 for the chosen one; None where it did not come near."""
        places = np.flatnonzero(self.ids == token)
        if places.size == 0:
            return None
        return 1 + int(np.count_nonzero(self.scores > self.scores[places[0]]))


def choose_with_gap(
    candidates: Candidates, row: NDArray[np.float32], noise: Noise, position: int
) -> tuple[int, float, Ranking]:
    """Return what `choose` returns, by how much it beat the second best, and who else came near.

    Args:
        candidates: as for `choose`.
        row: the logits that they come from, shape (n_vocab,): a lone candidate, as temperature 0
            leaves it, is compared with the best of the others there.
        noise: as for `choose`.
        position: as for `choose`.
    """
    if candidates.ids.size > 1:
        perturbed = candidates.log_weights + noise.gumbel(position, candidates.ids)
        best = int(np.argmax(perturbed))
        gap = float(perturbed[best]) - float(np.partition(perturbed, -2)[-2])
        return int(candidates.ids[best]), gap, Ranking(candidates.ids, perturbed)
    token = int(candidates.ids[0])
    places = [start + int(part.argmax()) for start, part in _around(row, token) if part.size]
    second = max(places, key=lambda place: float(row[place]), default=token)
    gap = float(row[token]) - float(row[second]) if second != token else math.inf
    near = (
        np.array([token, second]) if gap >= _NEAR else np.flatnonzero(row > row[token] - _COMPARED)
    )
    return token, gap, Ranking(near, row[near])


def _around(row: NDArray[np.float32], token: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield what lies before a place of a row and after it, each with where it starts."""
    yield 0, row[:token]
    yield token + 1, row[token + 1 :]


@dataclass(frozen=True, slots=True)
class Chooser:
    """Everything that fixes a choice but the logits: parameters, noise, constraint.

    Target and draft model are asked through the same chooser; that is why they agree so often.
    """

    params: SamplingParams
    noise: Noise
    constraint: Constraint | None = None

    def candidates(self, row: NDArray[np.float32], prefix: Sequence[int]) -> Candidates:
        """Return what sampling keeps of the row, shape (n_vocab,), that follows `prefix`."""
        return candidates(row, prefix, self.params, self._allows(prefix))

    def rivals(
        self, kept: Candidates, row: NDArray[np.float32], prefix: Sequence[int]
    ) -> NDArray[np.float32]:
        """Return the row that `kept` comes from, less those of its best ids that may not follow.

        A lone candidate is compared with the others there; how far it leads matters to drafts alone.
        """
        allows = self._allows(prefix)
        if allows is None or kept.ids.size > 1:
            return row
        ids = ranked_ids(row, LOOKED_AT)
        row = row.copy()
        row[ids[~allows(ids)]] = -np.inf
        return row

    def admitted(self, prefix: Sequence[int], tokens: Sequence[int]) -> int:
        """Return how many of `tokens`, from the first on, the constraint lets follow `prefix`."""
        if self.constraint is None:
            return len(tokens)
        text = list(prefix)
        for count, token in enumerate(tokens):
            if not self.constraint.allows(text, np.array([token], dtype=np.int64))[0]:
                return count
            text.append(token)
        return len(tokens)

    def _allows(self, prefix: Sequence[int]) -> Allows | None:
        return None if self.constraint is None else partial(self.constraint.allows, prefix)

    def choose(self, row: NDArray[np.float32], prefix: Sequence[int]) -> int:
        """Return the token that follows `prefix`, of which `row` holds the logits."""
        return choose(self.candidates(row, prefix), self.noise, len(prefix))
