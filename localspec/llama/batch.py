"""Batch: llama.cpp's struct for the tokens of one pass, filled through numpy views."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.llama.native import native


@dataclass(frozen=True, slots=True)
class Part:
    """What a pass evaluates of one sequence.

    Args:
        sequence: llama.cpp's number of it.
        tokens: to evaluate.
        n_past: position of the first of them.
        rows: of how many, at their end, the logits are wanted.
        embeddings: what goes in beside each token, where that is wanted; shape (len(tokens), width).
        branches: positions of as many tokens at the end, descending, each an alternative to one of the others; see
            `Pass`.
        skipped: how many tokens come before it that take no position.
        positions: of its tokens, where they do not simply ascend from `n_past`; shape (sections, len(tokens)).
    """

    sequence: int
    tokens: Sequence[int]
    n_past: int
    rows: int
    embeddings: NDArray[np.float32] | None = None
    branches: tuple[int, ...] = ()
    skipped: int = 0
    positions: NDArray[np.int32] | None = None

    @property
    def place(self) -> int:
        """How many tokens come before it."""
        return self.n_past + self.skipped

    @property
    def chain(self) -> Sequence[int]:
        """The tokens that go on from one another."""
        return (
            self.tokens[: len(self.tokens) - len(self.branches)] if self.branches else self.tokens
        )


class Batch:
    """Room for `n_tokens` tokens of sequences 0 to `n_sequences` - 1, allocated once.

    A branch is a sequence of its own, from 1 on, beside the only other one. What comes before it in the pass
    belongs to both.

    Args:
        n_tokens: how many.
        n_sequences: how many.
        width: floats that go in beside each token.
        with_tokens: whether there are tokens; else there are floats alone.
        sections: of a place, where floats stand alone: 4 for M-RoPE, of which text has three that are equal, and a zero.
        placeholder: the token that is read where an id is negative, since an encoder filled it for another model.

    Attributes:
        room: for how many tokens.
        width: floats beside each token, or instead of it.
    """

    def __init__(
        self,
        n_tokens: int,
        n_sequences: int = 1,
        *,
        width: int = 0,
        with_tokens: bool = True,
        sections: int = 1,
        placeholder: int = 0,
    ) -> None:
        self.room, self.width, self._placeholder = n_tokens, width, placeholder
        self._tokens = np.zeros(n_tokens, dtype=np.int32)
        self._embedded = np.zeros((n_tokens if width else 0, width), np.float32)
        self._positions = np.zeros(sections * n_tokens, dtype=np.int32)
        self._sections = sections
        self._wanted = np.zeros(n_tokens, dtype=np.int8)
        self._n_seqs = np.ones(n_tokens, dtype=np.int32)
        self._shared = False
        self._numbers = np.arange(n_sequences, dtype=np.int32)
        step = self._numbers.itemsize
        self._addresses = [self._numbers.ctypes.data + step * each for each in range(n_sequences)]
        self._sequences = np.full(n_tokens, self._addresses[0], dtype=np.uintp)
        self._offsets = np.arange(n_tokens, dtype=np.int32)
        self._struct = native.llama_batch(
            n_tokens=0,
            token=_pointer(self._tokens, native.llama_token) if with_tokens else None,
            embd=_pointer(self._embedded, ctypes.c_float) if width else None,
            pos=_pointer(self._positions, native.llama_pos),
            n_seq_id=_pointer(self._n_seqs, ctypes.c_int32),
            seq_id=_pointer(self._sequences, ctypes.POINTER(native.llama_seq_id)),
            logits=_pointer(self._wanted, ctypes.c_int8),
        )

    def fill(self, parts: Sequence[Part]) -> native.llama_batch:
        """Return the struct for what is to be evaluated of each sequence, in this order."""
        start = 0
        for part in parts:
            n = len(part.tokens)
            end = start + n
            self._tokens[start:end] = part.tokens
            if min(part.tokens, default=0) < 0:
                filled = self._tokens[start:end]
                filled[filled < 0] = self._placeholder
            np.add(self._offsets[:n], part.n_past, out=self._positions[start:end])
            self._wanted[start : end - part.rows] = 0
            self._wanted[end - part.rows : end] = 1
            self._sequences[start:end] = self._addresses[part.sequence]
            if part.embeddings is not None:
                self._embedded[start:end] = part.embeddings
            if part.branches or self._shared:
                self._share(part, start, end)
            start = end
        if self._sections > 1:
            self._positions[start : 3 * start].reshape(2, start)[:] = self._positions[:start]
            self._positions[3 * start : 4 * start] = 0
        if parts and parts[0].positions is not None:
            self._positions[: self._sections * start] = parts[0].positions.ravel()
        self._struct.n_tokens = start
        return self._struct

    def _share(self, part: Part, start: int, end: int) -> None:
        """Say which tokens belong to which branches."""
        branches = part.branches
        self._shared = bool(branches)
        self._n_seqs[:] = 1
        for number, position in enumerate(branches, start=1):
            at = end - len(branches) + number - 1
            # Deeper branches have lower numbers: the n that share a token are 1 to n, behind the sequence's own 0.
            self._n_seqs[start : start + position - part.n_past] += 1
            self._positions[at] = position
            self._sequences[at] = self._addresses[number]


def _pointer(array: np.ndarray, kind: type) -> object:
    return array.ctypes.data_as(ctypes.POINTER(kind))
