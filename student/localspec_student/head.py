"""The EAGLE-3 head in torch, as llama.cpp computes it, with a norm before the encoder.

Source: `src/models/eagle3.cpp` of llama.cpp; Li et al. 2025, arXiv:2503.01840.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from localspec_student.files import NAMES, Floats, Integers, Target

Tensor = Any  # torch has types of its own, which are not needed to check ours
Pairs = tuple[tuple[Tensor, Tensor], ...]
"""Keys and values of each depth."""

_MIXES = 0.25
"""Of a random encoder, the share that is left beside a warm start."""


class Head:
    """A head: weights by the names of `NAMES`, and the function that they make up.

    Args:
        shape: the target, whose sizes it has.
        weights: torch's tensors, on one device; all but the output matrix are trained.
        dropout: share of activations left out; 0 when it is used.
    """

    def __init__(self, shape: Target, weights: Mapping[str, Tensor], dropout: float = 0.0) -> None:
        self.shape, self.weights, self.dropout = shape, dict(weights), dropout

    def logits(self, row: Tensor, places: Tensor | None = None) -> Tensor:
        """Return the logits of rows, of all ids of the head or of those at some places."""
        out = self.weights["out"]
        return F.linear(self._norm(row, "out_norm"), out if places is None else out[places])

    def unrolled(self, embedded: Tensor, rows: Tensor, depths: int) -> Iterator[Tensor]:
        """Yield of each depth d the rows whose logits are of the token after place j + 1 + d, for j in 0 … T - 2 - d.

        Args:
            embedded: of the tokens, shape (B, T, width).
            rows: the target's of the same tokens, shape (B, T, 3 · width).
            depths: how many.
        """
        row = F.linear(self._norm(rows[:, :-1], "encoder_norm"), self.weights["fc"])
        past: Pairs = ()
        for depth in range(depths):
            # What is behind the end is of no meaning, and left out below.
            ahead = F.pad(embedded[:, 1 + depth :], (0, 0, 0, depth))
            row, past = self._step(ahead, row, depth, past)
            yield row[:, : rows.shape[1] - 1 - depth]

    def _step(self, embedded: Tensor, row: Tensor, depth: int, past: Pairs) -> tuple[Tensor, Pairs]:
        """Return the rows of a depth, of which that at index j stands at place j + depth, and keys and values up to it.

        Args:
            embedded: of the tokens that go in.
            row: of the depth before, or the encoder's.
            depth: from 0.
            past: keys and values of the depths before.
        """
        weights, length = self.weights, row.shape[1]
        both = torch.cat([self._norm(embedded, "token_norm"), self._norm(row, "row_norm")], -1)
        places = torch.arange(length, device=row.device) + depth
        q, k = (self._rotated(self._by_head(both, name), places) for name in ("q", "k"))
        past = (*past, (k, self._by_head(both, "v")))
        keys, values = (torch.cat(each, 2) for each in zip(*past, strict=True))
        # Of the target's rows, all up to its own; of each depth of its own chain, one.
        square = torch.ones(length, length, dtype=torch.bool, device=row.device)
        seen = torch.cat([square.tril(), *[square.tril().triu()] * depth], -1)
        mixed = F.scaled_dot_product_attention(q, keys, values, seen, enable_gqa=True)
        mixed = F.dropout(mixed.transpose(1, 2).flatten(2), self.dropout)
        row = row + F.linear(mixed, weights["o"])
        normed = self._norm(row, "ffn_norm")
        inner = F.silu(F.linear(normed, weights["gate"])) * F.linear(normed, weights["up"])
        return row + F.linear(F.dropout(inner, self.dropout), weights["down"]), past

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weights[name], self.shape.eps)

    def _by_head(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weights[name]).unflatten(-1, (-1, self.shape.dim)).transpose(1, 2)

    def _rotated(self, x: Tensor, places: Tensor) -> Tensor:
        """Rotate neighbouring channels, ggml's NORM; x has the shape (B, heads, T, dim)."""
        n = self.shape.rotated
        steps = torch.arange(0, n, 2, device=x.device).float() / n
        angles = places[:, None].float() * self.shape.base**-steps
        turned = torch.view_as_complex(x[..., :n].unflatten(-1, (-1, 2)).contiguous())
        turned = torch.view_as_real(turned * torch.polar(torch.ones_like(angles), angles))
        return torch.cat([turned.flatten(-2), x[..., n:]], -1)


def new_weights(
    target: Target, ids: Integers, sample: Floats, *, warm: bool, even: bool
) -> dict[str, Tensor]:
    """Return the weights that training begins with.

    Args:
        target: whose last layer is the start of a warm head, as far as it has weights of its sizes: the last of the three rows
            is its input.
        ids: that the head can propose.
        sample: rows of the target.
        warm: begin there, or at random.
        even: divide the encoder's input by each channel's size: of some targets a few are a hundred times as large as others.
    """
    random, width, inner = np.random.default_rng(1), target.width, target.inner
    queries, kv = target.n_head * target.dim, target.n_kv * target.dim
    sizes = {"fc": (width, 3 * width), "gate": (inner, width), "up": (inner, width)}
    sizes |= {"q": (queries, 2 * width), "k": (kv, 2 * width), "v": (kv, 2 * width)}
    sizes |= {"o": (width, queries), "down": (width, inner)}
    floats = {name: random.normal(0, 0.02, size).astype(np.float32) for name, size in sizes.items()}
    for name in ("token_norm", "row_norm", "ffn_norm", "out_norm"):
        floats[name] = np.ones(width, np.float32)
    rows = target.weights("output")
    floats["out"] = (target.embedding if rows is None else rows)[ids]
    channels = np.sqrt((sample**2).mean(0)) + 1e-6 if even else np.ones(3 * width, np.float32)
    floats["encoder_norm"] = np.sqrt((channels**2).mean()) / channels if even else channels
    if warm:
        # All rows that are handed on are as much smaller as `scale` says: norms undo that.
        last, scale = channels[2 * width :], float(np.median(channels[2 * width :]))
        floats["fc"] *= _MIXES
        floats["fc"][:, 2 * width :] += np.diag(last / scale)
        layer = f"blk.{target.layers[-1]}."
        for name, its in NAMES.items():
            # The head has a second norm there, of the token.
            source = its.replace("blk.0.", layer).removesuffix("_2")
            skipped = name in {"encoder_norm", "fc", "out", "token_norm"}
            weights = None if skipped else target.weights(source)
            place = floats[name][:, width:] if name in {"q", "k", "v"} else floats[name]
            if weights is None or weights.shape != place.shape:
                continue
            if name in {"q", "k"} and target.rotates_halves:
                weights = _as_neighbours(weights, target)
            place[:] = weights / scale if name in {"o", "down"} else weights
    return {name: torch.from_numpy(floats[name].astype(np.float32)) for name in NAMES}


def _as_neighbours(weights: Floats, target: Target) -> Floats:
    """Return rows of queries or keys whose rotated channels were halves (NeoX), in the order of neighbours."""
    order = np.arange(target.dim)
    order[: target.rotated] = order[: target.rotated].reshape(2, -1).T.ravel()
    heads: Floats = weights.reshape(-1, target.dim, weights.shape[1])[:, order]
    return heads.reshape(weights.shape)
