"""Vectors: how they are kept in few bytes, and how near they are to one another. Pure: knows neither models nor a database.

Source of looking at signs first: two-stage search by binary codes, as in Hugging Face's "Binary and Scalar Embedding
Quantization" (2024).
"""

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Vectors = NDArray[np.float32]
Codes = NDArray[np.int8]
"""Vectors in a byte a number, each by its own scale, which changes its length alone."""
Signs = NDArray[np.uint8]
"""Of the numbers of a vector, eight in a byte."""

_LARGEST, _LEAST = 127, 1e-30
_WORD_BYTES = 8


def encoded(vectors: Vectors) -> Codes:
    """Return vectors in a byte a number, shape as before; their directions are within half a percent."""
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    scale = _LARGEST / np.maximum(largest, _LEAST)
    codes: Codes = np.rint(vectors * scale).astype(np.int8)
    return codes


def signs_of(codes: Codes) -> Signs:
    """Return the signs of each vector, shape (vectors, bytes)."""
    return np.packbits(codes > 0, axis=1)


def differing(signs: Signs, sought: Signs) -> NDArray[np.uint16]:
    """Return how many signs of each vector are not those that are sought.

    Args:
        signs: shape (vectors, bytes).
        sought: of one vector, shape (bytes,).
    """
    kind = np.uint64 if sought.size % _WORD_BYTES == 0 else np.uint8
    counts = np.zeros(len(signs), np.uint16)
    # By columns: a sum over the few words of each row takes twice as long.
    for column in np.bitwise_count(signs.view(kind) ^ sought.view(kind)).T:
        counts += column
    return counts


def similarities(codes: Codes, vector: Vector) -> NDArray[np.float32]:
    """Return the cosine of each vector and one of length 1."""
    rows = codes.astype(np.float32)
    found: NDArray[np.float32] = (rows @ vector) / np.maximum(np.linalg.norm(rows, axis=1), 1)
    return found
