"""The highest logits of a long row. Nothing here sorts a row of 152k."""

import numpy as np
from numpy.typing import NDArray

_BLOCK = 64


def top_ids(row: NDArray[np.float32], top_k: int) -> NDArray[np.int64]:
    """Return the ids of the `top_k` highest logits, ascending; all ids when `top_k` is 0.

    The k-th highest of a row's column maxima (of a folded view) bounds the k-th highest logit
    from below, and few logits reach that bound. Ties go to the lowest id.
    """
    columns = row.size // _BLOCK
    if top_k == 0 or top_k >= row.size:
        return np.arange(row.size, dtype=np.int64)
    if top_k > columns // 4:
        bound = np.partition(row, -top_k)[-top_k]
    else:
        maxima = row[: columns * _BLOCK].reshape(_BLOCK, columns).max(axis=0)
        bound = np.partition(maxima, -top_k)[-top_k]
    if bound == -np.inf:
        return _with_few_logits(row, top_k)
    return _best(row, np.flatnonzero(row >= bound), top_k)


def ranked_ids(row: NDArray[np.float32], most: int) -> NDArray[np.int64]:
    """Return the ids of the `most` highest logits, the best first; among equals the lowest id."""
    if most == 1:
        return np.array([np.argmax(row)], dtype=np.int64)
    ids = top_ids(row, most)
    return ids[np.argsort(-row[ids], kind="stable")]


def _with_few_logits(row: NDArray[np.float32], top_k: int) -> NDArray[np.int64]:
    """Return the top ids of a row that is mostly -inf, where the bound lets every id through."""
    ids = np.flatnonzero(row > -np.inf)
    if ids.size >= top_k:
        return _best(row, ids, top_k)
    others = np.flatnonzero(row == -np.inf)[: top_k - ids.size]
    return np.sort(np.concatenate((ids, others)))


def _best(row: NDArray[np.float32], ids: NDArray[np.int64], top_k: int) -> NDArray[np.int64]:
    if ids.size > top_k:
        # A stable sort over ascending ids: among equals the lowest ids stay.
        ids = np.sort(ids[np.argsort(-row[ids], kind="stable")[:top_k]])
    return ids
