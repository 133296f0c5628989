"""The layers of a plain transformer: which tensors are theirs, and what has to be zero for one to do nothing."""

import re
from collections.abc import Collection
from pathlib import Path

import numpy as np

from localspec.models.gguf import GgufHeader
from localspec.models.gguf_layout import GgufLayout, Placed

BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
# What each half of a layer adds to the residual stream is a product of one of these.
_LAST_OF_ATTENTION = {"attn_output.weight"}
_LAST_OF_FEED_FORWARD = {"ffn_down.weight", "ffn_down_exps.weight"}
_ZERO = re.compile(r"(attn_output|ffn_down|ffn_down_exps|ffn_down_shexp)\.(weight|bias)")
# Layers of these do something else beside, or instead.
_FOREIGN = re.compile(r"ssm_|shortconv|time_mix|channel_mix|per_layer|altup|laurel|inp_gate|nextn")
# Architectures whose layers do not ask which number they have: others attend to a window, or leave positions out, in every
# so manieth layer.
_ALIKE = {"llama", "qwen2", "qwen3", "gemma", "granite", "internlm2"}


def plain_layers(header: GgufHeader) -> int | None:
    """Return how many layers a transformer has, of which each adds what it computes to its input; None for other models."""
    n_layers = header.number(f"{header.architecture}.block_count")
    parts: dict[int, set[str]] = {}
    for tensor in header.tensors:
        if match := BLOCK.match(tensor.name):
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


def separable_layers(header: GgufHeader) -> int | None:
    """Return how many layers a model has, of which any may be left out; None where that makes another kind of model."""
    by_layer = any(
        key.startswith(f"{header.architecture}.") and isinstance(value, np.ndarray)
        for key, value in header.metadata.items()
    )
    return None if by_layer or header.architecture not in _ALIKE else plain_layers(header)


def writes_to_residual(part: str) -> bool:
    """Return whether a layer's tensor, by its name in the layer, is one of those that do nothing if all of them are zero."""
    return _ZERO.fullmatch(part) is not None


class Switchable:
    """A model's file, of which layers are switched off and on again in place. It has to be whole, and nobody else's.

    Args:
        path: of the file; what writes into the residual stream is kept in memory.
        layout: of the file.
    """

    def __init__(self, path: Path, layout: GgufLayout) -> None:
        self.path = path
        self._writers: dict[int, list[Placed]] = {}
        for tensor in layout.tensors:
            match = BLOCK.match(tensor.name)
            if match and writes_to_residual(match[2]):
                self._writers.setdefault(int(match[1]), []).append(tensor)
        self._off: dict[int, list[bytes]] = {}

    def leave_out(self, layers: Collection[int]) -> None:
        """Switch these layers off, and all others on.

        Raises:
            OSError: the file cannot be written.
        """
        with self.path.open("r+b") as file:
            for layer in self._off.keys() - set(layers):
                for tensor, content in zip(self._writers[layer], self._off.pop(layer), strict=True):
                    file.seek(tensor.start)
                    file.write(content)
            for layer in set(layers) - self._off.keys():
                kept = []
                for tensor in self._writers[layer]:
                    file.seek(tensor.start)
                    kept.append(file.read(tensor.size_bytes))
                    file.seek(tensor.start)
                    file.write(bytes(tensor.size_bytes))  # zero in every type
                self._off[layer] = kept
