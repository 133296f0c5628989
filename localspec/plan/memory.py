"""How much memory a model takes at a given context, on the CPU and on each GPU: pure arithmetic on its shape.

Weights and caches are exact. The compute buffer is what llama.cpp's
allocator needs for the widest moment of a pass; its terms were read off measurements, which
`lab/benchmarks/fit.py` at 889a9f3 repeats. It knows no free memory.
"""

import platform
from collections.abc import Sequence
from functools import cache

import numpy as np

from localspec.models.gguf_encoding import GGML_TYPES
from localspec.models.shape import Layer, ModelShape
from localspec.options import LoadOptions
from localspec.resources import Usage

_TYPES = {each.name.lower(): each for each in GGML_TYPES.values()}
_PADDING = 256  # cells of a cache
# What the CPU's repacked kernels take, see `ggml_repack_get_optimal_repack_type`.
_REPACKED_X86 = {"Q4_0", "Q4_K", "IQ4_NL", "MXFP4", "Q2_K"}
_REPACKED_ARM = {"Q4_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4", "Q8_0", "Q1_0"}


def predict(shape: ModelShape, options: LoadOptions, split: Sequence[int] = ()) -> list[Usage]:
    """Return what a model takes on the CPU, and then on every GPU.

    Args:
        shape: of the model.
        options: how it is loaded; what suits where the layers are goes by `split`.
        split: layers on each GPU, as llama.cpp counts them: the last projection is one, after all others. The CPU keeps
            the embedding, and the first layers.
    """
    output = len(shape.layers)
    first = output + 1 - sum(split)
    starts = [0, *(first + sum(split[:at]) for at in range(len(split)))]
    counts = [first, *split]
    passes = _compute_of_places(shape, options, starts, counts)
    is_mapped = options.loading(on_gpu=any(split)) in {"mmap", "mlock"}
    usages = []
    for place, (start, count) in enumerate(zip(starts, counts, strict=True)):
        own = shape.layers[start : min(start + count, output)]
        cached = own if options.kv_offload else () if place else shape.layers
        kv = kv_bytes(cached, options)
        weights, rows = sum(layer.weights_bytes for layer in own), 0
        if options.cpu_moe:
            experts = sum(layer.experts_bytes for layer in (own if place else shape.layers[first:]))
            weights += -experts if place else experts
        if place == 0:
            weights, rows = weights + shape.input_bytes, 4 * options.max_rows * shape.n_vocab
            weights += repacked_bytes(own) if is_mapped and options.repack else 0
        if start <= output < start + count:
            # On a GPU a tied projection is a copy of the embedding, which the CPU keeps.
            weights += shape.output_bytes + (shape.input_bytes if shape.tied and place else 0)
        usages.append(Usage(weights, kv, passes[place], rows))
    return usages


def split_layers(count: int, weights: Sequence[float]) -> tuple[int, ...]:
    """Share layers out among GPUs in proportion to some weights, as llama.cpp does, in single precision.

    Args:
        count: layers, the last projection counted as one.
        weights: of each GPU; its free memory by default.
    """
    if not weights:
        return ()
    ends = np.cumsum(np.array(weights if any(weights) else [1] * len(weights), np.float32))
    places = np.arange(count, dtype=np.float32) / np.float32(count)
    owners = np.searchsorted(ends / ends[-1], places, side="right")
    return tuple(np.bincount(owners, minlength=len(weights)).tolist())


