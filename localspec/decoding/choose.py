"""choose: the token that a position gets, fixed by seed and position before any draft exists."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.constraint import Constraint
from localspec.decoding.noise import Noise
from localspec.decoding.proposals import Proposals
from localspec.decoding.sampling import Candidates, candidates, likeliest, penalised
from localspec.decoding.top import LOOKED_AT, Allows, ranked_ids
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
    return int(candidates.ids[perturbed.argmax()])


_ALTERNATIVES = 2
"""How many choices after the first are returned: what a sibling in a branching draft would be."""
_ALONE = 1e6
"""The gap of a choice without a rival, and the widest: next to no temperature leaves rivals no weight at all."""


@dataclass(frozen=True, slots=True)
class Chooser:
    """Everything that fixes a choice but the logits: parameters, noise, constraint.

    Target and draft model are asked through the same chooser; that is why they agree so often.

    Args:
        params: every sampling transform.
        noise: the seed's Gumbel numbers.
        constraint: what may follow at all; None lets everything.
        observe: sees the target's row and the token for every choice of the target's, in their order; the row
            is valid only until it returns.
        prediction: ids of a text that the reply is expected to be like, for drafters alone: it fixes no choice.
        proposals: what somebody outside proposes, likewise; None where nobody does.
    """

    params: SamplingParams
    noise: Noise
    constraint: Constraint | None = None
    observe: Callable[[NDArray[np.float32], int], None] | None = None
    prediction: Sequence[int] = ()
    proposals: Proposals | None = None

    def forced(self, prefix: Sequence[int]) -> tuple[int, ...]:
        """Return tokens that are certain to follow `prefix`, whatever the logits are; see `Constraint`."""
        return () if self.constraint is None else self.constraint.forced(prefix)

    def candidates(self, row: NDArray[np.float32], prefix: Sequence[int]) -> Candidates:
        """Return what sampling keeps of the row, shape (n_vocab,), that follows `prefix`; see `sampling`."""
        return candidates(row, prefix, self.params, self._allows(prefix))

    def propose(
        self, row: NDArray[np.float32], prefix: Sequence[int]
    ) -> tuple[int, float, float, tuple[int, ...]]:
        """Return what `choose` makes of a draft model's row, its probability, and how it fared against others.

        That is by how much it beat the second best, and the next two choices. A lone candidate, as temperature 0
        leaves it, is compared with the best others that may follow: how far it leads matters to drafts alone.
        """
        chosen, allows = self.candidates(row, prefix), self._allows(prefix)
        ids = chosen.ids
        if ids.size > 1:
            scores = chosen.log_weights + self.noise.gumbel(len(prefix), ids)
            order = ranked_ids(scores, 1 + _ALTERNATIVES)
            token, *others = ids[order].tolist()
            gap = min(_ALONE, float(scores[order[0]] - scores[order[1]]))
            return token, float(chosen.probabilities()[order[0]]), gap, tuple(others)
        token = int(ids[0])
        # The token may be none of the best.
        near = ranked_ids(row, 2 + _ALTERNATIVES if allows is None else LOOKED_AT)
        near = near if allows is None else near[allows(near)]
        rivals = [each for each in near.tolist() if each != token and row[each] > -np.inf]
        gap = float(row[token]) - float(row[rivals[0]]) if rivals else _ALONE
        return token, 1.0, gap, tuple(rivals[:_ALTERNATIVES])

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
        """Return the target's token that follows `prefix`, of which `row` holds the target's logits."""
        if self.params.temperature == 0 and self.constraint is None:
            token = likeliest(penalised(row, prefix, self.params))
        else:
            token = choose(self.candidates(row, prefix), self.noise, len(prefix))
        if self.observe is not None:
            self.observe(row, token)
        return token
