"""A heavier target: the same function at a multiple of the cost.

The layers that are added write nothing into the residual stream, since the last matrix of either
half of each is zero. With it, large-target economics can be measured on any machine.
"""

import struct
from pathlib import Path

from lab.synthetic.gguf_layout import GgufLayout, Placed, read_layout
from lab.synthetic.gguf_writer import number, zeros
from lab.synthetic.layers import BLOCK, plain_layers, writes_to_residual
from lab.synthetic.made_file import Content, OnShare, Recipe, copying, labelled, made_file
from localspec.errors import ModelFileError, UsageError
from localspec.models.gguf import read_header
from localspec.storage.paths import shown

MOST_LAYERS = 512  # llama.cpp's LLAMA_MAX_LAYERS
_ARRAY, _NUMBER_BYTES = 9, {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


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
    values = labelled(layout, f"synthetic {times}x")
    values[f"{architecture}.block_count"] = number(times * n_layers)
    for key, value in layout.values.items():
        if key.startswith(f"{architecture}."):
            values[key] = _by_layer(values[key], value, n_layers, times)
    tensors = [(t.name, t, copying(t)) for t in layout.tensors]
    for copy in range(1, times):
        for tensor in layout.tensors:
            if match := BLOCK.match(tensor.name):
                name = f"blk.{copy * n_layers + int(match[1])}.{match[2]}"
                zero = writes_to_residual(match[2])
                tensors.append((name, tensor, _zeroing(tensor) if zero else copying(tensor)))
    return made_file(source, layout, Recipe(f"x{times}", values, tensors), directory, on_share)


def _transformer(source: Path) -> tuple[GgufLayout, int, str]:
    """Return layout, layers and architecture of a file whose layers can be doubled."""
    header = read_header(source)
    n_layers = plain_layers(header)
    if n_layers is None or header.architecture is None:
        raise ModelFileError(
            f"{shown(source)} cannot be made heavier: its layers ({header.architecture}) are not "
            "those of a plain transformer; choose another target"
        )
    return read_layout(source), n_layers, header.architecture


def _by_layer(now: bytes, original: bytes, n_layers: int, times: int) -> bytes:
    """Return an array that has a number for each layer repeated; anything else as it is now."""
    kind, *_ = struct.unpack_from("<I", original)
    if kind != _ARRAY:
        return now
    element, count = struct.unpack_from("<IQ", original, 4)
    if count != n_layers or element not in _NUMBER_BYTES:
        return now
    return struct.pack("<IIQ", _ARRAY, element, count * times) + original[16:] * times


def _zeroing(tensor: Placed) -> Content:
    return lambda _: zeros(tensor)
