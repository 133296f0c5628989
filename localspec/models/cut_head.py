"""Models whose last projection has rows for a part of the vocabulary only: how such a file is made, and read.

For llama.cpp such a file has no tokenizer and a small vocabulary. What others need to know stands beside it: the tokenizer as
it was, its kind under a key of our own, and the ids of the rows; and behind the last tensor, the whole input embedding.
"""

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from localspec.errors import ModelFileError
from localspec.models.gguf import GgufHeader, read_header
from localspec.models.gguf_encoding import GGML_TYPES
from localspec.models.gguf_layout import Placed, read_layout
from localspec.models.gguf_writer import NewTensor, copied, number, text, write_gguf
from localspec.models.tokenizer import CUT_MODEL
from localspec.storage.files import private_opener
from localspec.storage.paths import shown

_IDS, _TYPE = "localspec.head.ids", "localspec.embedding.type"
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
# Architectures that do nothing to an embedding but add to it, and whose head may be the embedding again.
_PLAIN = {"llama", "qwen2", "qwen3"}


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """What such a file says.

    Args:
        ids: of the rows of its head, ascending.
        embedding: a packed row for every id, mapped, shape (n_vocab, bytes of a row).
        type_id: ggml's number of its type.
        n_embd: elements of a row.
    """

    ids: NDArray[np.int64]
    embedding: NDArray[np.uint8]
    type_id: int
    n_embd: int


def can_cut(header: GgufHeader) -> bool:
    """Return whether the head of a model can be cut."""
    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    return (
        header.architecture in _PLAIN
        and f"{header.architecture}.embedding_scale" not in header.metadata
        and "output.bias" not in shapes
        and shapes.get(_EMBEDDING, ())[1:] == (header.tokenizer.n_vocab,)
        and not header.has_cut_head
    )


def write_cut(source: Path, destination: Path, ids: NDArray[np.int64]) -> None:
    """Write a model with the rows of its head for some ids only.

    Args:
        source: a model that can be cut, in one file.
        destination: a new file.
        ids: ascending.

    Raises:
        OSError: the disk does not take it.
    """
    layout, architecture = read_layout(source), read_header(source).architecture
    placed = {tensor.name: tensor for tensor in layout.tensors}
    embedding, head = placed[_EMBEDDING], placed[_head_name(placed)]
    row = head.size_bytes // head.shape[1]
    cut = replace(head, name=_EMBEDDING, shape=(head.shape[0], len(ids)), size_bytes=row * len(ids))
    values = dict(layout.values)
    values[CUT_MODEL] = values["tokenizer.ggml.model"]
    values["tokenizer.ggml.model"] = text("no_vocab")
    values[f"{architecture}.vocab_size"] = number(len(ids))
    values[_IDS] = struct.pack("<IIQ", 9, 4, len(ids)) + ids.astype("<u4").tobytes()
    values[_TYPE] = number(embedding.type_id)
    with (
        source.open("rb") as original,
        open(destination, "xb", opener=private_opener) as file,
    ):
        tensors = [
            NewTensor(each.name, each, copied(original, each))
            for each in layout.tensors
            if each.name not in {_EMBEDDING, _OUTPUT}
        ]
        tensors.append(NewTensor(_EMBEDDING, cut, _rows(original, head, row, ids)))
        for _ in write_gguf(file, layout.version, values, tensors, layout.alignment):
            pass
        file.writelines(copied(original, embedding))


def read_cut(path: Path) -> Cut | None:
    """Return what a file with a cut head says; None of other files.

    Raises:
        ModelUnavailable: there is no such file, or it cannot be read.
        ModelFileError: it is no sound GGUF, or contradicts itself.
    """
    header = read_header(path)
    if not header.has_cut_head:
        return None
    ids, type_id = header.metadata.get(_IDS), header.number(_TYPE)
    n_embd = header.number(f"{header.architecture}.embedding_length") or 0
    n_vocab = header.tokenizer.n_vocab
    kind = GGML_TYPES.get(-1 if type_id is None else type_id)
    row = kind.row_bytes(n_embd) if kind is not None else None
    sound = (
        isinstance(ids, np.ndarray)
        and np.issubdtype(ids.dtype, np.integer)
        and len(ids) > 0
        and bool(np.all(np.diff(ids.astype(np.int64)) > 0))
        and int(ids[0]) >= 0
        and int(ids[-1]) < n_vocab
    )
    if not sound or not row or type_id is None or header.size_bytes < n_vocab * row:
        raise ModelFileError(
            f"{shown(path)} is damaged (its head and its embedding do not fit): tailor it again"
        )
    assert isinstance(ids, np.ndarray)  # noqa: S101 - it is sound
    start = header.size_bytes - n_vocab * row
    embedding = np.memmap(path, np.uint8, "r", start, (n_vocab, row))
    return Cut(ids.astype(np.int64), embedding, type_id, n_embd)


def _head_name(names: Collection[str]) -> str:
    """Return the name of a model's last projection: the embedding again where it has none of its own."""
    return _OUTPUT if _OUTPUT in names else _EMBEDDING


def _rows(original: BinaryIO, head: Placed, row: int, ids: NDArray[np.int64]) -> Iterator[bytes]:
    """Yield the rows of some ids, neighbours at once."""
    ends = np.flatnonzero(np.diff(ids) > 1) + 1
    for run in np.split(ids, ends):
        start = head.start + int(run[0]) * row
        yield from copied(original, replace(head, start=start, size_bytes=row * len(run)))
