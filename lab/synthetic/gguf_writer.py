"""Writes a GGUF file from encoded values and tensors whose bytes come in chunks.

Nothing is kept in memory but the header and one chunk.

Source: the GGUF specification, versions 2 and 3.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from lab.synthetic.gguf_layout import GgufLayout, Placed

CHUNK_BYTES = 8 << 20
Value = str | float | Sequence[float] | Sequence[str]


@dataclass(frozen=True, slots=True, eq=False)
class NewTensor:
    """A tensor to be written: shape, type and size of `like`, and what it holds."""

    name: str
    like: Placed
    content: Iterable[bytes]


def write_gguf(
    file: BinaryIO,
    version: int,
    values: Mapping[str, bytes],
    tensors: Sequence[NewTensor],
    alignment: int,
) -> Iterator[int]:
    """Write a file, yielding the bytes of weights that are written so far.

    Args:
        file: empty, open for writing.
        version: 2 or 3.
        values: by key, type and content as they are encoded; see `encoded`.
        tensors: in the order in which they are to lie.
        alignment: a power of two, as the values say or 32.
    """
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
    header += b"".join(_string(key.encode()) + value for key, value in values.items())
    offset = 0
    for tensor in tensors:
        shape = struct.pack(
            f"<I{len(tensor.like.shape)}Q", len(tensor.like.shape), *tensor.like.shape
        )
        place = struct.pack("<IQ", tensor.like.type_id, offset)
        header += _string(tensor.name.encode()) + shape + place
        offset = _aligned(offset + tensor.like.size_bytes, alignment)
    file.write(header.ljust(_aligned(len(header), alignment), b"\0"))
    written = 0
    for tensor in tensors:
        size = 0
        for chunk in tensor.content:
            file.write(chunk)
            size += len(chunk)
            yield written + size
        assert size == tensor.like.size_bytes, tensor.name
        file.write(bytes(_aligned(size, alignment) - size))
        written += size


def write_model(
    source: Path,
    destination: Path,
    layout: GgufLayout,
    values: Mapping[str, bytes],
    tensors: Callable[[BinaryIO], Sequence[NewTensor]],
) -> None:
    """Write a model that is made from another one, whole or not at all; one that is there stays.

    Args:
        source: the other one.
        destination: the new file; its folder is made.
        layout: of the source.
        values: of the new file.
        tensors: returns those of the new file, reading the source.

    Raises:
        OSError: the disk has no room for it.
    """
    if destination.exists():
        return
    destination.parent.mkdir(parents=True, exist_ok=True)
    partial = destination.with_suffix(".partial")
    try:
        with source.open("rb") as original, partial.open("wb") as file:
            written = write_gguf(file, layout.version, values, tensors(original), layout.alignment)
            for _ in written:
                pass
        partial.replace(destination)
    finally:
        partial.unlink(missing_ok=True)


def copied(source: BinaryIO, placed: Placed) -> Iterator[bytes]:
    """Return the bytes of a tensor, in chunks."""
    left = placed.size_bytes
    at = placed.start
    while left:
        source.seek(at)  # another tensor may have been read since
        chunk = source.read(min(left, CHUNK_BYTES))
        if not chunk:
            raise OSError(f"{placed.name} ends early: the file was changed")
        yield chunk
        at += len(chunk)
        left -= len(chunk)


def zeros(placed: Placed) -> Iterator[bytes]:
    """Return as many zero bytes: in every ggml type they mean a tensor of zeros.

    A block's scale is 0 then, or (MXFP4) its elements are.
    """
    for start in range(0, placed.size_bytes, CHUNK_BYTES):
        yield bytes(min(CHUNK_BYTES, placed.size_bytes - start))


def encoded(value: Value) -> bytes:
    """Return a value as it is encoded, its type first; whole numbers are unsigned of 32 bits, those in a sequence signed."""
    match value:
        case str():
            return struct.pack("<I", 8) + _string(value.encode())
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case [str(), *_]:
            strings = b"".join(_string(str(each).encode()) for each in value)
            return struct.pack("<IIQ", 9, 8, len(value)) + strings
        case _:
            kind, letter = (6, "f") if isinstance(value[0], float) else (5, "i")
            return struct.pack(f"<IIQ{len(value)}{letter}", 9, kind, len(value), *value)


def _string(encoded: bytes) -> bytes:
    return struct.pack("<Q", len(encoded)) + encoded


def _aligned(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment
