"""A bounded reader of GGUF headers: what a model file says about itself, before llama.cpp sees it.

It loads no weights and needs tens of milliseconds where a full reader needs seconds. It recognises
a file that is no GGUF, or that was cut off anywhere, and says so in one line. Where a model was split,
the first file has the metadata, and every file some of the tensors. It does not know whether
llama.cpp supports the architecture.

Source: the GGUF specification; `llama_model_loader` and `gguf-split` of llama.cpp.
"""

import mmap
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from localspec.errors import ModelFileError, ModelUnavailable
from localspec.models.gguf_encoding import GGML_TYPES, CutOffError, MalformedError, Reader, Value
from localspec.models.tokenizer import TokenizerHeader, normal_tokens, tokenizer_header
from localspec.storage.paths import shown

MAGIC = b"GGUF"
VERSIONS = (2, 3)
# The largest vocabularies (262,144 tokens) make headers of 15 MB; a file that promises more than
# this is damaged, and walking it would take long.
MAX_HEADER_BYTES = 128 << 20
_MAX_DIMENSIONS = 4
_DEFAULT_ALIGNMENT = 32
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies: `offset` counts from the start of the tensor data, in bytes.

    `size_bytes` is None for a tensor type that is newer than this program.
    """

    name: str
    shape: tuple[int, ...]
    type_name: str
    offset: int
    size_bytes: int | None


@dataclass(frozen=True, slots=True, eq=False)
class GgufHeader:
    """What stands before the weights. `name` says which file it was, for messages."""

    name: str
    version: int
    metadata: Mapping[str, Value]
    tensors: tuple[TensorInfo, ...]
    size_bytes: int

    @property
    def architecture(self) -> str | None:
        """llama.cpp's name of the architecture, such as `qwen2`."""
        return self.text("general.architecture")

    @property
    def context_length(self) -> int | None:
        """The longest context that the model was trained for, in tokens."""
        return self.number(f"{self.architecture}.context_length")

    @property
    def chat_template(self) -> str | None:
        """The Jinja template that turns a conversation into a prompt."""
        return self.text("tokenizer.chat_template")

    @property
    def tool_template(self) -> str | None:
        """The template of conversations with tools, which may have one of their own."""
        return self.text("tokenizer.chat_template.tool_use") or self.chat_template

    @property
    def tokenizer(self) -> TokenizerHeader:
        """What the ids mean.

        Raises:
            ModelFileError: the file has no tokenizer, or a contradictory one.
        """
        return tokenizer_header(self.name, self.metadata)

    @property
    def normal_tokens(self) -> NDArray[np.bool_] | None:
        """Which ids the file calls normal, and names as nothing else; None where it does not say."""
        with suppress(ModelFileError):
            return normal_tokens(self.tokenizer)
        return None

    def text(self, key: str) -> str | None:
        """Return the value of a key where it is text, else None."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def number(self, key: str) -> int | None:
        """Return the value of a key where it is a whole number, else None."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_header(path: Path) -> GgufHeader:
    """Read the header of a file, and check that the file holds all the weights it promises.

    Raises:
        ModelUnavailable: there is no such file, or it cannot be read.
        ModelFileError: the file is no GGUF, or was cut off.
    """
    name = shown(path)
    try:
        if path.is_dir():
            raise ModelUnavailable(f"{name} is a directory: give the .gguf file in it")
        if path.exists() and not path.is_file():  # opening a named pipe would wait for ever
            raise ModelUnavailable(f"{name} is not a regular file: give a .gguf file")
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size == 0:
                raise ModelFileError(f"{name} is empty: download it again")
            # Private: some file systems (FUSE with direct I/O) cannot share a mapping.
            with mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as mapped:
                return parse_header(mapped, name=name)
    except FileNotFoundError:
        raise ModelUnavailable(
            f"there is no file {name}: check the path, or give the name of a known model"
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelUnavailable(f"{name} cannot be read ({reason}): check the file") from error


def last_header(path: Path) -> GgufHeader:
    """Return what `read_header` does; of the file that was read last, unless it changed, what was read of it."""
    try:
        stat = path.stat()
    except (OSError, ValueError):
        return read_header(path)  # which says why
    return _of_version(path, stat.st_ino, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=1)
def _of_version(path: Path, *_version: int) -> GgufHeader:
    return read_header(path)


def read_model(path: Path) -> GgufHeader:
    """Read the header of a model, of all its files where it comes in several.

    Args:
        path: the file, or the first of several.

    Raises:
        ModelUnavailable: there is no such file, or it cannot be read.
        ModelFileError: a file is no GGUF, was cut off, is missing, or belongs to another split.
    """
    first = last_header(path)
    others = (read_header(each) for each in other_shards(path, first))
    return merged([first, *others], first.name)


def model_files(path: Path) -> list[Path]:
    """Return the files of a model, itself and the others where it comes in several; raises as `read_model` does."""
    return [path, *other_shards(path, read_header(path))]


def merged(headers: Sequence[GgufHeader], name: str) -> GgufHeader:
    """Return the header of a model from those of its files, in order, under a name for messages."""
    return replace(
        headers[0],
        name=name,
        tensors=tuple(tensor for header in headers for tensor in header.tensors),
        size_bytes=sum(header.size_bytes for header in headers),
    )


def other_shards(path: Path, first: GgufHeader) -> Iterator[Path]:
    """Yield the further files of a split model, in order, each of them looked at; none of a whole one.

    llama.cpp opens the first file, and finds the others by `-00002-of-0000N.gguf`.

    Raises:
        ModelUnavailable: one cannot be read.
        ModelFileError: `path` is not the first, or one is missing or belongs to another split.
    """
    number, count = first.number("split.no") or 0, first.number("split.count") or 0
    if count < 2:
        return
    match, name = _SHARD.fullmatch(path.name), shown(path)
    if match is None or int(match[3]) != count:
        raise ModelFileError(
            f"{name} is file {number + 1} of {count} of a model, and llama.cpp finds the others "
            f"by names that end in -00001-of-{count:05}.gguf: name them so"
        )
    if number != 0 or int(match[2]) != 1:
        raise ModelFileError(
            f"{name} is file {number + 1} of {count} of a model: "
            f"give the first, {shown(f'{match[1]}-00001-of-{match[3]}.gguf')}"
        )
    for index in range(1, count):
        sibling = path.with_name(f"{match[1]}-{index + 1:05}-of-{match[3]}.gguf")
        if not sibling.exists():
            raise ModelFileError(
                f"{name} is one of {count} files, and {shown(sibling.name)} is not beside it: "
                "put all of them into one folder"
            )
        header = read_header(sibling)
        if (header.number("split.no"), header.number("split.count")) != (index, count):
            raise ModelFileError(
                f"{shown(sibling)} is not file {index + 1} of {count} of its model: download it again"
            )
        yield sibling


def parse_header(
    data: bytes | bytearray | mmap.mmap, *, name: str, size_bytes: int | None = None
) -> GgufHeader:
    """Read a header from the beginning of a file.

    Args:
        data: the file, or as much of its beginning as holds the whole header.
        name: what to call the file in messages.
        size_bytes: the size of the whole file; that of `data` when None.

    Raises:
        ModelFileError: the bytes are no GGUF header, or the file is too short for its weights.
    """
    size = len(data) if size_bytes is None else size_bytes
    with memoryview(data) as whole, whole[:MAX_HEADER_BYTES] as view:
        try:
            return _parse(Reader(view), name, size)
        except CutOffError as error:
            raise ModelFileError(
                f"{name} is cut off after {size} bytes or damaged ({error}): download it again"
            ) from error
        except MalformedError as error:
            raise ModelFileError(f"{name} is damaged ({error}): download it again") from error


def _parse(reader: Reader, name: str, size: int) -> GgufHeader:
    version = _version(reader, name)
    n_tensors = reader.count("tensors", least_bytes=24)
    n_values = reader.count("values", least_bytes=13)
    metadata: dict[str, Value] = {}
    for _ in range(n_values):
        key = reader.string().decode("utf-8", errors="replace")
        if key in metadata:
            raise MalformedError(f"key {key[:64]!r} occurs twice")
        metadata[key] = reader.value()
    tensors = tuple(_tensor(reader) for _ in range(n_tensors))
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise MalformedError("general.alignment is not a power of two")
    data_offset = -(-reader.position // alignment) * alignment
    needed = max((data_offset + t.offset + (t.size_bytes or 0) for t in tensors), default=0)
    if needed > size:
        raise CutOffError(f"its weights need {needed} bytes")
    return GgufHeader(name, version, MappingProxyType(metadata), tensors, size)


def _version(reader: Reader, name: str) -> int:
    beginning = bytes(reader.view[:32])
    if beginning[:4] != MAGIC[: len(beginning)]:
        raise ModelFileError(
            f"{name} is not a GGUF file: give another, or where it was one, download it again"
        )
    reader.take(4)
    version = reader.u32()
    if version not in VERSIONS:
        # A version in the upper bytes is a small number written by a big-endian machine.
        what = "big-endian" if version and not version & 0xFFFF else f"GGUF version {version}"
        raise ModelFileError(
            f"{name} is {what}, which llama.cpp does not read here: "
            "download a conversion for little-endian GGUF version 3"
        )
    return version


def _tensor(reader: Reader) -> TensorInfo:
    name = reader.string().decode("utf-8", errors="replace")
    n_dimensions = reader.u32()
    if n_dimensions > _MAX_DIMENSIONS:
        raise MalformedError(f"tensor {name[:64]!r} has {n_dimensions} dimensions")
    shape = tuple(reader.u64() for _ in range(n_dimensions))
    type_id, offset = reader.u32(), reader.u64()
    ggml_type = GGML_TYPES.get(type_id)
    if ggml_type is None:
        return TensorInfo(name, shape, f"type {type_id}", offset, None)
    size = ggml_type.row_bytes(shape[0] if shape else 1)
    if size is None:
        raise MalformedError(f"tensor {name[:64]!r} has rows that {ggml_type.name} cannot hold")
    for rows in shape[1:]:
        size *= rows
    return TensorInfo(name, shape, ggml_type.name, offset, size)
