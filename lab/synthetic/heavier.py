"""A heavier target: the same function at a multiple of the cost.

The layers that are added write nothing into the residual stream, since the last matrix of either half of each is zero.
With it, large-target economics can be measured on any machine.
"""

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from lab.synthetic.gguf_layout import GgufLayout, read_layout
from lab.synthetic.gguf_writer import NewTensor, copied, encoded, write_model, zeros
from localspec.errors import ModelFileError, UsageError
from localspec.models.gguf import GgufHeader, read_header
from localspec.models.gguf_encoding import Reader
from localspec.storage.paths import shown

MOST_LAYERS = 512  # llama.cpp's LLAMA_MAX_LAYERS
_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
# What each half of a layer adds to the residual stream is a product of one of these.
_LAST_OF_ATTENTION = {"attn_output.weight"}
_LAST_OF_FEED_FORWARD = {"ffn_down.weight", "ffn_down_exps.weight"}
_ZERO = re.compile(r"(attn_output|ffn_down|ffn_down_exps|ffn_down_shexp)\.(weight|bias)")
# Layers with these do something else beside, or instead.
_FOREIGN = re.compile(r"ssm_|shortconv|time_mix|channel_mix|per_layer|altup|laurel|inp_gate|nextn")
_ARRAY, _NUMBER_BYTES = 9, {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def heavier(source: Path, times: int, folder: Path) -> Path:
    """Return a file with `times` the layers of `source` that computes the same logits; one that is there is taken.

    Args:
        source: a GGUF of a plain transformer.
        times: 2 or more.
        folder: of the new file.

    Raises:
        UsageError: `times` is out of range.
        ModelFileError: the file is no sound GGUF, or its layers are of another kind.
        OSError: the disk has no room for it.
    """
    header, layout = read_header(source), read_layout(source)
    n_layers = plain_layers(header)
    if n_layers is None or any(tensor.type_id < 0 for tensor in layout.tensors):
        raise ModelFileError(
            f"{shown(source)} cannot be made heavier: its layers ({header.architecture}) are not "
            "those of a plain transformer of known types; choose another target"
        )
    if times < 2 or times * n_layers > MOST_LAYERS:
        raise UsageError(
            f"times is {times}: it must be from 2 to {MOST_LAYERS // n_layers} for a model of {n_layers} layers"
        )
    destination = folder / f"{source.stem[:40]}-{source.stat().st_mtime_ns}-x{times}.gguf"
    values = _values(layout, f"{header.architecture}", n_layers, times)

    def tensors(original: BinaryIO) -> list[NewTensor]:
        return list(_tensors(original, layout, n_layers, times))

    write_model(source, destination, layout, values, tensors)
    return destination


def plain_layers(header: GgufHeader) -> int | None:
    """Return how many layers a transformer has, of which each adds what it computes to its input; None for other models."""
    n_layers = header.number(f"{header.architecture}.block_count")
    parts: dict[int, set[str]] = {}
    for tensor in header.tensors:
        if match := _BLOCK.match(tensor.name):
            parts.setdefault(int(match[1]), set()).add(match[2])
    plain = (
        n_layers is not None
        and set(parts) == set(range(n_layers))
        and all(
            own & _LAST_OF_ATTENTION
            and own & _LAST_OF_FEED_FORWARD
            and not any(_FOREIGN.match(part) for part in own)
            for own in parts.values()
        )
    )
    return n_layers if plain else None


def _values(layout: GgufLayout, architecture: str, n_layers: int, times: int) -> dict[str, bytes]:
    """Return the header's values: a label behind the name, more layers, and arrays of a number for each layer repeated."""
    values = {
        key: _by_layer(value, n_layers, times) if key.startswith(f"{architecture}.") else value
        for key, value in layout.values.items()
    }
    name = Reader(memoryview(layout.values.get("general.name", encoded("model")))).value()
    values["general.name"] = encoded(f"{name} (synthetic {times}x)")
    values[f"{architecture}.block_count"] = encoded(times * n_layers)
    return values


def _by_layer(value: bytes, n_layers: int, times: int) -> bytes:
    (kind,) = struct.unpack_from("<I", value)
    if kind != _ARRAY:
        return value
    element, count = struct.unpack_from("<IQ", value, 4)
    if count != n_layers or element not in _NUMBER_BYTES:
        return value
    return struct.pack("<IIQ", _ARRAY, element, count * times) + value[16:] * times


def _tensors(
    original: BinaryIO, layout: GgufLayout, n_layers: int, times: int
) -> Iterator[NewTensor]:
    for tensor in layout.tensors:
        yield NewTensor(tensor.name, tensor, copied(original, tensor))
    for copy in range(1, times):
        for tensor in layout.tensors:
            if match := _BLOCK.match(tensor.name):
                name = f"blk.{copy * n_layers + int(match[1])}.{match[2]}"
                is_last = _ZERO.fullmatch(match[2]) is not None
                yield NewTensor(
                    name, tensor, zeros(tensor) if is_last else copied(original, tensor)
                )
