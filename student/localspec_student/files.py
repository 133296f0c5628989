"""GGUF files: what a head takes over from its target, and the head as llama.cpp reads it."""

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from localspec.errors import PairMismatch
from localspec.models.architectures import why_no_layer_inputs
from localspec.models.gguf import model_files, read_model

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
_LAYER = "attn_norm attn_norm_2 attn_q attn_k attn_v attn_output ffn_norm ffn_gate ffn_up ffn_down"
_OWN = ["token_norm", "row_norm", "q", "k", "v", "o", "ffn_norm", "gate", "up", "down"]
NAMES = {"encoder_norm": "enc.output_norm", "fc": "fc", "out_norm": "output_norm", "out": "output"}
NAMES |= {own: f"blk.0.{name}" for own, name in zip(_OWN, _LAYER.split(), strict=True)}
"""A head's weights, and what llama.cpp calls them."""
_FIRST_LAYER, _BASE, _EPS, _BLOCK = 2, 10_000.0, 1e-5, 32
_Q8_0 = gguf.GGMLQuantizationType.Q8_0


class Target:
    """A target's file, and the sizes of a head for it, which are those of one of its layers.

    Args:
        path: the first of its files.
        name: what messages call it.

    Attributes:
        layers: whose inputs the head follows.
        width: floats of a row.
        n_head: heads of attention.
        n_kv: of them, those with keys and values of their own.
        dim: width of one.
        rotated: how many of its channels are rotated.
        inner: width between the matrices of the feed-forward part.
        base: of the rotation.
        eps: of norms.

    Raises:
        PairMismatch: no head can follow it.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.header, self._path = read_model(path), path
        if reason := why_no_layer_inputs(self.header):
            raise PairMismatch(f"{name} {reason}")
        last = int(self.value("block_count") - self.value("nextn_predict_layers") - 1)
        self.layers = min(_FIRST_LAYER, last), min(last // 2 + 1, last), last
        self.width, self.n_head = self.value("embedding_length"), self.value("attention.head_count")
        self.n_kv = self.value("attention.head_count_kv") or self.n_head
        self.dim = self.value("attention.key_length") or self.width // self.n_head
        self.rotated = self.value("rope.dimension_count") or self.dim
        self.inner = self.value("feed_forward_length") or 4 * self.width
        self.base = self.value("rope.freq_base") or _BASE
        self.eps = self.value("attention.layer_norm_rms_epsilon") or _EPS
        # Of a llama, as of a head, neighbouring channels are rotated together; of others, those of two halves.
        self.rotates_halves = self.header.architecture != "llama"

    def value(self, key: str) -> Any:
        """Return a number of the header, 0 where there is none; of one for each layer, the last."""
        value: Any = self.header.metadata.get(f"{self.header.architecture}.{key}", 0)
        return value[-1].item() if isinstance(value, np.ndarray) else value

    @cached_property
    def readers(self) -> list[Any]:
        """The files, read."""
        return [gguf.GGUFReader(file) for file in model_files(self._path)]

    @cached_property
    def embedding(self) -> Floats:
        """The rows of all ids."""
        rows = self.weights("token_embd")
        return np.zeros((0, self.width), np.float32) if rows is None else rows

    def weights(self, name: str) -> Floats | None:
        """Return a tensor as floats, shape (out, in) of a matrix; None where there is none."""
        every = (tensor for reader in self.readers for tensor in reader.tensors)
        tensor = next((each for each in every if each.name == f"{name}.weight"), None)
        if tensor is None:
            return None
        floats = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        return np.ascontiguousarray(floats, np.float32)


def write_head(target: Target, state: Mapping[str, Any], path: Path) -> None:
    """Write a head's file; matrices are of 8 bits where blocks divide their rows.

    Args:
        target: whose tokenizer the file has, too.
        state: weights and ids, as torch's tensors.
        path: the file.

    Raises:
        OSError: the disk does not take it.
    """
    writer = gguf.GGUFWriter(path, "eagle3")
    writer.add_name("EAGLE-3 head trained by localspec-student")
    keys = "context_length embedding_length target_hidden_size feed_forward_length block_count"
    keys += " attention.head_count attention.head_count_kv attention.key_length"
    keys += " attention.value_length rope.dimension_count"
    numbers = [target.value("context_length"), target.width, target.width, target.inner, 1]
    numbers += [target.n_head, target.n_kv, target.dim, target.dim, target.rotated]
    for key, number in zip(keys.split(), numbers, strict=True):
        writer.add_uint32(f"eagle3.{key}", number)
    writer.add_layer_norm_rms_eps(target.eps)
    writer.add_rope_freq_base(target.base)
    writer.add_array("eagle3.target_layers", [*target.layers])
    writer.add_bool("eagle3.norm_before_fc", True)
    for name, field in target.readers[0].fields.items():
        if name.startswith("tokenizer."):
            inner = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)
    for name, its in NAMES.items():
        weights, kind = state["weights"][name].detach().float().numpy(), None
        if weights.ndim > 1 and weights.shape[1] % _BLOCK == 0:
            weights, kind = gguf.quants.quantize(weights, _Q8_0), _Q8_0
        writer.add_tensor(f"{its}.weight", weights, raw_dtype=kind)
    writer.add_tensor("d2t", state["ids"].numpy())  # ids, not differences to their places
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
