"""The highest logits of a long row, or of those that a constraint lets follow. Nothing here sorts a row of 152k."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]
Allows = Callable[[Ids], NDArray[np.bool_]]
"""Says for each of some ids, shape (n,), whether it may follow."""

LOOKED_AT = 64
"""Ids that a constraint is asked about first; more where more than half as many are wanted."""
_GROWTH = 7
"""Times as many are asked about next, then all: ranking ever more ids soon costs more than it spares."""
_SHORTEST, _LONGEST = 16, 4096
"""Neighbouring logits that are looked at by their highest first."""
_BLOCKS_EACH = 4
"""Blocks for each logit that is wanted: so many that few of them hold one, so few that they are soon made."""


def top_ids(row: Row, top_k: int) -> Ids:
    """Return the ids of the `top_k` highest logits, ascending; all ids when `top_k` is 0.

    The row is read once: the k-th highest of its blocks' maxima bounds the k-th highest logit from below, and
    only the few blocks that reach that bound are looked through. Ties go to the lowest id. NaN is higher than
    all else, as numpy has it: it is among what comes back, if there is one.
    """
    size = row.size
    if top_k == 0 or top_k >= size:
        return np.arange(size, dtype=np.int64)
    if top_k == 1:
        return np.array([row.argmax()], dtype=np.int64)
    length = min(_LONGEST, size // (_BLOCKS_EACH * top_k))
    count = size // length if length >= _SHORTEST else 0  # a short row is one rest
    blocks, rest = row[: count * length].reshape(count, length), row[count * length :]
    maxima = blocks.max(axis=1) if count else row
    ordered = np.partition(maxima, (maxima.size - top_k, maxima.size - 1))
    if math.isnan(ordered[-1]) or (rest.size and math.isnan(rest.max())):
        return np.isnan(row).nonzero()[0]
    bound = ordered[-top_k]
    ids = (rest >= bound).nonzero()[0] + count * length
    if count:
        reached = (maxima >= bound).nonzero()[0]
        places = (blocks[reached] >= bound).ravel().nonzero()[0]
        at = places // length
        ids = np.concatenate((places + (reached[at] - at) * length, ids))
    return ids if ids.size <= top_k else np.sort(_ranked(row, ids)[:top_k])


def ranked_ids(row: Row, most: int) -> Ids:
    """Return the ids of the `most` highest logits, the best first; among equals the lowest id."""
    return _ranked(row, top_ids(row, most))


def allowed_ids(row: Row, most: int, allows: Allows) -> Ids:
    """Return the ids of the `most` highest logits among those that may follow, ascending.

    The same as from a row in which all others were -inf: ties go to the lowest id, and ids without a logit are left
    out, so that there may be fewer, or none. A grammar takes milliseconds for a whole vocabulary and next to nothing
    for a few dozen ids, so it is asked about the best first.

    Args:
        row: the logits.
        most: how many are wanted; 0 takes all that may follow.
        allows: the constraint.
    """
    first = 1 if most == 1 else max(LOOKED_AT, 2 * most)
    for block in (first, max(LOOKED_AT, _GROWTH * first)) if most else ():
        if block > row.size // 4:
            break
        ids = ranked_ids(row, block)
        ids = ids[row[ids] > -np.inf]
        best = ids[allows(ids)]
        if best.size >= most or ids.size < block:
            return np.sort(best[:most])
        if best.size * _GROWTH < most:
            break  # so few of the best: a few more would not do
    ids = (row > -np.inf).nonzero()[0]
    ids = ids[allows(ids)]
    return ids[top_ids(row[ids], most)]


def _ranked(row: Row, ids: Ids) -> Ids:
    """Return some ascending ids by their logits, the best first; among equals the lowest id."""
    return ids[(-row[ids]).argsort(kind="stable")] if ids.size > 1 else ids
