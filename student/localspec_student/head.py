"""The EAGLE-3 head: what it takes over from its target's file, what it computes, and its own file.

Source: `src/models/eagle3.cpp` of llama.cpp, with a norm before the encoder; Li et al. 2025, arXiv:2503.01840.
"""

import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from numpy.typing import NDArray

from localspec.errors import PairMismatch
from localspec.models.architectures import ACCEPTED, why_no_layer_inputs
from localspec.models.gguf import model_files, read_model

Floats = NDArray[np.float32]
_LAYER = "attn_norm attn_norm_2 attn_q attn_k attn_v attn_output ffn_norm ffn_gate ffn_up ffn_down"
_OWN = ["token_norm", "row_norm", "q", "k", "v", "o", "ffn_norm", "gate", "up", "down"]
# A head's weights, and what llama.cpp calls them.
NAMES = {"encoder_norm": "enc.output_norm", "fc": "fc", "out_norm": "output_norm", "out": "output"}
NAMES |= {own: f"blk.0.{name}" for own, name in zip(_OWN, _LAYER.split(), strict=True)}
Tensor = Any  # torch has types of its own, which are not needed to check ours

_MIXES = 0.25  # of a random encoder, the share that is left beside a warm start
_FIRST_LAYER, _BASE, _EPS, _BLOCK = 2, 10_000.0, 1e-5, 32
_Q8_0 = gguf.GGMLQuantizationType.Q8_0


class Target:
    """A target's file, and the sizes of a head for it, which are those of one of its layers.

    Args:
        path: the first of its files, also an attribute.
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
        self.header, self.path = read_model(path), path
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

    def value(self, key: str) -> Any:
        """Return a number of the header, 0 where there is none; of one for each layer, the last."""
        value: Any = self.header.metadata.get(f"{self.header.architecture}.{key}", 0)
        return value[-1].item() if isinstance(value, np.ndarray) else value

    @cached_property
    def tensors(self) -> dict[str, Any]:
        """All that the files have, by name."""
        readers = map(gguf.GGUFReader, model_files(self.path))
        return {tensor.name: tensor for reader in readers for tensor in reader.tensors}

    def weights(self, name: str) -> Floats:
        """Return a tensor as floats, shape (out, in) of a matrix; an empty one where there is none."""
        if (tensor := self.tensors.get(f"{name}.weight")) is None:
            return np.zeros(0, np.float32)
        return np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float32)


class Head:
    """A head: weights by the names of `NAMES`, and the function that they make up.

    Args:
        shape: the target, whose sizes it has.
        weights: torch's tensors, on one device; all but the output matrix are trained.
    """

    def __init__(self, shape: Target, weights: Mapping[str, Tensor]) -> None:
        self.shape, self.weights = shape, dict(weights)

    def logits(self, row: Tensor, places: Any = slice(None)) -> Tensor:
        """Return the logits of rows, of all ids of the head or of those at some places."""
        return F.linear(self.norm(row, "out_norm"), self.weights["out"][places])

    def outputs(self, rows: Tensor) -> Tensor:
        """Return what it makes of the last of the target's rows, of the same tokens, without these; see `right_teacher`."""
        row = rows[..., -self.shape.width :]
        return self._step(torch.zeros_like(row), row, 0, ())[0]

    def unrolled(self, embedded: Tensor, rows: Tensor, depths: int) -> Iterator[Tensor]:
        """Yield of each depth d the rows whose logits are of the token after place j + 1 + d, for j in 0 … T - 2 - d.

        Args:
            embedded: of the tokens, shape (B, T, width).
            rows: the target's of the same tokens, shape (B, T, 3 · width).
            depths: how many.
        """
        row = F.linear(self.norm(rows[:, :-1], "encoder_norm"), self.weights["fc"]).float()
        past: Any = ()
        for depth in range(depths):
            # What is behind the end is of no meaning, and left out below.
            ahead = F.pad(embedded[:, 1 + depth :], (0, 0, 0, depth))
            row, past = self._step(ahead, row, depth, past)
            yield row[:, : rows.shape[1] - 1 - depth]

    def _step(self, embedded: Tensor, row: Tensor, depth: int, past: Any) -> tuple[Tensor, Any]:
        """Return the rows of a depth, of which that at index j stands at place j + depth, and keys and values up to it.

        Args:
            embedded: of the tokens that go in.
            row: of the depth before, or the encoder's.
            depth: from 0.
            past: keys and values of the depths before.
        """
        weights, length = self.weights, row.shape[1]
        both = torch.cat([self.norm(embedded, "token_norm"), self.norm(row, "row_norm")], -1)
        places = torch.arange(length, device=row.device) + depth
        q, k = (self._rotated(self._by_head(both, name), places) for name in ("q", "k"))
        past = (*past, (k, self._by_head(both, "v")))
        # Of the target's rows, each sees all up to its own; of each depth of its own chain, one.
        q = q.unflatten(1, (k.shape[1], -1)) / math.sqrt(q.shape[-1])
        (k, v), *chain = ((keys[:, :, None], values[:, :, None]) for keys, values in past)
        later = torch.ones(length, length, dtype=torch.bool, device=row.device).triu(1)
        scores = [(q @ k.mT).masked_fill(later, -math.inf)]
        scores += [(q * keys).sum(-1, keepdim=True) for keys, _ in chain]
        shares = torch.cat(scores, -1).softmax(-1)
        mixed = shares[..., :length] @ v
        for at, (_, values) in enumerate(chain):
            mixed = mixed + shares[..., length + at : length + at + 1] * values
        mixed = mixed.flatten(1, 2).transpose(1, 2).flatten(2)
        row = row + F.linear(mixed, weights["o"])
        normed = self.norm(row, "ffn_norm")
        inner = F.silu(F.linear(normed, weights["gate"])) * F.linear(normed, weights["up"])
        return row + F.linear(inner, weights["down"]), past

    def norm(self, x: Tensor, name: str = "") -> Tensor:
        """Return rows with a mean square of 1, and then by the weights of a norm, if one is named."""
        return F.rms_norm(
            x.float(), x.shape[-1:], self.weights[name] if name else None, self.shape.eps
        )

    def _by_head(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weights[name]).unflatten(-1, (-1, self.shape.dim)).transpose(1, 2)

    def _rotated(self, x: Tensor, places: Tensor) -> Tensor:
        """Rotate neighbouring channels, ggml's NORM; x has the shape (B, heads, T, dim)."""
        n = self.shape.rotated
        steps = torch.arange(0, n, 2, device=x.device).float() / n
        angles = places[:, None].float() * self.shape.base**-steps
        turned = torch.view_as_complex(x[..., :n].float().unflatten(-1, (-1, 2)).contiguous())
        turned = torch.view_as_real(turned * torch.polar(torch.ones_like(angles), angles))
        return torch.cat([turned.flatten(-2), x[..., n:]], -1)


