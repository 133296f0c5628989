"""choose: the token that a position gets, fixed by seed and position before any draft exists."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.constraint import Constraint
from localspec.decoding.noise import Noise
from localspec.decoding.sampling import Candidates, SamplingParams, candidates


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


def choose_with_gap(
    candidates: Candidates, row: NDArray[np.float32], noise: Noise, position: int
) -> tuple[int, float]:
    """Return what `choose` returns, and by how much it beat the second best.

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
        second = float(np.partition(perturbed, -2)[-2])
        return int(candidates.ids[best]), float(perturbed[best]) - second
    token = int(candidates.ids[0])
    others = [float(part.max()) for part in (row[:token], row[token + 1 :]) if part.size]
    return token, float(row[token]) - max(others, default=-math.inf)


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
        if self.constraint is not None:
            allowed = self.constraint.allows(prefix, np.arange(row.size, dtype=np.int64))
            row = np.where(allowed, row, np.float32(-np.inf))
        return candidates(row, prefix, self.params)

    def choose(self, row: NDArray[np.float32], prefix: Sequence[int]) -> int:
        """Return the token that follows `prefix`, of which `row` holds the logits."""
        return choose(self.candidates(row, prefix), self.noise, len(prefix))
