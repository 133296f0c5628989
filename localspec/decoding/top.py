"""The highest logits of a long row. Nothing here sorts a row of 152k."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.floating[Any]]
_SHORTEST, _LONGEST = 16, 4096
"""Neighbouring logits that are looked at by their highest first."""
_BLOCKS_EACH = 4
"""Blocks for each logit that is wanted: so many that few of them hold one, so few that they are soon made."""


def top_ids(row: Row, top_k: int) -> NDArray[np.int64]:
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
    narrow = length < _SHORTEST
    maxima = row if narrow else np.maximum.reduceat(row, np.arange(0, size, length))
    ordered = np.partition(row, (size - top_k, size - 1)) if narrow else np.sort(maxima)
    if math.isnan(ordered[-1]):
        return np.isnan(row).nonzero()[0]
    bound = ordered[-top_k]
    if bound == -np.inf:
        return _with_few_logits(row, top_k)
    reached = (maxima >= bound).nonzero()[0]
    return _best(row, reached if narrow else _within(row, reached, length, bound), top_k)


def _within(
    row: Row, blocks: NDArray[np.int64], length: int, bound: np.floating[Any]
) -> NDArray[np.int64]:
    """Return the ids, ascending, of the logits in some of a row's blocks that reach a bound."""
    whole = row.size // length
    shorter = np.empty(0, dtype=np.int64)
    if blocks[-1] == whole:
        blocks, begin = blocks[:-1], whole * length
        shorter = begin + np.flatnonzero(row[begin:] >= bound)
    looked_at = row[: whole * length].reshape(whole, length).take(blocks, axis=0)
    places = (looked_at >= bound).ravel().nonzero()[0]
    at = places // length
    ids: NDArray[np.int64] = places + (blocks[at] - at) * length
    return np.concatenate((ids, shorter)) if shorter.size else ids


def ranked_ids(row: Row, most: int) -> NDArray[np.int64]:
    """Return the ids of the `most` highest logits, the best first; among equals the lowest id."""
    return ranked(row, top_ids(row, most))


def ranked(row: Row, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return some ascending ids by their logits, the best first; among equals the lowest id."""
    return ids[(-row[ids]).argsort(kind="stable")] if ids.size > 1 else ids


def _with_few_logits(row: Row, top_k: int) -> NDArray[np.int64]:
    """Return the top ids of a row that is mostly -inf, where the bound lets every id through."""
    ids = np.flatnonzero(row > -np.inf)
    if ids.size >= top_k:
        return _best(row, ids, top_k)
    others = np.flatnonzero(row == -np.inf)[: top_k - ids.size]
    return np.sort(np.concatenate((ids, others)))


def _best(row: Row, ids: NDArray[np.int64], top_k: int) -> NDArray[np.int64]:
    if ids.size > top_k:
        # A stable sort over ascending ids: among equals the lowest ids stay.
        ids = np.sort(ranked(row, ids)[:top_k])
    return ids
