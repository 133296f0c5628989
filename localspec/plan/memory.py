"""How much memory a model takes at a given context, on the CPU and on each GPU: its shape, and pure arithmetic.

Weights and caches follow from llama.cpp's sources and are exact. The compute buffer is what its
allocator needs for the widest moment of a pass; its terms were read off measurements, which
`lab/benchmarks/fit.py` at 889a9f3 repeats. It knows no free memory.

Source: `llama-hparams.cpp`, `llama-kv-cache.cpp` and `llama-memory-recurrent.cpp` of llama.cpp.
"""

import platform
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from localspec.models.architectures import WITH_SNAPSHOTS, Heads, corrections, mtp_layers
from localspec.models.gguf import GgufHeader, TensorInfo
from localspec.models.gguf_encoding import GGML_TYPES, Value
from localspec.options import HEADS_MEMORY, LoadOptions
from localspec.resources import Usage

_LAYER = re.compile(r"blk\.(\d+)\.(.+)")
_EXPERTS = re.compile(r"ffn_(up|down|gate|gate_up)_(ch|)exps")
_ATTENTION = ("attn_k.", "attn_kv_a", "attn_q.")
_RECURRENT = ("ssm_", "shortconv")
_MOST_LAYERS = 4096
_MOST_SIDE = 1 << 16  # of a picture, or a width of its encoder
_MOST = 1 << 32  # of any one number: beyond it a header is nonsense, not large


@dataclass(frozen=True, slots=True)
class Layer:
    """One block of a model.

    Args:
        weights_bytes: all of its tensors.
        matrices: bytes of its two-dimensional tensors by type, those that may be repacked.
        k_width: elements of a key in the cache; 0 where the layer keeps none.
        v_width: elements of a value.
        state_bytes: recurrent state of one sequence, whatever the context.
        has_snapshots: whether llama.cpp can keep earlier states, too, each as large.
        experts_bytes: of the weights, those of experts.
    """

    weights_bytes: int
    matrices: Mapping[str, int]
    k_width: int
    v_width: int
    state_bytes: int
    has_snapshots: bool = False
    experts_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a model; widths are in elements.

    Args:
        name: what the header was called, for messages.
        n_ctx_train: tokens of context that it was trained for; None where the file does not say.
        n_ff: width of the feed-forward part, all experts that are active together.
        n_heads: most query heads of a layer.
        q_width: width of all of them.
        masks: attention masks that a pass needs; two where some layers see only a window.
        input_bytes: the embedding, and what else belongs to no layer.
        output_bytes: the last projection; where it is the embedding again, `tied` is true.
        every_row: whether a pass computes logits of every token, wanted or not.
    """

    name: str
    n_ctx_train: int | None
    n_embd: int
    n_ff: int
    n_heads: int
    q_width: int
    n_vocab: int
    masks: int
    layers: tuple[Layer, ...]
    input_bytes: int
    output_bytes: int
    tied: bool
    every_row: bool = False

    @property
    def weights_bytes(self) -> int:
        """All tensors of the file."""
        return self.input_bytes + self.output_bytes + sum(x.weights_bytes for x in self.layers)


def model_shape(
    header: GgufHeader, adapter: GgufHeader | None = None, *, mtp: bool = False
) -> ModelShape | None:
    """Return a model's shape; None where the header leaves out, or garbles, what it takes.

    Args:
        header: the model's.
        adapter: of a LoRA adapter that it has; None without one.
        mtp: whether its MTP layers are loaded, too. What they keep of a text is no part of the model, see `heads_shape`.
    """
    if adapter is not None:
        header = replace(header, tensors=(*header.tensors, *adapter.tensors))
    header = replace(header, metadata={**header.metadata, **corrections(header)})
    keys = _Keys(header)
    n_layers, n_embd = keys.number("block_count"), keys.number("embedding_length")
    if not 0 < n_layers <= _MOST_LAYERS or n_embd == 0:
        return None
    tensors = _by_layer(header.tensors, n_layers)
    embedding = next((t for t in header.tensors if t.name == "token_embd.weight"), None)
    if tensors is None or embedding is None or len(embedding.shape) != 2:
        return None
    n_heads = keys.most_heads(n_layers)
    head_width = n_embd // max(n_heads, 1)
    layers = list(_layers(keys, tensors, head_width))
    for place in range(max(0, n_layers - mtp_layers(header)), n_layers):
        own = layers[place] if mtp else replace(layers[place], weights_bytes=0, matrices={})
        layers[place] = replace(own, k_width=0, v_width=0, state_bytes=0)
    experts = keys.number("expert_used_count") * keys.number("expert_feed_forward_length")
    outside = [t for t in header.tensors if not _LAYER.match(t.name)]
    output_bytes = _total(t for t in outside if t.name.startswith("output"))
    return ModelShape(
        name=header.name,
        n_ctx_train=header.context_length,
        n_embd=n_embd,
        n_ff=max(*keys.per_layer("feed_forward_length", n_layers), experts),
        n_heads=n_heads,
        q_width=n_heads * (keys.number("attention.key_length") or head_width),
        n_vocab=embedding.shape[1],
        masks=2 if keys.number("attention.sliding_window") else 1,
        layers=tuple(layers),
        input_bytes=_total(outside) - output_bytes,
        output_bytes=output_bytes,
        tied=not any(t.name == "output.weight" for t in outside),
    )


_SIDES = {
    **dict.fromkeys(("qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger", "glm4v"), 92),
    **dict.fromkeys(("gemma4v", "gemma4uv"), 48),
    **dict.fromkeys(("pixtral", "kimivl", "lfm2"), 32),
    "phi4": 16,
}
"""Patches of a side of the picture that scratch is reserved for, by projector; of others, it is the file's size of pictures."""
_PIXEL_BYTES = 18
"""Three floats, and as many of half the size where they are cut into patches."""
_SOUND_TOKENS = 1500


