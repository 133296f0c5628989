"""Ids of what an encoder fills: negative, so that no token is one of them.

A chunk is what an encoder makes of one picture, one tile of it, or a piece of a sound. Its ids are made of what it is of, so
that comparing ids compares pictures; in two bits, an id says whether a chunk begins with it, and whether the
position advances behind it: in a model of M-RoPE, a picture takes fewer positions than tokens.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

_ADVANCES, _BEGINS = 1, 2
_HASHED = 29
"""Bits of an id that are a hash."""


def media_ids(identity: str, tokens: int, positions: int) -> list[int]:
    """Return the ids of a chunk.

    Args:
        identity: what it is of, and by which encoder.
        tokens: how many ids, at least one.
        positions: how many positions they take, 1 to `tokens`.
    """
    stream = hashlib.shake_128(identity.encode()).digest(4 * tokens)
    bits = (np.frombuffer(stream, "<u4") >> (32 - _HASHED)).astype(np.int64) << 2
    bits[:positions] |= _ADVANCES
    bits[0] |= _BEGINS
    ids: list[int] = np.invert(bits).tolist()
    return ids


def within_chunk(token: int) -> bool:
    """Return whether a chunk goes on with an id, so that no text may be cut before it."""
    return token < 0 and not ~token & _BEGINS


def positions(tokens: Sequence[int]) -> int:
    """Return how many positions tokens take."""
    ids = np.fromiter(tokens, np.int64, len(tokens))
    return int(np.count_nonzero((ids >= 0) | ((~ids & _ADVANCES) != 0)))


def chunk_start(tokens: Sequence[int], place: int) -> int:
    """Return a place before which tokens may be cut: the given one, or the beginning of the chunk that it is in."""
    while 0 < place < len(tokens) and within_chunk(tokens[place]):
        place -= 1
    return place


def chunk_end(tokens: Sequence[int], start: int) -> int:
    """Return the place behind the chunk that begins at a place."""
    end = start + 1
    while end < len(tokens) and within_chunk(tokens[end]):
        end += 1
    return end


def text_end(tokens: Sequence[int], start: int, end: int) -> int:
    """Return the place of the first chunk between two places; the second one if there is none."""
    if min(tokens[start:end], default=0) >= 0:
        return end
    return next(at for at in range(start, end) if tokens[at] < 0)


def last_chunk_end(tokens: Sequence[int]) -> int:
    """Return the place behind the last chunk; 0 if there is none."""
    return next((at for at in range(len(tokens), 0, -1) if tokens[at - 1] < 0), 0)
