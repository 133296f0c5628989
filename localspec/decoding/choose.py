"""choose: the token that a position gets, fixed by seed and position before any draft exists."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.allowed import LOOKED_AT, Allows
from localspec.decoding.constraint import Constraint
from localspec.decoding.noise import Noise
from localspec.decoding.sampling import Candidates, candidates, likeliest, penalised
from localspec.decoding.top import ranked, ranked_ids, top_ids
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
    few = _contenders(candidates, noise, position, wanted=1)
    perturbed = few.log_weights + noise.gumbel(position, few.ids)
    return int(few.ids[perturbed.argmax()])


_ALTERNATIVES = 2
"""How many choices after the first are told: what a sibling in a branching draft would be."""
RANKED = 1 + _ALTERNATIVES
"""How many of a row's highest logits are of use to whoever asks for the gap."""
_ALONE = 1e6
"""The gap of a choice without a rival, and the widest: next to no temperature leaves rivals no weight at all."""


def choose_with_gap(
    candidates: Candidates, row: NDArray[np.float32], noise: Noise, position: int
) -> tuple[int, float, tuple[int, ...]]:
    """Return what `choose` returns, by how much it beat the second best, and the next two choices.

    Args:
        candidates: as for `choose`.
        row: the logits that they come from, shape (n_vocab,): a lone candidate, as temperature 0
            leaves it, is compared with the best of the others there.
        noise: as for `choose`.
        position: as for `choose`.
    """
    ids = candidates.ids
    if ids.size > 1:
        few = _contenders(candidates, noise, position, wanted=RANKED)
        scores = few.log_weights + noise.gumbel(position, few.ids)
        order = (-scores).argsort(kind="stable")[:RANKED]
        token, *others = few.ids[order].tolist()
        return token, min(_ALONE, float(scores[order[0]] - scores[order[1]])), tuple(others)
    token, highest = int(ids[0]), candidates.highest
    if highest is None or highest.size < RANKED:
        highest = top_ids(row, min(1 + RANKED, row.size))  # the token may be none of them
    near = ranked(row, highest)[: 1 + RANKED].tolist()
    rivals = [each for each in near if each != token and row[each] > -np.inf][:_ALTERNATIVES]
    gap = float(row[token]) - float(row[rivals[0]]) if rivals else _ALONE
    return token, gap, tuple(rivals)


_MANY, _FIRST = 1024, 64
"""Candidates from which on it pays to look for those that can be chosen at all, and how many of the likeliest are tried first."""
_SLACK, _ROUNDING = 1e-6, 1e-15
"""More than a sum of weight and noise can be off, and as a share of the weight, if that is a large one."""


def _contenders(candidates: Candidates, noise: Noise, position: int, wanted: int) -> Candidates:
    """Return those candidates, their weights unchanged, among which the `wanted` best by weight and noise are.

    The likeliest are tried first. Whatever is to beat the `wanted`-th of them, and weighs no more than the least of
    them, needs noise that makes up for the difference: few ids have that much, and which is found without a logarithm.
    """
    ids, weights = candidates.ids, candidates.log_weights
    if ids.size < _MANY:
        return candidates
    first = top_ids(weights, _FIRST)
    tried = np.sort(weights[first] + noise.gumbel(position, ids[first]))
    if tried[-wanted] == -np.inf:
        return candidates
    least = float(weights[first].min())
    others = max(least * (1 - _ROUNDING), least * (1 + _ROUNDING)) + _SLACK
    # Of two large weights rounding alone can be more than the least that noise is asked about, which all of it reaches.
    may_win = noise.may_reach(position, ids, max(-700.0, float(tried[-wanted]) - others))
    may_win[first] = True
    kept = may_win.nonzero()[0]
    return Candidates(ids[kept], weights[kept], candidates.highest)


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
    """

    params: SamplingParams
    noise: Noise
    constraint: Constraint | None = None
    observe: Callable[[NDArray[np.float32], int], None] | None = None

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken."""
        return self.params.temperature == 0

    def forced(self, prefix: Sequence[int]) -> tuple[int, ...]:
        """Return tokens that are certain to follow `prefix`, whatever the logits are; see `Constraint`."""
        return () if self.constraint is None else self.constraint.forced(prefix)

    def candidates(
        self, row: NDArray[np.float32], prefix: Sequence[int], highest: int = 1
    ) -> Candidates:
        """Return what sampling keeps of the row, shape (n_vocab,), that follows `prefix`; see `candidates`."""
        return candidates(row, prefix, self.params, self._allows(prefix), highest)

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
        """Return the target's token that follows `prefix`, of which `row` holds the target's logits."""
        if self.greedy and self.constraint is None:
            token = likeliest(penalised(row, prefix, self.params))
        else:
            token = choose(self.candidates(row, prefix), self.noise, len(prefix))
        if self.observe is not None:
            self.observe(row, token)
        return token