def encoder_bytes(mmproj: GgufHeader) -> int:
    """Return what the encoders of a file take: weights, and scratch for a usual picture, and half a minute of sound.

    The scratch was read off what mtmd allocates for made files of usual widths, as `warmup` in `clip.cpp` reserves it.
    """
    needed = _total(mmproj.tensors)
    for sense in ("vision", "audio"):
        number = partial(_encoder_number, mmproj, sense)
        width, ff = number("embedding_length"), number("feed_forward_length")
        kind = mmproj.text(f"clip.{sense}.projector_type") or mmproj.text("clip.projector_type")
        patch = max(1, number("patch_size"))
        side = _SIDES.get(kind or "") or number("image_size") // patch
        tokens, rows = (side**2, 2) if sense == "vision" else (_SOUND_TOKENS, 3)
        pixels = (side * patch) ** 2 if width else 0
        needed += max(4 * tokens * (ff + rows * width), _PIXEL_BYTES * pixels)
    return needed


def most_tokens(mmproj: GgufHeader) -> int:
    """Return how many tokens a picture has at most: of encoders whose pictures differ in size, as many as mtmd mostly allows."""
    kind = mmproj.text("clip.vision.projector_type") or mmproj.text("clip.projector_type")
    return 4096 if kind in _SIDES else 1024


def _encoder_number(mmproj: GgufHeader, sense: str, key: str) -> int:
    number = mmproj.number(f"clip.{sense}.{key}") or 0
    return number if 0 < number <= _MOST_SIDE else 0


def target_rows_bytes(target: ModelShape, heads: Heads) -> int:
    """Return what the stored rows of one sequence of the target take, in RAM."""
    return 2 * HEADS_MEMORY * 4 * target.n_embd * max(1, len(heads.layers))


