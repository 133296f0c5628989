"""Batch: llama.cpp's struct for the tokens of one pass, filled through numpy views."""

import ctypes

import llama_cpp.llama_cpp as native
import numpy as np


class Batch:
    """Room for `n_tokens` tokens of sequence 0, allocated once."""

    def __init__(self, n_tokens: int) -> None:
        self._tokens = np.zeros(n_tokens, dtype=np.int32)
        self._positions = np.zeros(n_tokens, dtype=np.int32)
        self._wanted = np.zeros(n_tokens, dtype=np.int8)
        self._n_seqs = np.ones(n_tokens, dtype=np.int32)
        self._sequence = np.zeros(1, dtype=np.int32)
        self._sequences = np.full(n_tokens, self._sequence.ctypes.data, dtype=np.uintp)
        self._offsets = np.arange(n_tokens, dtype=np.int32)
        self._struct = native.llama_batch(
            n_tokens=0,
            token=_pointer(self._tokens, native.llama_token),
            embd=None,
            pos=_pointer(self._positions, native.llama_pos),
            n_seq_id=_pointer(self._n_seqs, ctypes.c_int32),
            seq_id=_pointer(self._sequences, ctypes.POINTER(native.llama_seq_id)),
            logits=_pointer(self._wanted, ctypes.c_int8),
        )

    def fill(self, tokens: list[int], n_past: int, rows: int) -> native.llama_batch:
        """Return the struct for `tokens` from position `n_past` on, logits for the last `rows`."""
        n = len(tokens)
        self._tokens[:n] = tokens
        np.add(self._offsets[:n], n_past, out=self._positions[:n])
        self._wanted[: n - rows] = 0
        self._wanted[n - rows : n] = 1
        self._struct.n_tokens = n
        return self._struct


def _pointer(array: np.ndarray, kind: type) -> object:
    return array.ctypes.data_as(ctypes.POINTER(kind))
