"""ModelShape: what of a GGUF header decides how much memory a model takes.

Reads keys and tensor sizes; does not know contexts, devices or free memory.

Source: `llama-hparams.cpp`, `llama-kv-cache.cpp` and `llama-memory-recurrent.cpp` of llama.cpp.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from localspec.models.gguf import GgufHeader, TensorInfo
from localspec.models.gguf_encoding import Value

_LAYER = re.compile(r"blk\.(\d+)\.(.+)")
_ATTENTION = ("attn_k.", "attn_kv_a", "attn_q.")
_RECURRENT = ("ssm_", "shortconv")
_MOST_LAYERS = 4096
_MOST = 1 << 32  # of any one number: beyond it a header is nonsense, not large


@dataclass(frozen=True, slots=True)
class Layer:
    """One block of a model.

    Args:
        weights_bytes: all of its tensors.
        matrices: bytes of its two-dimensional tensors by type, those that may be repacked.
        k_width: elements of a key in the cache; 0 where the layer keeps none.
        v_width: likewise of a value.
        state_bytes: recurrent state of one sequence, whatever the context.
    """

    weights_bytes: int
    matrices: Mapping[str, int]
    k_width: int
    v_width: int
    state_bytes: int


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

    @property
    def weights_bytes(self) -> int:
        """All tensors of the file."""
        return self.input_bytes + self.output_bytes + sum(x.weights_bytes for x in self.layers)


def model_shape(header: GgufHeader) -> ModelShape | None:
    """Return a model's shape; None where the header leaves out, or garbles, what it takes."""
    keys = _Keys(header)
    n_layers, n_embd = keys.number("block_count"), keys.number("embedding_length")
    if not 0 < n_layers <= _MOST_LAYERS or n_embd == 0:
        return None
    tensors = _by_layer(header.tensors, n_layers)
    embedding = next((t for t in header.tensors if t.name == "token_embd.weight"), None)
    if tensors is None or embedding is None or len(embedding.shape) != 2:
        return None
    heads = keys.per_layer("attention.head_count", n_layers)
    head_width = n_embd // max(*heads, 1)
    k_width = keys.number("attention.key_length") or head_width
    experts = keys.number("expert_used_count") * keys.number("expert_feed_forward_length")
    outside = [t for t in header.tensors if not _LAYER.match(t.name)]
    output_bytes = _total(t for t in outside if t.name.startswith("output"))
    return ModelShape(
        name=header.name,
        n_ctx_train=header.context_length,
        n_embd=n_embd,
        n_ff=max(*keys.per_layer("feed_forward_length", n_layers), experts),
        n_heads=max(heads),
        q_width=max(heads) * k_width,
        n_vocab=embedding.shape[1],
        masks=2 if keys.number("attention.sliding_window") else 1,
        layers=_layers(keys, tensors, head_width),
        input_bytes=_total(outside) - output_bytes,
        output_bytes=output_bytes,
        tied=not any(t.name == "output.weight" for t in outside),
    )


def _layers(
    keys: "_Keys", tensors: Sequence[Sequence[TensorInfo]], head_width: int
) -> tuple[Layer, ...]:
    kv_heads = keys.per_layer(
        "attention.head_count_kv", len(tensors), otherwise="attention.head_count"
    )
    windowed = keys.pattern("attention.sliding_window_pattern", len(tensors))
    # Gemma's later models: the last layers look into the caches of earlier ones.
    with_own_cache = len(tensors) - keys.number("attention.shared_kv_layers")
    latent = keys.number("attention.key_length_mla") > 0  # values are a part of the keys
    layers = []
    for number, own in enumerate(tensors):
        names = [match[2] for t in own if (match := _LAYER.match(t.name))]
        recurrent = any(name.startswith(_RECURRENT) for name in names)
        attends = not recurrent or any(name.startswith(_ATTENTION) for name in names)
        suffix = "_swa" if windowed[number] else ""
        heads = kv_heads[number] if attends and number < with_own_cache else 0
        k_width = keys.length("key", suffix) or head_width
        v_width = 0 if latent else keys.length("value", suffix) or head_width
        matrices: dict[str, int] = {}
        for tensor in own:
            if len(tensor.shape) > 1:
                size = tensor.size_bytes or 0
                matrices[tensor.type_name] = matrices.get(tensor.type_name, 0) + size
        state = keys.state_bytes() if recurrent else 0
        layers.append(Layer(_total(own), matrices, heads * k_width, heads * v_width, state))
    return tuple(layers)


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
        self._prefix = f"{header.architecture}."

    def value(self, key: str) -> Value | None:
        return self._metadata.get(self._prefix + key)

    def number(self, key: str) -> int:
        return _whole(self.value(key))

    def length(self, of: str, suffix: str) -> int:
        key = f"attention.{of}_length"
        return self.number(key + suffix) or self.number(key)

    def per_layer(self, key: str, n_layers: int, otherwise: str = "") -> list[int]:
        value = self.value(key)
        if value is None and otherwise:
            return self.per_layer(otherwise, n_layers)
        if isinstance(value, np.ndarray):
            numbers = [_whole(item) for item in value[:n_layers].tolist()]
            return numbers + [0] * (n_layers - len(numbers))
        return [_whole(value)] * n_layers

    def pattern(self, key: str, n_layers: int) -> list[bool]:
        """Return which layers see only a window, where the file says so layer by layer."""
        value = self.value(key)
        listed = value[:n_layers].tolist() if isinstance(value, np.ndarray) else []
        return [bool(item) for item in listed] + [False] * (n_layers - len(listed))

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
