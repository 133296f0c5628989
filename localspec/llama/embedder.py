"""Embedder: texts become vectors of length 1, several in a pass, pooled as the model's file says."""

import ctypes
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.cancel import CancelFlag
from localspec.errors import ModelLoadError, PassFailed
from localspec.llama.batch import Part
from localspec.llama.model import LlamaModel
from localspec.llama.native import native
from localspec.llama.native_context import NativeContext
from localspec.options import LoadOptions

_AUTO = -1
_NONE, _MEAN, _RANK = 0, 1, 4
"""llama.cpp's numbers of ways to pool."""
_TOKENS_OF_A_TEXT, _TOKENS_OF_A_PASS = 512, 256
"""At most; a longer text is a pass by itself. llama.cpp reserves a row of logits for each token, and computes attention over
all texts of a pass: two of 250 tokens together take a third longer than one after the other."""
_TEXTS_OF_A_PASS = 32

Vectors = NDArray[np.float32]


class Embedder:
    """Makes vectors of texts, one caller at a time.

    Args:
        model: whose vectors; closing it closes this. One whose file names no pooling is a model for text: the mean of its
            last layer's rows says a little.

    Attributes:
        width: floats of a vector.
        most_tokens: of a text; what is longer is cut.

    Raises:
        ModelLoadError: it ranks texts instead of making vectors, or llama.cpp cannot make a context.
    """

    def __init__(self, model: LlamaModel) -> None:
        tokens = min(_TOKENS_OF_A_TEXT, model.n_ctx_train)
        options = replace(model.options, n_ctx=tokens, n_batch=tokens)
        self._native = _PoolingContext(model, options, tokens)
        self._tokenize = model.vocabulary.tokenize
        self._turn = threading.Lock()
        self.width = int(native.llama_model_n_embd_out(model.handle))
        self.most_tokens = self._native.n_batch

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Return a vector of each text, shape (len(texts), width).

        Raises:
            PassFailed: llama.cpp failed.
        """
        rows = np.zeros((len(texts), self.width), np.float32)
        tokens = [self._tokens(each) for each in texts]
        # Texts of like length fill passes best.
        order = sorted(range(len(texts)), key=lambda at: len(tokens[at]))
        with self._turn:
            for some in _passes(order, tokens):
                rows[some] = self._native.pooled([tokens[at] for at in some], self.width)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        rows /= np.maximum(lengths, np.finfo(np.float32).tiny)
        return rows

    def _tokens(self, text: str) -> list[int]:
        """Return a text's tokens, with what the file wants around them; of a long one the first, and its end."""
        tokens = self._tokenize(text, add_special=True, parse_special=False) or [0]
        if len(tokens) <= self.most_tokens:
            return tokens
        return [*tokens[: self.most_tokens - 1], tokens[-1]]


def _passes(order: Sequence[int], tokens: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield which texts go into a pass, in this order, as many as there is room for."""
    some, size = list[int](), 0
    for at in order:
        if some and (size + len(tokens[at]) > _TOKENS_OF_A_PASS or len(some) == _TEXTS_OF_A_PASS):
            yield some
            some, size = [], 0
        some.append(at)
        size += len(tokens[at])
    if some:
        yield some


class _PoolingContext(NativeContext):
    """A context of several short sequences that share its cells, of which each gives one vector."""

    # A question comes after a pause, and is a pass of ten milliseconds: looking on for forty would be most of it.
    _moments = 1

    def __init__(self, model: LlamaModel, options: LoadOptions, tokens: int) -> None:
        pooling = _pooling(model)
        if pooling == _RANK:
            raise ModelLoadError(
                f"{model.path} ranks texts, and makes no vectors: choose an embedding model"
            )
        self._pooling = pooling or _MEAN
        super().__init__(model, CancelFlag(), options, tokens, _TEXTS_OF_A_PASS)

    def _params(self, options: LoadOptions, rows: int) -> native.llama_context_params:
        params = super()._params(options, rows)
        params.n_ctx = rows  # all of them together
        params.kv_unified = True
        params.embeddings = True
        params.pooling_type = self._pooling
        params.flash_attn_type = _AUTO  # where it is slower, in narrow passes, there are none
        return params

    def _truncates(self) -> bool:
        return False

    def pooled(self, texts: Sequence[Sequence[int]], width: int) -> Vectors:
        """Return a vector of each text, as the model has it."""
        native.llama_memory_clear(self._memory(), False)
        self.decode([Part(at, each, 0, len(each)) for at, each in enumerate(texts)])
        return np.stack([self._vector(at, width) for at in range(len(texts))])

    def _vector(self, sequence: int, width: int) -> Vectors:
        vector = native.llama_get_embeddings_seq(self.handle, sequence)
        if not vector:
            raise PassFailed("llama.cpp returned no vector: this is a bug in localspec, report it")
        return np.ctypeslib.as_array(vector, (width,)).astype(np.float32)


def _pooling(model: LlamaModel) -> int:
    """Return how a model's file says that vectors are pooled; 0 where it does not."""
    architecture = _value(model, "general.architecture")
    return int(_value(model, f"{architecture}.pooling_type") or _NONE)


def _value(model: LlamaModel, key: str) -> str:
    """Return the value of a key of a model's file, as text; empty without one."""
    room = ctypes.create_string_buffer(128)
    count = native.llama_model_meta_val_str(model.handle, key.encode(), room, len(room))
    return room.value.decode(errors="replace") if count > 0 else ""
