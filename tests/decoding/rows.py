"""Rows of logits of every shape that makes trouble."""

import numpy as np
from numpy.typing import NDArray


def row_of(*logits: float) -> NDArray[np.float32]:
    return np.array(logits, dtype=np.float32)


def shaped_row(seed: int, size: int, kind: str) -> NDArray[np.float32]:
    row = np.random.default_rng(seed).normal(0, 3, size).astype(np.float32)
    if kind == "ties":
        row = np.round(row)
    elif kind == "ascending":
        row = np.sort(row)
    elif kind == "constant":
        row[:] = 1
    elif kind == "holes":
        row[np.random.default_rng(seed + 1).random(size) < 0.97] = -np.inf
    return row