def _compute_of_places(
    shape: ModelShape, options: LoadOptions, starts: Sequence[int], counts: Sequence[int]
) -> list[int]:
    """Return the scratch memory of the CPU, and of every GPU.

    Rows of the residual that a place holds at once were read off real loads, as the other terms were: the CPU holds four,
    a GPU two, and three if the input goes there. Where several GPUs have all layers, llama.cpp prepares four passes at a
    time: a GPU holds four rows, and whatever goes from one place to the next is there four times.
    """
    on_gpu = any(counts[1:])
    tokens, _ = _widest(options, on_gpu)
    row, mask = 4 * shape.n_embd, _mask_bytes(shape, options, on_gpu)
    # With its own layers away, the CPU hands over what goes into the first of them.
    on_cpu = (
        compute_bytes(shape, options, on_gpu=on_gpu) if counts[0] else tokens * (2 * row + mask)
    )
    if options.cpu_moe and not counts[0]:
        on_cpu += tokens * 3 * 4 * shape.n_ff
    several = len(counts) > 2 and not counts[0] and options.kv_offload and not options.cpu_moe
    on_its_way = tokens * 3 * (mask + row) if several else 0
    scratch = [on_cpu + on_its_way]
    for start, count in zip(starts[1:], counts[1:], strict=True):
        held = 4 if several or not options.kv_offload else 3 if start == 0 else 2
        scratch.append(
            compute_bytes(shape, options, held, on_gpu=on_gpu) + on_its_way if count else 0
        )
    return scratch


def kv_bytes(layers: Sequence[Layer], options: LoadOptions) -> int:
    """Return keys, values and state of layers.

    Layers that see only a window take as much as the others: the cache is kept at full size, for
    a part of a smaller one could not be taken back.
    """
    cells, kv_type, snapshots = padded(options.context), options.kv_type, options.snapshots
    cached = sum(_row_bytes(kv_type, each.k_width, each.v_width) for each in layers)
    states = sum((1 + snapshots * each.has_snapshots) * each.state_bytes for each in layers)
    return cells * cached + states


@cache
def _row_bytes(kv_type: str, k_width: int, v_width: int) -> int:
    """Return what a token's key and value take in a layer's cache."""
    kind = _TYPES[kv_type]
    keys, values = kind.row_bytes(k_width), kind.row_bytes(v_width)
    if keys is None or values is None:  # llama.cpp refuses such a cache itself
        return 2 * (k_width + v_width)
    return keys + values


def compute_bytes(
    shape: ModelShape, options: LoadOptions, held: int = 4, *, on_gpu: bool = False
) -> int:
    """Return the scratch memory of the widest pass: the largest of its three stages.

    In floats for every token: the feed-forward stage holds the gate, its partner and their product
    beside rows of the residual; attention holds queries, keys, values and results.

    Args:
        shape: of the model.
        options: how it is loaded.
        held: rows of the residual that are held at once.
        on_gpu: whether some layers are on a GPU.
    """
    tokens, flash_attention = _widest(options, on_gpu)
    rows = tokens if shape.every_row else min(options.max_rows, tokens)
    kv_width = max((x.k_width + x.v_width for x in shape.layers), default=0)
    mask = _mask_bytes(shape, options, on_gpu)
    feed_forward = mask + 4 * (held * shape.n_embd + 3 * shape.n_ff)
    attention = mask + 4 * ((held - 2) * shape.n_embd + 3 * shape.q_width + kv_width)
    if not flash_attention:
        attention += 4 * shape.n_heads * padded(options.context)
    output = 4 * rows * (shape.n_vocab + 2 * shape.n_embd) + 4 * tokens * shape.n_embd
    return max(tokens * feed_forward, tokens * attention, output)


def _widest(options: LoadOptions, on_gpu: bool) -> tuple[int, bool]:
    """Return the tokens of the widest pass, and whether it has flash attention or may have."""
    tokens = min(options.chunk(on_gpu=on_gpu), options.context)
    return tokens, options.attention(on_gpu=on_gpu) is not False


def _mask_bytes(shape: ModelShape, options: LoadOptions, on_gpu: bool) -> int:
    """Return what the attention masks take for every token of a pass."""
    width = 2 if _widest(options, on_gpu)[1] else 4
    return shape.masks * padded(options.context) * width


def padded(n_ctx: int) -> int:
    """Return the cells that a cache for so many tokens has."""
    return -(-n_ctx // _PADDING) * _PADDING


def repacked_bytes(layers: Sequence[Layer]) -> int:
    """Return how many bytes of layers the CPU's repacked kernels take."""
    arm = platform.machine().lower() in {"arm64", "aarch64"}
    kinds = _REPACKED_ARM if arm else _REPACKED_X86
    return sum(size for layer in layers for name, size in layer.matrices.items() if name in kinds)
