"""The shape of a model, as its header says it: layers, widths and bytes, from which follows what memory it takes (`plan.memory`).

Weights and caches follow from llama.cpp's sources and are exact.

Source: `llama-hparams.cpp`, `llama-kv-cache.cpp` and `llama-memory-recurrent.cpp` of llama.cpp.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from localspec.models.architectures import WITH_SNAPSHOTS, Heads, corrections, mtp_layers
from localspec.models.gguf import GgufHeader, TensorInfo
from localspec.models.gguf_encoding import Value
from localspec.options import HEADS_MEMORY

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
    shape, keys = _shape(header), _Keys(header)
    embedding = next((t for t in header.tensors if t.name == "token_embd.weight"), None)
    if shape is None or not shape.n_embd or embedding is None or len(embedding.shape) != 2:
        return None
    layers, n_layers = [*shape.layers], len(shape.layers)
    for place in range(max(0, n_layers - mtp_layers(header)), n_layers):
        own = layers[place] if mtp else replace(layers[place], weights_bytes=0, matrices={})
        layers[place] = replace(own, k_width=0, v_width=0, state_bytes=0)
    experts = keys.number("expert_used_count") * keys.number("expert_feed_forward_length")
    n_ff, n_vocab = max(shape.n_ff, experts), embedding.shape[1]
    return replace(shape, n_ff=n_ff, n_vocab=n_vocab, layers=tuple(layers))


def _shape(header: GgufHeader) -> ModelShape | None:
    """Return the sizes of a file's layers, and of what belongs to none, whatever they are for; None where the header does not say."""
    keys = _Keys(header)
    n_layers, n_embd = keys.number("block_count"), keys.number("embedding_length")
    tensors = _by_layer(header.tensors, n_layers) if 0 < n_layers <= _MOST_LAYERS else None
    if tensors is None:
        return None
    n_heads = max(keys.per_layer("attention.head_count", n_layers))
    head_width = n_embd // max(n_heads, 1)
    outside = [t for t in header.tensors if not _LAYER.match(t.name)]
    output_bytes = _total(t for t in outside if t.name.startswith("output"))
    return ModelShape(
        name=header.name,
        n_ctx_train=header.context_length,
        n_embd=n_embd,
        n_ff=max(keys.per_layer("feed_forward_length", n_layers)),
        n_heads=n_heads,
        q_width=n_heads * (keys.number("attention.key_length") or head_width),
        n_vocab=0,
        masks=2 if keys.number("attention.sliding_window") else 1,
        layers=tuple(_layers(keys, tensors, head_width)),
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
    big, own = model_shape(target), _shape(target if file is None else file)
    if big is None or own is None:
        return None
    layers = own.layers
    if heads.is_mtp:
        own_layers = layers[-heads.count :]
        layers = tuple(replace(each, weights_bytes=0, matrices={}) for each in own_layers)
    if heads.shares_cache:
        layers = tuple(replace(each, k_width=0, v_width=0) for each in layers)
    return replace(
        own,
        name=big.name,
        n_ctx_train=big.n_ctx_train,
        n_vocab=big.n_vocab,
        masks=big.masks,
        layers=layers,
        input_bytes=(0 if file is None else own.input_bytes) + target_rows_bytes(big, heads),
        output_bytes=0 if file is None else own.output_bytes,
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
