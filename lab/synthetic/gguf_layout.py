"""GgufLayout: where the parts of a GGUF file lie, byte for byte, for whoever writes another one.

Values stay as they are encoded; what they mean is the business of `localspec.models.gguf`, which also judges
whether the file is sound.
"""

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localspec.models.gguf import read_header
from localspec.models.gguf_encoding import GGML_TYPES, Reader

_DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor of a file: `start` counts from the beginning of the file, in bytes."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    start: int
    size_bytes: int

    @property
    def block_bytes(self) -> int:
        """Bytes of one block of its type, the least that has a meaning by itself."""
        return GGML_TYPES[self.type_id].block_bytes


@dataclass(frozen=True, slots=True, eq=False)
class GgufLayout:
    """The parts of one file.

    Args:
        version: of the format.
        values: by key, the value's type and content as they are encoded.
        tensors: in the order of the file.
        alignment: every tensor starts at a multiple of it, counted from the first one.
    """

    version: int
    values: Mapping[str, bytes]
    tensors: tuple[Placed, ...]
    alignment: int


def read_layout(path: Path) -> GgufLayout:
    """Read where the parts of a file lie.

    Raises:
        ModelUnavailable: there is no such file, or it cannot be read.
        ModelFileError: the file is no sound GGUF.
    """
    header = read_header(path)
    alignment = header.metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    assert isinstance(alignment, int), "the header was found sound"
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
    ):
        values, n_seen = _values(view)
    data_start = -(-n_seen // alignment) * alignment
    tensors = tuple(
        Placed(
            t.name,
            t.shape,
            _TYPE_IDS.get(t.type_name, -1),
            data_start + t.offset,
            t.size_bytes or 0,
        )
        for t in header.tensors
    )
    return GgufLayout(header.version, values, tensors, alignment)


_TYPE_IDS = {kind.name: type_id for type_id, kind in GGML_TYPES.items()}


def _values(view: memoryview) -> tuple[dict[str, bytes], int]:
    """Return the encoded values, and where the header ends."""
    reader = Reader(view)
    reader.take(8)  # magic and version
    n_tensors, n_values = reader.u64(), reader.u64()
    values = {}
    for _ in range(n_values):
        key = reader.string().decode("utf-8", errors="replace")
        start = reader.position
        reader.value()
        values[key] = bytes(view[start : reader.position])
    for _ in range(n_tensors):
        reader.string()
        reader.take(8 * reader.u32())
        reader.take(4 + 8)
    return values, reader.position
