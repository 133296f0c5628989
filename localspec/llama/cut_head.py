"""CutHead: a model whose last projection has rows for a part of the vocabulary only; to others it looks like a whole one.

llama.cpp gives input and output the same vocabulary, so such a file has none: tokens go in as rows of the embedding, which
the file keeps behind its tensors, and logits come out for the ids that were kept. All other ids have -inf.
"""

import ctypes

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.model import Logits
from localspec.llama.backend import initialise, library_function

_F32 = 0


class _Traits(ctypes.Structure):
    """ggml's `ggml_type_traits`, as far as it is asked for."""

    _fields_ = [
        ("type_name", ctypes.c_char_p),
        ("block_size", ctypes.c_int64),
        ("block_size_interleave", ctypes.c_int64),
        ("type_size", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.c_void_p),
    ]


_TO_FLOAT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class CutHead:
    """What goes into such a model, and what comes out of it.

    Args:
        ids: of the rows of its head, ascending.
        embedding: a packed row of the input embedding for every id, shape (n_vocab, bytes of a row).
        type_id: ggml's number of the type that it is packed in.
        n_embd: elements of a row.

    Attributes:
        ids: likewise.
        n_vocab: ids that there are.
        n_embd: likewise.
    """

    def __init__(
        self, ids: NDArray[np.int64], embedding: NDArray[np.uint8], type_id: int, n_embd: int
    ) -> None:
        initialise()
        self.ids = ids
        self.n_vocab = len(embedding)
        self.n_embd = n_embd
        self._embedding = embedding
        self._to_float = None if type_id == _F32 else _to_float(type_id)

    def embed(self, tokens: list[int] | tuple[int, ...], out: NDArray[np.float32]) -> None:
        """Write the embedding of tokens, each of them below `n_vocab`, to `out`, shape (n, n_embd)."""
        packed = np.ascontiguousarray(self._embedding[tokens])  # a copy: of a mapping only these
        if self._to_float is None:
            out[:] = packed.view(np.float32)
        else:
            self._to_float(packed.ctypes.data, out.ctypes.data, out.size)

    def widen(self, rows: Logits, wide: NDArray[np.float32]) -> None:
        """Write rows of the head to `wide`, shape (n, n_vocab), which is -inf wherever nothing was written before."""
        for narrow, row in zip(rows, wide, strict=True):
            row[self.ids] = narrow


def _to_float(type_id: int) -> "ctypes._CFunctionType":
    """Return ggml's function from packed elements to floats: from, to, how many."""
    traits_of = library_function("ggml_get_type_traits", ctypes.POINTER(_Traits), ctypes.c_int)
    address = traits_of(type_id).contents.to_float
    assert address, "every type that weights come in has one"  # noqa: S101
    return _TO_FLOAT(address)
