"""Nearest: which vectors of an index are most like one: all by their signs, and those that differ least in full.

Reading all in full takes more than twenty times as long; the memory is that of the distances, two bytes a vector, and of one read.
"""

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from localspec.retrieval.vector_table import VectorTable
from localspec.retrieval.vectors import (
    Codes,
    Vector,
    differing,
    encoded,
    signs_of,
    similarities,
)

_PARTS_AT_ONCE = 1000
_LOOKED_AT = 500
"""Vectors that are looked at in full."""

Place = tuple[int, int, int]
"""Of a vector: the number of a file, of a part of it, and the place in that."""


def nearest(table: VectorTable, vector: Vector, most: int) -> list[tuple[float, int]]:
    """Return the passages whose vectors are nearest to one of length 1: cosine and number of each, the nearest first."""
    places, codes = _read(table, _alike(table, vector), vector.size)
    if not places:
        return []
    scores = similarities(codes, vector)
    best = np.argsort(-scores, kind="stable")[:most]
    return [(float(scores[at]), table.passage(*places[at])) for at in best]


def _alike(table: VectorTable, vector: Vector) -> dict[tuple[int, int], list[int]]:
    """Return where the vectors are whose signs differ least from those of one: places by file and part."""
    sought = signs_of(encoded(vector[None]))[0]
    parts, sizes, apart = list[tuple[int, int]](), list[int](), list[NDArray[np.uint16]]()
    rows = table.signs()
    while some := list(islice(rows, _PARTS_AT_ONCE)):
        files, numbers, blobs = zip(*some, strict=True)
        signs = np.frombuffer(b"".join(blobs), np.uint8)
        apart.append(differing(signs.reshape(-1, sought.size), sought))
        parts += zip(files, numbers, strict=True)
        sizes += map(len, blobs)
    if not parts:
        return {}
    distances, counts = np.concatenate(apart), np.array(sizes) // sought.size
    ends = np.cumsum(counts)
    least = min(_LOOKED_AT, len(distances)) - 1
    chosen = np.sort(np.argpartition(distances, least)[: least + 1])
    at = np.searchsorted(ends, chosen, side="right")
    found = dict[tuple[int, int], list[int]]()
    for part, place in zip(at, chosen - (ends - counts)[at], strict=True):
        found.setdefault(parts[part], []).append(int(place))
    return found


def _read(
    table: VectorTable, wanted: Mapping[tuple[int, int], Sequence[int]], width: int
) -> tuple[list[Place], Codes]:
    """Return vectors with their places."""
    places, codes = list[Place](), [np.zeros((0, width), np.int8)]
    for (file, part), some in wanted.items():
        whole = np.frombuffer(table.codes(file, part), np.int8).reshape(-1, width)
        codes.append(whole[some])
        places += [(file, part, each) for each in some]
    return places, np.concatenate(codes)
