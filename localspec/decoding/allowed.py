"""allowed_ids: the best ids of a row that a constraint lets follow, found without asking about all of them.

A grammar takes milliseconds for a whole vocabulary and next to nothing for a few dozen ids, so
it is asked in descending order of logits until enough are found.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.top import ranked_ids

Allows = Callable[[NDArray[np.int64]], NDArray[np.bool_]]
"""Says for each of some ids, shape (n,), whether it may follow."""

LOOKED_AT = 64
"""Ids that are asked about first; more where more than half as many are wanted."""
_GROWTH = 7
"""Times as many are asked about next, then all: ranking ever more ids soon costs more than it spares."""


def allowed_ids(row: NDArray[np.float32], most: int, allows: Allows) -> NDArray[np.int64]:
    """Return the ids of the `most` highest logits among those that may follow, ascending.

    The same as from a row in which all others were -inf: ties go to the lowest id, and ids
    without a logit are left out, so that there may be fewer, or none.

    Args:
        row: logits, shape (n_vocab,).
        most: how many are wanted; 0 takes all that may follow.
        allows: the constraint.
    """
    first = 1 if most == 1 else max(LOOKED_AT, 2 * most)
    best, tried = np.empty(0, dtype=np.int64), 0
    for block in (first, max(LOOKED_AT, _GROWTH * first)) if most else ():
        if block > row.size // 4:
            break
        ids = ranked_ids(row, block)[tried:]
        ids = ids[row[ids] > -np.inf]
        best = np.concatenate((best, ids[allows(ids)]))
        if best.size >= most:
            return np.sort(best[:most])
        if ids.size < block - tried:
            return np.sort(best)  # no other id has a logit
        if best.size * _GROWTH < most:
            break  # so few of the best: a few more would not do
        tried = block
    ids = np.flatnonzero(row > -np.inf)
    ids = ids[allows(ids)]
    if most and ids.size > most:
        ids = np.sort(ids[np.argsort(-row[ids], kind="stable")[:most]])
    return ids