def last_layer(target: Target) -> dict[str, Floats]:
    """Return the weights of the target's last layer, and of what follows it, by the names of a head's.

    A head has another norm there, of the token that it takes in, and as many columns more of queries, keys and values.
    """
    layer, skipped = f"blk.{target.layers[-1]}.", {"encoder_norm", "fc", "token_norm"}
    # Of others than a llama, channels of two halves are rotated together.
    skipped |= set() if target.header.architecture == "llama" else {"q", "k"}
    names = {own: its.removesuffix("_2") for own, its in NAMES.items() if own not in skipped}
    found = {own: target.weights(its.replace("blk.0.", layer)) for own, its in names.items()}
    return found | ({} if found["out"].size else {"out": target.weights("token_embd")})


def new_weights(target: Target, ids: Any, sample: Floats) -> dict[str, Tensor]:
    """Return the weights that training begins with.

    Args:
        target: whose last layer is the start, as far as it has weights of a head's sizes: the last of the three rows is its input.
        ids: that the head can propose.
        sample: rows of the target.
    """
    random, width, inner = np.random.default_rng(1), target.width, target.inner
    queries, kv = target.n_head * target.dim, target.n_kv * target.dim
    sizes = {"fc": (width, 3 * width), "gate": (inner, width), "up": (inner, width)}
    sizes |= {"q": (queries, 2 * width), "k": (kv, 2 * width), "v": (kv, 2 * width)}
    sizes |= {"o": (width, queries), "down": (width, inner)}
    floats = {name: random.normal(0, 0.02, size).astype(np.float32) for name, size in sizes.items()}
    floats |= {name: np.ones(width, np.float32) for name in NAMES if name.endswith("_norm")}
    taken = last_layer(target)
    floats["out"] = taken.pop("out")[ids]
    # Of some targets a few channels are a hundred times as large as others.
    channels = np.sqrt((sample**2).mean(0)) + 1e-6
    floats["encoder_norm"] = np.sqrt((channels**2).mean()) / channels
    # All rows that are handed on are as much smaller as `scale` says: norms undo that.
    last, scale = channels[2 * width :], float(np.median(channels[2 * width :]))
    floats["fc"] *= _MIXES
    floats["fc"][:, 2 * width :] += np.diag(last / scale)
    for name, weights in taken.items():
        place = floats[name][..., -weights.shape[-1] or None :]
        if weights.shape == place.shape:
            place[:] = weights / scale if name in {"o", "down"} else weights
    return {name: torch.from_numpy(floats[name].astype(np.float32)) for name in NAMES}


def write_head(target: Target, state: Mapping[str, Any], path: Path, accepted: float) -> None:
    """Write a head's file; matrices but the encoder's are of 8 bits where blocks divide their rows.

    Args:
        target: whose tokenizer the file has, too.
        state: weights and ids, as torch's tensors.
        path: the file.
        accepted: share of first drafted tokens that was accepted, of the kind that suits it best.

    Raises:
        OSError: the disk does not take it.
    """
    writer = gguf.GGUFWriter(path, "eagle3")
    numbers = {"embedding_length": target.width, "target_hidden_size": target.width}
    numbers |= {"block_count": 1, "context_length": target.value("context_length")}
    numbers |= {"feed_forward_length": target.inner, "rope.dimension_count": target.rotated}
    numbers |= {"attention.head_count": target.n_head, "attention.head_count_kv": target.n_kv}
    numbers |= {"attention.key_length": target.dim, "attention.value_length": target.dim}
    for key, number in numbers.items():
        writer.add_uint32(f"eagle3.{key}", number)
    writer.add_layer_norm_rms_eps(target.eps)
    writer.add_rope_freq_base(target.base)
    writer.add_float32(ACCEPTED, accepted)
    writer.add_array("eagle3.target_layers", [*target.layers])
    writer.add_bool("eagle3.norm_before_fc", True)
    for name, field in gguf.GGUFReader(target.path).fields.items():
        if name.startswith("tokenizer."):
            writer.add_key_value(name, field.contents(), *field.types[:2])
    for name, its in NAMES.items():
        weights, kind = state["weights"][name].detach().float().numpy(), None
        # Blocks of 8 bits have no room for a few weights of the encoder that are much larger than the others.
        if name != "fc" and weights.ndim > 1 and weights.shape[1] % _BLOCK == 0:
            weights, kind = gguf.quants.quantize(weights, _Q8_0), _Q8_0
        writer.add_tensor(f"{its}.weight", weights, raw_dtype=kind)
    writer.add_tensor("d2t", state["ids"].numpy())  # ids, not differences to their places
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
