"""Noise: Gumbel numbers that depend on (seed, position, token id) and on nothing else."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_BITS = 52
"""Of a word, that a number is made of."""


def _mix(word: int) -> int:
    """Scramble 64 bits (SplitMix64's finaliser, Steele, Lea and Flood 2014)."""
    word = ((word ^ (word >> 30)) * _FIRST) & _MASK
    word = ((word ^ (word >> 27)) * _SECOND) & _MASK
    return word ^ (word >> 31)


_BY_30, _BY_27, _BY_31, _BY_REST = (np.uint64(bits) for bits in (30, 27, 31, 64 - _BITS))
_TIMES_GAMMA, _TIMES_FIRST, _TIMES_SECOND = (np.uint64(by) for by in (_GAMMA, _FIRST, _SECOND))


def _mix_each(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble each word as `_mix` does, in its place; uint64 arithmetic wraps as intended."""
    words ^= words >> _BY_30
    words *= _TIMES_FIRST
    words ^= words >> _BY_27
    words *= _TIMES_SECOND
    words ^= words >> _BY_31
    return words


@dataclass(frozen=True, slots=True)
class Noise:
    """A source of Gumbel(0, 1) numbers without state: asking twice gives the same answer.

    Args:
        seed: any integer; its lowest 64 bits count.
    """

    seed: int
    _key: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_key", _mix((self.seed + _GAMMA) & _MASK))

    def gumbel(self, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return one Gumbel number per token id, for the token at `position`.

        Args:
            position: index of the token in the sequence, prompt included.
            ids: token ids, shape (n,).
        """
        # SplitMix64 thrice: a seed opens a stream of positions, each of them a stream of ids.
        # Steps, not an exclusive or: seed and position must not be exchangeable.
        words = ids.astype(np.uint64)
        words *= _TIMES_GAMMA
        words += np.uint64(_mix((self._key + position * _GAMMA) & _MASK))
        words = _mix_each(words)
        words >>= _BY_REST
        # 52 bits, centred in their cells: never 0 or 1, where the logarithms are infinite.
        numbers = words.astype(np.float64)
        numbers += 0.5
        numbers *= 2.0**-_BITS
        for _ in range(2):
            np.log(numbers, out=numbers)
            np.negative(numbers, out=numbers)
        return numbers
