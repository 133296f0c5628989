"""Files that are made from a model at hand: once, whole or not at all, and labelled as made.

Knows no tensors by their meaning.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from lab.synthetic.gguf_layout import GgufLayout, Placed
from lab.synthetic.gguf_writer import CHUNK_BYTES, NewTensor, copied, text, write_gguf
from localspec.errors import LocalspecError, ModelFileError
from localspec.models.gguf_encoding import Reader
from localspec.models.transfer import SourceFailedError, require_space
from localspec.storage.files import private_directory, private_opener
from localspec.storage.locks import locked
from localspec.storage.paths import shown

OnShare = Callable[[float], None]
Content = Callable[[BinaryIO], Iterator[bytes]]
"""Given the source, the bytes of a tensor in chunks."""


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """What a made file consists of.

    Args:
        label: what its name says was done.
        values: of its header, encoded.
        tensors: name, shape and type, and content of each.
    """

    label: str
    values: dict[str, bytes]
    tensors: Sequence[tuple[str, Placed, Content]]

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(like.size_bytes for _, like, _ in self.tensors)


def labelled(layout: GgufLayout, label: str) -> dict[str, bytes]:
    """Return the values of a header, with a label behind the model's name."""
    name = layout.values.get("general.name", text("model"))
    reader = Reader(memoryview(name))
    return {**layout.values, "general.name": text(f"{reader.value()} ({label})")}


def copying(tensor: Placed) -> Content:
    """Return a tensor's own bytes as content."""
    return lambda file: copied(file, tensor)


def made_file(
    source: Path, layout: GgufLayout, recipe: Recipe, directory: Path, on_share: OnShare
) -> Path:
    """Write a file under the lock of its directory, unless it is there already; return its path.

    Args:
        source: what it is made from; when that changes, another file is made.
        layout: of the source.
        recipe: what it is to be.
        directory: where to keep it.
        on_share: called with the share of it that is written, 0 to 1.

    Raises:
        ModelFileError: the source has tensors of an unknown type.
        LocalspecError: the disk has no room for it.
    """
    if any(tensor.type_id < 0 for tensor in layout.tensors):
        raise ModelFileError(
            f"{shown(source)} has tensors of a type that is newer than this program: choose another file"
        )
    private_directory(directory)
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
    source: Path, layout: GgufLayout, recipe: Recipe, partial: Path, on_share: OnShare
) -> None:
    with (
        source.open("rb") as original,
        open(partial, "xb", opener=private_opener) as file,
    ):
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
