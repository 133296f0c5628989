"""The highest logits of a long row. Nothing here sorts a row of 152k."""

import numpy as np
from numpy.typing import NDArray

_BLOCK, _COARSER = 64, 8
"""Logits of a column, and columns whose maxima are folded once more."""


def top_ids(row: NDArray[np.float32], top_k: int) -> NDArray[np.int64]:
    """Return the ids of the `top_k` highest logits, ascending; all ids when `top_k` is 0.

    The k-th highest of a row's column maxima (of a folded view) bounds the k-th highest logit
    from below; few columns reach that bound, and only those are looked through. Ties go to the lowest id.
    """
    columns = row.size // _BLOCK
    if top_k == 0 or top_k >= row.size:
        return np.arange(row.size, dtype=np.int64)
    folded = row[: columns * _BLOCK].reshape(_BLOCK, columns)
    narrow = top_k > columns // 4
    maxima = row if narrow else folded.max(axis=0)
    bound = np.partition(_coarser(maxima, top_k), -top_k)[-top_k]
    if bound == -np.inf:
        return _with_few_logits(row, top_k)
    within = np.flatnonzero(maxima >= bound)
    if narrow:
        return _best(row, within, top_k)
    place, column = np.nonzero(folded[:, within] >= bound)
    rest = columns * _BLOCK + np.flatnonzero(row[columns * _BLOCK :] >= bound)
    return _best(row, np.concatenate((place * columns + within[column], rest)), top_k)


def _coarser(maxima: NDArray[np.float32], top_k: int) -> NDArray[np.float32]:
    """Return maxima of maxima where enough are left: their k-th highest is a bound as well, and sooner found."""
    columns = maxima.size // _COARSER
    if columns < 4 * top_k:
        return maxima
    found: NDArray[np.float32] = maxima[: columns * _COARSER].reshape(_COARSER, columns).max(axis=0)
    return found


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
