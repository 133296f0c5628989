"""A wider target: the same function at the square of the cost, in as many layers, as a large model's shape is.

Every tensor is padded with zeros, so the channels, heads and units that are added hold zeros everywhere. A device computes
a wide layer at another speed than many narrow ones (`heavier`), whose passes cost as much as starting their kernels.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from lab.synthetic.gguf_layout import GgufLayout, Placed, read_layout
from lab.synthetic.gguf_writer import NewTensor, encoded, write_model
from localspec.errors import ModelFileError, UsageError
from localspec.models.gguf import GgufHeader, read_header
from localspec.models.gguf_encoding import Reader
from localspec.storage.paths import shown

_WIDER = (
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
)
_EPSILON = "attention.layer_norm_rms_epsilon"
_KEEPS_ROWS = {"token_embd.weight", "output.weight"}  # one for each token
_F32 = 0


def wider(source: Path, times: int, folder: Path) -> Path:
    """Return a file with `times` the channels, heads and units of `source` that computes the same logits, up to rounding.

    Args:
        source: a GGUF of architecture llama without biases or experts, of quantisations whose zero bytes are zeros.
        times: 2 or more.
        folder: of the new file; one that is there is taken.

    Raises:
        UsageError: `times` is below 2.
        ModelFileError: the file is no sound GGUF, or of another architecture.
        OSError: the disk has no room for it.
    """
    header, layout = read_header(source), read_layout(source)
    if header.architecture != "llama" or any(
        tensor.type_id < 0 or len(tensor.shape) > 2 for tensor in layout.tensors
    ):
        raise ModelFileError(
            f"{shown(source)} cannot be made wider: only plain models of architecture llama can; choose another target"
        )
    if times < 2:
        raise UsageError(f"times is {times}: it must be 2 or more")
    destination = folder / f"{source.stem[:40]}-{source.stat().st_mtime_ns}-w{times}.gguf"

    def tensors(original: BinaryIO) -> list[NewTensor]:
        return [_tensor(original, each, times) for each in layout.tensors]

    write_model(source, destination, layout, _values(header, layout, times), tensors)
    return destination


def _values(header: GgufHeader, layout: GgufLayout, times: int) -> dict[str, bytes]:
    values = dict(layout.values)
    for key in _WIDER:
        size = header.number(f"llama.{key}")
        if size is not None:
            values[f"llama.{key}"] = encoded(times * size)
    # The mean of squares is over more channels, of which the new ones hold zeros.
    (kind, epsilon) = struct.unpack("<If", values[f"llama.{_EPSILON}"])
    values[f"llama.{_EPSILON}"] = struct.pack("<If", kind, epsilon / times)
    name = Reader(memoryview(values.get("general.name", encoded("model")))).value()
    values["general.name"] = encoded(f"{name} (synthetic, {times}x as wide)")
    return values


def _tensor(original: BinaryIO, placed: Placed, times: int) -> NewTensor:
    columns, *rows = placed.shape
    kept = placed.name in _KEEPS_ROWS
    shape = (columns * times, *(each if kept else each * times for each in rows))
    n_rows = rows[0] if rows else 1
    n_added = 0 if kept or not rows else n_rows * (times - 1)
    row_bytes = placed.size_bytes // n_rows * times
    like = Placed(placed.name, shape, placed.type_id, 0, row_bytes * (n_rows + n_added))
    return NewTensor(placed.name, like, _padded(original, placed, n_rows, times, n_added))


def _padded(
    original: BinaryIO, placed: Placed, n_rows: int, times: int, n_added: int
) -> Iterator[bytes]:
    original.seek(placed.start)
    content = original.read(placed.size_bytes)
    if placed.type_id == _F32 and n_rows == 1:  # a norm's weights
        content = (np.frombuffer(content, np.float32) / np.sqrt(np.float32(times))).tobytes()
    rows = np.frombuffer(content, np.uint8).reshape(n_rows, -1)
    padded = np.zeros((n_rows, rows.shape[1] * times), np.uint8)
    padded[:, : rows.shape[1]] = rows
    yield padded.tobytes()
    for _ in range(n_added // n_rows):
        yield bytes(padded.nbytes)