def heads_shape(target: GgufHeader, heads: Heads, file: GgufHeader | None) -> ModelShape | None:
    """Return the shape of what heads take beside their target; None where a header leaves out, or garbles, it.

    The weights of MTP layers are the target's, see `model_shape`. The stored rows of the target belong to no layer.

    Args:
        target: the target's header.
        heads: which there are.
        file: of heads that have a file of their own.
    """
    header = target if file is None else file
    keys, big = _Keys(header), model_shape(target)
    n_layers = keys.number("block_count")
    tensors = _by_layer(header.tensors, n_layers) if 0 < n_layers <= _MOST_LAYERS else None
    if big is None or tensors is None:
        return None
    n_embd, n_heads = keys.number("embedding_length"), keys.most_heads(n_layers)
    head_width = n_embd // max(n_heads, 1)
    layers = list(_layers(keys, tensors, head_width))
    if heads.is_mtp:
        layers = [replace(layer, weights_bytes=0, matrices={}) for layer in layers[-heads.count :]]
    if heads.shares_cache:
        layers = [replace(layer, k_width=0, v_width=0) for layer in layers]
    outside = [] if file is None else [t for t in file.tensors if not _LAYER.match(t.name)]
    output_bytes = _total(t for t in outside if t.name.startswith("output"))
    return replace(
        big,
        n_embd=n_embd,
        n_ff=max(keys.per_layer("feed_forward_length", n_layers)),
        n_heads=n_heads,
        q_width=n_heads * (keys.number("attention.key_length") or head_width),
        layers=tuple(layers),
        input_bytes=_total(outside) - output_bytes + target_rows_bytes(big, heads),
        output_bytes=output_bytes,
        tied=False,
        every_row=bool(heads.layers),
    )


def _layers(
    keys: "_Keys", tensors: Sequence[Sequence[TensorInfo]], head_width: int
) -> Iterator[Layer]:
    own_heads = keys.value("attention.head_count_kv") is not None
    heads = "attention.head_count_kv" if own_heads else "attention.head_count"
    kv_heads = keys.per_layer(heads, len(tensors))
    pattern = keys.value("attention.sliding_window_pattern")
    windowed = pattern[: len(tensors)].tolist() if isinstance(pattern, np.ndarray) else []
    # Gemma's later models: the last layers look into the caches of earlier ones.
    with_own_cache = len(tensors) - keys.number("attention.shared_kv_layers")
    latent = keys.number("attention.key_length_mla") > 0  # values are a part of the keys
    for number, own in enumerate(tensors):
        names = [match[2] for t in own if (match := _LAYER.match(t.name))]
        recurrent = any(name.startswith(_RECURRENT) for name in names)
        attends = not recurrent or any(name.startswith(_ATTENTION) for name in names)
        suffix = "_swa" if any(windowed[number : number + 1]) else ""
        k_width, v_width = (keys.length(of, suffix) or head_width for of in ("key", "value"))
        layer_heads = kv_heads[number] if attends and number < with_own_cache else 0
        matrices = Counter[str]()
        for tensor in own:
            if len(tensor.shape) > 1:
                matrices[tensor.type_name] += tensor.size_bytes or 0
        yield Layer(
            weights_bytes=_total(own),
            matrices=matrices,
            k_width=layer_heads * k_width,
            v_width=0 if latent else layer_heads * v_width,
            state_bytes=keys.state_bytes() if recurrent else 0,
            has_snapshots=keys.architecture in WITH_SNAPSHOTS,
            experts_bytes=_total(tensor for tensor in own if _EXPERTS.search(tensor.name)),
        )


def _by_layer(tensors: Sequence[TensorInfo], n_layers: int) -> list[list[TensorInfo]] | None:
    """Return the tensors of every layer; None where a size is not known."""
    layers: list[list[TensorInfo]] = [[] for _ in range(n_layers)]
    for tensor in tensors:
        if tensor.size_bytes is None:
            return None
        match = _LAYER.match(tensor.name)
        if match and len(match[1]) < 5 and int(match[1]) < n_layers:
            layers[int(match[1])].append(tensor)
    return layers


def _total(tensors: Iterable[TensorInfo]) -> int:
    return sum(tensor.size_bytes or 0 for tensor in tensors)


class _Keys:
    """The values of a header under its architecture's prefix, as whole numbers; absent is 0."""

    def __init__(self, header: GgufHeader) -> None:
        self._metadata = header.metadata
        self.architecture = header.architecture

    def value(self, key: str) -> Value | None:
        return self._metadata.get(f"{self.architecture}.{key}")

    def number(self, key: str) -> int:
        return _whole(self.value(key))

    def length(self, of: str, suffix: str) -> int:
        key = f"attention.{of}_length"
        return self.number(key + suffix) or self.number(key)

    def per_layer(self, key: str, n_layers: int) -> list[int]:
        value = self.value(key)
        if not isinstance(value, np.ndarray):
            return [_whole(value)] * n_layers
        numbers = [_whole(item) for item in value[:n_layers].tolist()]
        return numbers + [0] * (n_layers - len(numbers))

    def most_heads(self, n_layers: int) -> int:
        """Return the most query heads of a layer."""
        return max(self.per_layer("attention.head_count", n_layers))

    def state_bytes(self) -> int:
        """Return the 32-bit state of a recurrent layer: past inputs of its convolution, and more."""
        short = self.number("shortconv.l_cache")
        if short:
            return 4 * self.number("embedding_length") * (short - 1)
        inner, state = self.number("ssm.inner_size"), self.number("ssm.state_size")
        kernel, groups = self.number("ssm.conv_kernel"), self.number("ssm.group_count")
        return 4 * (max(kernel - 1, 0) * (inner + 2 * groups * state) + inner * state)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 <= value < _MOST else 0


