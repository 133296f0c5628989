"""Models made from weights at hand, to measure what drafting earns: heavier ones, and hopeless ones.

A heavier target computes the same function at a multiple of the cost: the layers that are added
write nothing into the residual stream, since the last matrix of either half of each is zero.
A hopeless draft model has the tokenizer and the cost of the real one, and its blocks of weights in
another order, so that what it proposes means nothing.

Both are labelled: in their file's name, and in `general.name`.
"""

import hashlib
import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from localspec.errors import LocalspecError, ModelFileError, UsageError
from localspec.models.gguf_header import read_header
from localspec.models.gguf_layout import GgufLayout, Placed, read_layout
from localspec.models.gguf_values import Reader
from localspec.models.gguf_writer import (
    CHUNK_BYTES,
    NewTensor,
    copied,
    number,
    text,
    write_gguf,
    zeros,
)
from localspec.models.locks import locked
from localspec.models.paths import shown
from localspec.models.progress import SourceFailedError
from localspec.models.space import require_space

MOST_LAYERS = 512  # llama.cpp's LLAMA_MAX_LAYERS
_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
# What each half of a layer adds to the residual stream is a product of one of these.
_LAST_OF_ATTENTION = {"attn_output.weight"}
_LAST_OF_FEED_FORWARD = {"ffn_down.weight", "ffn_down_exps.weight"}
_ZERO = re.compile(r"(attn_output|ffn_down|ffn_down_exps|ffn_down_shexp)\.(weight|bias)")
# Layers of these do something else beside, or instead.
_FOREIGN = re.compile(r"ssm_|shortconv|time_mix|channel_mix|per_layer|altup|laurel|inp_gate|nextn")
_ARRAY, _NUMBER_BYTES = 9, {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

OnShare = Callable[[float], None]


@dataclass(frozen=True, slots=True, eq=False)
class _Recipe:
    """What a made file consists of, and how it is called."""

    label: str
    values: dict[str, bytes]
    tensors: Sequence[tuple[str, Placed, Callable[[BinaryIO], Iterator[bytes]]]]

    @property
    def size_bytes(self) -> int:
        return sum(like.size_bytes for _, like, _ in self.tensors)


def heavier(source: Path, times: int, directory: Path, on_share: OnShare = lambda _: None) -> Path:
    """Return a file with `times` the layers of `source` that computes the same logits.

    It is made once; the same source gives the same file again.

    Args:
        source: a GGUF of a plain transformer.
        times: 2 or more.
        directory: where to keep it.
        on_share: called with the share of it that is written, 0 to 1.

    Raises:
        UsageError: `times` is out of range.
        ModelFileError: the file is no sound GGUF, or its layers are of another kind.
        LocalspecError: the disk has no room for it.
    """
    layout, n_layers, architecture = _transformer(source)
    if times < 2 or times * n_layers > MOST_LAYERS:
        raise UsageError(
            f"synthetic is {times}: it must be from 2 to {MOST_LAYERS // n_layers} for a model of "
            f"{n_layers} layers"
        )
    values = _labelled(layout, f"synthetic {times}x")
    values[f"{architecture}.block_count"] = number(times * n_layers)
    for key, value in layout.values.items():
        if key.startswith(f"{architecture}."):
            values[key] = _by_layer(values[key], value, n_layers, times)
    tensors = [(t.name, t, _copying(t)) for t in layout.tensors]
    for copy in range(1, times):
        for tensor in layout.tensors:
            if match := _BLOCK.match(tensor.name):
                name = f"blk.{copy * n_layers + int(match[1])}.{match[2]}"
                zero = _ZERO.fullmatch(match[2]) is not None
                tensors.append((name, tensor, _zeroing(tensor) if zero else _copying(tensor)))
    return _made(source, layout, _Recipe(f"x{times}", values, tensors), directory, on_share)


def hopeless(
    source: Path, directory: Path, seed: int = 0, on_share: OnShare = lambda _: None
) -> Path:
    """Return a file like `source`, of the same speed and tokenizer, whose logits are noise.

    The blocks of every matrix are shuffled, so every number stays a plausible one.

    Args:
        source: any GGUF.
        directory: where to keep it.
        seed: the same one gives the same file.
        on_share: called with the share of it that is written, 0 to 1.

    Raises:
        ModelFileError: the file is no sound GGUF.
        LocalspecError: the disk has no room for it.
    """
    layout = read_layout(source)
    values = _labelled(layout, "random weights")
    tensors = [
        (t.name, t, _shuffling(t, (seed, index)) if len(t.shape) > 1 else _copying(t))
        for index, t in enumerate(layout.tensors)
    ]
    return _made(source, layout, _Recipe(f"random{seed}", values, tensors), directory, on_share)


def _transformer(source: Path) -> tuple[GgufLayout, int, str]:
    """Return layout, layers and architecture of a file whose layers can be doubled."""
    header = read_header(source)
    n_layers = header.metadata.get(f"{header.architecture}.block_count")
    layout = read_layout(source)
    parts: dict[int, set[str]] = {}
    for tensor in layout.tensors:
        if match := _BLOCK.match(tensor.name):
            parts.setdefault(int(match[1]), set()).add(match[2])
    plain = (
        isinstance(n_layers, int)
        and set(parts) == set(range(n_layers))
        and all(
            own & _LAST_OF_ATTENTION
            and own & _LAST_OF_FEED_FORWARD
            and not any(_FOREIGN.match(part) for part in own)
            for own in parts.values()
        )
    )
    if not plain or header.architecture is None or not isinstance(n_layers, int):
        raise ModelFileError(
            f"{shown(source)} cannot be made heavier: its layers ({header.architecture}) are not "
            "those of a plain transformer; choose another target"
        )
    return layout, n_layers, header.architecture


def _labelled(layout: GgufLayout, label: str) -> dict[str, bytes]:
    name = layout.values.get("general.name", text("model"))
    reader = Reader(memoryview(name))
    return {**layout.values, "general.name": text(f"{reader.value()} ({label})")}


def _by_layer(now: bytes, original: bytes, n_layers: int, times: int) -> bytes:
    """Return an array that has a number for each layer repeated; anything else as it is now."""
    kind, *_ = struct.unpack_from("<I", original)
    if kind != _ARRAY:
        return now
    element, count = struct.unpack_from("<IQ", original, 4)
    if count != n_layers or element not in _NUMBER_BYTES:
        return now
    return struct.pack("<IIQ", _ARRAY, element, count * times) + original[16:] * times


def _copying(tensor: Placed) -> Callable[[BinaryIO], Iterator[bytes]]:
    return lambda file: copied(file, tensor)


def _zeroing(tensor: Placed) -> Callable[[BinaryIO], Iterator[bytes]]:
    return lambda _: zeros(tensor)


def _shuffling(tensor: Placed, seed: tuple[int, int]) -> Callable[[BinaryIO], Iterator[bytes]]:
    def content(file: BinaryIO) -> Iterator[bytes]:
        rng = np.random.default_rng(seed)
        rest, block = b"", tensor.block_bytes
        for chunk in copied(file, tensor):
            whole = len(rest + chunk) // block * block
            blocks = np.frombuffer((rest + chunk)[:whole], dtype=np.dtype((np.void, block)))
            rest = (rest + chunk)[whole:]
            yield blocks[rng.permutation(len(blocks))].tobytes()

    return content


def _made(
    source: Path, layout: GgufLayout, recipe: _Recipe, directory: Path, on_share: OnShare
) -> Path:
    """Write a file under the lock of its directory, unless it is there already."""
    if any(tensor.type_id < 0 for tensor in layout.tensors):
        raise ModelFileError(
            f"{shown(source)} has tensors of a type that is newer than this program: choose another file"
        )
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    destination = directory / f"{_stem(source)}-{recipe.label}-{_fingerprint(source)}.gguf"
    with locked(directory):
        if destination.exists():
            return destination
        for orphan in directory.glob("*.partial"):  # of a process that was killed
            orphan.unlink()
        try:
            require_space(directory, recipe.size_bytes + CHUNK_BYTES)
        except SourceFailedError as error:
            raise LocalspecError(f"{destination.name} {error}: make room") from None
        partial = destination.with_suffix(".partial")
        try:
            _write(source, layout, recipe, partial, on_share)
            partial.replace(destination)
        finally:
            partial.unlink(missing_ok=True)
    return destination


def _write(
    source: Path, layout: GgufLayout, recipe: _Recipe, partial: Path, on_share: OnShare
) -> None:
    with source.open("rb") as original, partial.open("xb") as file:
        tensors = [
            NewTensor(name, like, content(original)) for name, like, content in recipe.tensors
        ]
        for written in write_gguf(file, layout.version, recipe.values, tensors, layout.alignment):
            on_share(written / recipe.size_bytes)
        file.flush()
        os.fsync(file.fileno())


def _stem(source: Path) -> str:
    """Return a file's name as far as it tells people something: a blob's is its sha256."""
    stem = re.sub(r"[^\w.-]", "_", source.stem)
    return stem if len(stem) <= 40 else stem[:12]


def _fingerprint(source: Path) -> str:
    """Return what changes when the file does."""
    state = source.resolve().stat()
    text_ = f"{source.resolve()}\0{state.st_size}\0{state.st_mtime_ns}"
    return hashlib.sha256(text_.encode()).hexdigest()[:8]
