"""contenders: which of very many candidates can be chosen at all, found without a logarithm for each of them."""

import numpy as np

from localspec.decoding.noise import Noise
from localspec.decoding.sampling import Candidates
from localspec.decoding.top import top_ids

_MANY, _FIRST = 1024, 64
"""Candidates from which on that pays, and how many of the likeliest are tried first."""
_SLACK, _ROUNDING = 1e-6, 1e-15
"""More than a sum of weight and noise can be off, and as a share of the weight, if that is a large one."""


def contenders(candidates: Candidates, noise: Noise, position: int, wanted: int) -> Candidates:
    """Return those candidates, their weights unchanged, among which the `wanted` best by weight and noise are.

    The likeliest are tried first. Whatever is to beat the `wanted`-th of them, and weighs no more than the least of
    them, needs noise that makes up for the difference: few ids have that much.
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
    may_win = noise.may_reach(position, ids, float(tried[-wanted]) - others)
    may_win[first] = True
    kept = may_win.nonzero()[0]
    return Candidates(ids[kept], weights[kept], candidates.highest)
