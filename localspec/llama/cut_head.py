"""CutHead: a model whose last projection has rows for a part of the vocabulary only; to others it looks like a whole one.

llama.cpp gives input and output the same vocabulary, so such a file has none: tokens go in as rows of the embedding, which
the file keeps behind its tensors, and logits come out for the ids that were kept. All other ids have -inf.
"""

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.model import Logits
from localspec.llama.unpack import unpacking


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
        self.ids = ids
        self.n_vocab = len(embedding)
        self.n_embd = n_embd
        self._embedding = embedding
        self._unpack = unpacking(type_id)

    def embed(self, tokens: list[int] | tuple[int, ...], out: NDArray[np.float32]) -> None:
        """Write the embedding of tokens, each of them below `n_vocab`, to `out`, shape (n, n_embd)."""
        self._unpack(self._embedding[tokens], out)  # of a mapping, only these rows are read

    def widen(self, rows: Logits, wide: NDArray[np.float32]) -> None:
        """Write rows of the head to `wide`, shape (n, n_vocab), which is -inf wherever nothing was written before."""
        for narrow, row in zip(rows, wide, strict=True):
            row[self.ids] = narrow
