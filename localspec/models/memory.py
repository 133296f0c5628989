"""How much memory a model takes at a given context, on the CPU and on each GPU. Pure arithmetic.

Weights and caches follow from llama.cpp's sources and are exact. The compute buffer is what its
allocator needs for the widest moment of a pass; its terms were read off measurements, which
`lab/benchmarks/fit.py` repeats. It knows no free memory.
"""

import platform
from collections.abc import Sequence
from dataclasses import dataclass

from localspec.models.gguf_encoding import GGML_TYPES
from localspec.models.shape import Layer, ModelShape
from localspec.options import LoadOptions

_TYPES = {each.name.lower(): each for each in GGML_TYPES.values()}
_PADDING = 256  # cells of a cache
# What the CPU's repacked kernels take, see `ggml_repack_get_optimal_repack_type`.
_REPACKED_X86 = {"Q4_0", "Q4_K", "IQ4_NL", "MXFP4", "Q2_K"}
_REPACKED_ARM = {"Q4_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4", "Q8_0", "Q1_0"}


@dataclass(frozen=True, slots=True)
class Settings:
    """How a model is loaded, as far as memory goes.

    Args:
        n_ctx: tokens of context.
        n_batch: most tokens of one native call.
        rows: most rows of logits of a pass.
        kv_type: f32, f16, bf16 or q8_0.
        flash_attention: False only where it is forced off.
        mapped_and_repacked: the file is mapped, and repacked weights are a second copy.
    """

    n_ctx: int
    n_batch: int = 512
    rows: int = 1
    kv_type: str = LoadOptions().kv_type
    flash_attention: bool = True
    mapped_and_repacked: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory of one model in one place, in bytes."""

    weights_bytes: int = 0
    kv_bytes: int = 0
    compute_bytes: int = 0
    output_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.weights_bytes + self.kv_bytes + self.compute_bytes + self.output_bytes


def predict(shape: ModelShape, settings: Settings, split: Sequence[int] = ()) -> list[Usage]:
    """Return what a model takes on the CPU, and then on every GPU.

    Args:
        shape: of the model.
        settings: how it is loaded.
        split: layers on each GPU. As llama.cpp does it, the CPU keeps the first ones and the
            embedding; the last projection goes with the last layer.
    """
    compute = compute_bytes(shape, settings)
    first = len(shape.layers) - sum(split)
    places = [shape.layers[:first]]
    for count in split:
        places.append(shape.layers[first : first + count])
        first += count
    last = max((place for place, layers in enumerate(places) if layers), default=0)
    usages = []
    for place, layers in enumerate(places):
        weights = sum(layer.weights_bytes for layer in layers)
        if place == 0:
            weights += shape.input_bytes
            if settings.mapped_and_repacked:
                weights += sum(_repacked(layer) for layer in layers)
        if place == last:
            # On a GPU a tied projection is a copy of the embedding, which the CPU keeps.
            weights += shape.output_bytes + (shape.input_bytes if shape.tied and place else 0)
        kv = sum(layer_kv_bytes(layer, settings) for layer in layers)
        output = 4 * settings.rows * shape.n_vocab if place == 0 else 0
        used = compute if layers else (_handed_over(shape, settings) if place == 0 else 0)
        usages.append(Usage(weights, kv, used, output))
    return usages


def layer_kv_bytes(layer: Layer, settings: Settings) -> int:
    """Return keys, values and state of one layer.

    Layers that see only a window take as much as the others: the cache is kept at full size, for
    a part of a smaller one could not be taken back.
    """
    kind = _TYPES[settings.kv_type]
    cells = padded(settings.n_ctx)
    keys, values = kind.row_bytes(layer.k_width), kind.row_bytes(layer.v_width)
    if keys is None or values is None:  # llama.cpp refuses such a cache itself
        keys, values = 2 * layer.k_width, 2 * layer.v_width
    return cells * (keys + values) + layer.state_bytes


def compute_bytes(shape: ModelShape, settings: Settings) -> int:
    """Return the scratch memory of the widest pass: the largest of its three stages.

    In floats for every token: the feed-forward stage holds the gate, its partner and their product
    beside four rows of the residual; attention holds queries, keys, values and results.
    """
    n_ctx = padded(settings.n_ctx)
    tokens = min(settings.n_batch, settings.n_ctx)
    rows = min(settings.rows, tokens)
    kv_width = max((x.k_width + x.v_width for x in shape.layers), default=0)
    mask = shape.masks * n_ctx * (2 if settings.flash_attention else 4)
    feed_forward = mask + 4 * (4 * shape.n_embd + 3 * shape.n_ff)
    attention = mask + 4 * (2 * shape.n_embd + 3 * shape.q_width + kv_width)
    if not settings.flash_attention:
        attention += 4 * shape.n_heads * n_ctx
    output = 4 * rows * (shape.n_vocab + 2 * shape.n_embd) + 4 * tokens * shape.n_embd
    return max(tokens * feed_forward, tokens * attention, output)


def padded(n_ctx: int) -> int:
    """Return the cells that a cache for so many tokens has."""
    return -(-n_ctx // _PADDING) * _PADDING


def _handed_over(shape: ModelShape, settings: Settings) -> int:
    """Return what the CPU keeps for passes that run on a GPU: their inputs."""
    tokens = min(settings.n_batch, settings.n_ctx)
    return tokens * (4 * shape.n_embd + 2 * shape.masks * padded(settings.n_ctx))


def _repacked(layer: Layer) -> int:
    arm = platform.machine().lower() in {"arm64", "aarch64"}
    kinds = _REPACKED_ARM if arm else _REPACKED_X86
    return sum(size for name, size in layer.matrices.items() if name in kinds)
