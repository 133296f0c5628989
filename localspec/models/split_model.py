"""A model whose file was split: all its headers as one, found by the names that llama.cpp looks for.

The first file has the metadata, and every file some of the tensors; `split.*` keys say which it is.

Source: `llama_model_loader` and `gguf-split` of llama.cpp.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from localspec.errors import ModelFileError
from localspec.models.gguf_header import GgufHeader, read_header
from localspec.models.paths import shown

_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


def read_model(path: Path) -> GgufHeader:
    """Read the header of a model, of all its files where it comes in several.

    Args:
        path: the file, or the first of several.

    Raises:
        ModelUnavailable: there is no such file, or it cannot be read.
        ModelFileError: a file is no GGUF, was cut off, is missing, or belongs to another split.
    """
    first = read_header(path)
    return merged([first, *(read_header(each) for each in other_shards(path, first))])


def other_shards(path: Path, first: GgufHeader) -> Iterator[Path]:
    """Yield the further files of a split model, in order, each of them looked at; none of a whole one.

    Raises:
        ModelUnavailable: one cannot be read.
        ModelFileError: `path` is not the first, or one is missing or belongs to another split.
    """
    count = _number(first, "split.count")
    if count is None or count < 2:
        return
    match = _NAME.fullmatch(path.name)
    name, number = shown(path), _number(first, "split.no") or 0
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
        if (_number(header, "split.no"), _number(header, "split.count")) != (index, count):
            raise ModelFileError(
                f"{shown(sibling)} is not file {index + 1} of {count} of its model: download it again"
            )
        yield sibling


def merged(headers: Sequence[GgufHeader]) -> GgufHeader:
    """Return the header of a model from those of its files, in order."""
    return replace(
        headers[0],
        tensors=tuple(tensor for header in headers for tensor in header.tensors),
        size_bytes=sum(header.size_bytes for header in headers),
    )


def _number(header: GgufHeader, key: str) -> int | None:
    value = header.metadata.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