_TYPES = {each.name.lower(): each for each in GGML_TYPES.values()}
_PADDING = 256  # cells of a cache
# What the CPU's repacked kernels take, see `ggml_repack_get_optimal_repack_type`.
_REPACKED_X86 = {"Q4_0", "Q4_K", "IQ4_NL", "MXFP4", "Q2_K"}
_REPACKED_ARM = {"Q4_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4", "Q8_0", "Q1_0"}


USUAL_N_CTX = 4096
"""What LoadOptions means by None."""


def context_of(options: LoadOptions) -> int:
    """Return the tokens of context that options mean."""
    return options.n_ctx or USUAL_N_CTX


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
    layer_kv, usages = _kv_bytes(options), []
    for place, (start, count) in enumerate(zip(starts, counts, strict=True)):
        own = shape.layers[start : min(start + count, output)]
        cached = own if options.kv_offload else () if place else shape.layers
        kv = sum(map(layer_kv, cached))
        weights, rows = sum(layer.weights_bytes for layer in own), 0
        if options.cpu_moe:
            experts = sum(layer.experts_bytes for layer in (own if place else shape.layers[first:]))
            weights += -experts if place else experts
        if place == 0:
            weights, rows = weights + shape.input_bytes, 4 * options.max_rows * shape.n_vocab
            weights += _repacked(own) if is_mapped and options.repack else 0
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


def layer_kv_bytes(layer: Layer, options: LoadOptions) -> int:
    """Return keys, values and state of one layer."""
    return _kv_bytes(options)(layer)


def _kv_bytes(options: LoadOptions) -> Callable[[Layer], int]:
    """Return what counts keys, values and state of a layer.

    Layers that see only a window take as much as the others: the cache is kept at full size, for
    a part of a smaller one could not be taken back.
    """
    cells, kv_type, snapshots = padded(context_of(options)), options.kv_type, options.snapshots

    def of(layer: Layer) -> int:
        states = 1 + (snapshots if layer.has_snapshots else 0)
        return (
            cells * _row_bytes(kv_type, layer.k_width, layer.v_width) + states * layer.state_bytes
        )

    return of


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
        attention += 4 * shape.n_heads * padded(context_of(options))
    output = 4 * rows * (shape.n_vocab + 2 * shape.n_embd) + 4 * tokens * shape.n_embd
    return max(tokens * feed_forward, tokens * attention, output)


def _widest(options: LoadOptions, on_gpu: bool) -> tuple[int, bool]:
    """Return the tokens of the widest pass, and whether it has flash attention or may have."""
    tokens = min(options.chunk(on_gpu=on_gpu), context_of(options))
    return tokens, options.attention(on_gpu=on_gpu) is not False


def _mask_bytes(shape: ModelShape, options: LoadOptions, on_gpu: bool) -> int:
    """Return what the attention masks take for every token of a pass."""
    width = 2 if _widest(options, on_gpu)[1] else 4
    return shape.masks * padded(context_of(options)) * width


def padded(n_ctx: int) -> int:
    """Return the cells that a cache for so many tokens has."""
    return -(-n_ctx // _PADDING) * _PADDING


def repacked_bytes(shape: ModelShape) -> int:
    """Return how many bytes of a model the CPU's repacked kernels take."""
    return _repacked(shape.layers)


def _repacked(layers: Sequence[Layer]) -> int:
    arm = platform.machine().lower() in {"arm64", "aarch64"}
    kinds = _REPACKED_ARM if arm else _REPACKED_X86
    return sum(size for layer in layers for name, size in layer.matrices.items() if name in kinds)
