"""A LoRA adapter made a part of its model's weights, so that it costs nothing when the model is used."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.errors import ModelFileError
from localspec.llama.unpack import unpacking
from localspec.models.gguf import read_header
from localspec.models.gguf_encoding import GGML_TYPES
from localspec.models.gguf_layout import Placed, read_layout
from localspec.models.gguf_writer import NewTensor, copied, write_gguf
from localspec.storage.files import private_opener
from localspec.storage.paths import shown

_F16 = 1
_ROWS = 1024
_A, _B = ".lora_a", ".lora_b"


def write_adapted(source: Path, lora: Path, destination: Path) -> None:
    """Write a model with an adapter added to its weights; those that it changes become F16.

    Args:
        source: the model, in one file.
        lora: the adapter, for such a model.
        destination: a new file.

    Raises:
        ModelFileError: the adapter does not fit, or is of a kind that cannot be added.
        OSError: the disk does not take it.
    """
    layout = read_layout(source)
    added = _added(lora)
    shapes = {tensor.name: tensor.shape for tensor in layout.tensors}
    for name, (first, second) in added.items():
        if shapes.get(name) != (first.shape[1], second.shape[0]):
            raise ModelFileError(
                f"{shown(lora)} does not fit {shown(source)}: {name} has another shape there, or is missing"
            )
    with (
        source.open("rb") as original,
        open(destination, "xb", opener=private_opener) as file,
    ):
        tensors = []
        for each in layout.tensors:
            if each.name not in added:
                tensors.append(NewTensor(each.name, each, copied(original, each)))
                continue
            like = replace(each, type_id=_F16, size_bytes=2 * each.shape[0] * each.shape[1])
            read = _reader(original.fileno(), each)
            tensors.append(NewTensor(each.name, like, _sum(each, read, *added[each.name])))
        for _ in write_gguf(file, layout.version, layout.values, tensors, layout.alignment):
            pass


def _added(lora: Path) -> Mapping[str, tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Return what an adapter adds to matrices: by name, factors of shapes (rank, columns) and (rows, rank)."""
    header, layout = read_header(lora), read_layout(lora)
    alpha = header.metadata.get("adapter.lora.alpha")
    placed = {tensor.name: tensor for tensor in layout.tensors}
    names = [name.removesuffix(_A) for name in placed if name.endswith(_A)]
    if (
        len(placed) != 2 * len(names)
        or not isinstance(alpha, float)
        or any(name + _B not in placed or name == "token_embd.weight" for name in names)
    ):
        raise ModelFileError(
            f"{shown(lora)} changes more than matrices of layers: use it with --draft-lora, not with tailor"
        )
    with lora.open("rb") as file:
        found = {}
        for name in names:
            first, second = (_matrix(placed[name + part], file.fileno()) for part in (_A, _B))
            scale = alpha / len(first) if alpha else 1.0  # as llama.cpp has it
            found[name] = first, (second * np.float32(scale))
    return found


def _matrix(placed: Placed, file: int) -> NDArray[np.float32]:
    return _reader(file, placed)(0, placed.shape[1])


def _reader(file: int, placed: Placed) -> Callable[[int, int], NDArray[np.float32]]:
    """Return what reads rows of a matrix, from one to another."""
    columns, row_bytes = placed.shape[0], GGML_TYPES[placed.type_id].row_bytes(placed.shape[0])
    assert row_bytes, "the header was found sound"  # noqa: S101
    unpack = unpacking(placed.type_id)

    def read(start: int, end: int) -> NDArray[np.float32]:

        content = os.pread(file, (end - start) * row_bytes, placed.start + start * row_bytes)
        packed = np.frombuffer(content, np.uint8).reshape(end - start, row_bytes)
        out = np.empty((end - start, columns), np.float32)
        unpack(packed, out)
        return out

    return read


def _sum(
    placed: Placed,
    read: Callable[[int, int], NDArray[np.float32]],
    first: NDArray[np.float32],
    second: NDArray[np.float32],
) -> Iterator[bytes]:
    """Yield a matrix with the product of two factors added, as F16."""
    rows = placed.shape[1]
    for start in range(0, rows, _ROWS):
        end = min(start + _ROWS, rows)
        yield (read(start, end) + second[start:end] @ first).astype("<f2").tobytes()
