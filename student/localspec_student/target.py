"""What the head takes over from a target: sizes, weights, and which of its layers it follows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from localspec.errors import ModelFileError, PairMismatch
from localspec.models.architectures import why_no_layer_inputs
from localspec.models.gguf import GgufHeader, model_files, read_model

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
_FIRST_LAYER, _BASE, _EPS = 2, 10_000.0, 1e-5


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Sizes of a head, which are those of one of the target's layers.

    Args:
        width: of a row.
        n_head: heads of attention.
        n_kv: of them, those with keys and values of their own.
        dim: width of one.
        rotated: how many of its channels are rotated.
        inner: width between the matrices of the feed-forward part.
        base: of the rotation.
        eps: of norms.
        n_ctx: tokens of context.
        layers: of the target, whose inputs it follows.
    """

    width: int
    n_head: int
    n_kv: int
    dim: int
    rotated: int
    inner: int
    base: float
    eps: float
    n_ctx: int
    layers: tuple[int, int, int]


class Target:
    """A target's file.

    Args:
        path: the first of its files.
        name: what messages call it.

    Attributes:
        header: of all of them.
        shape: of a head for it.

    Raises:
        PairMismatch: no head can follow it.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.header: GgufHeader = read_model(path)
        reason = why_no_layer_inputs(self.header)
        if reason is not None:
            raise PairMismatch(f"{name} {reason}")
        self._path, self._tensors, self._fields = path, dict[str, Any](), dict[str, Any]()
        n_head = self._number("attention.head_count")
        last = self._number("block_count") - self._number("nextn_predict_layers") - 1
        width = self._number("embedding_length")
        dim = self._number("attention.key_length") or width // n_head
        self.shape = HeadShape(
            width,
            n_head,
            self._number("attention.head_count_kv") or n_head,
            dim,
            self._number("rope.dimension_count") or dim,
            self._number("feed_forward_length") or 4 * width,
            self._float("rope.freq_base", _BASE),
            self._float("attention.layer_norm_rms_epsilon", _EPS),
            self._number("context_length"),
            (min(_FIRST_LAYER, last), last // 2 + 1 if last > 1 else last, last),
        )

    def _value(self, key: str) -> Any:
        """Return a value of the header; of one for each layer, the last."""
        value = self.header.metadata.get(f"{self.header.architecture}.{key}")
        return value[-1] if isinstance(value, np.ndarray) else value

    def _number(self, key: str) -> int:
        return int(self._value(key) or 0)

    def _float(self, key: str, usual: float) -> float:
        return float(self._value(key) or usual)

    @property
    def rotates_halves(self) -> bool:
        """Whether rotated channels are not neighbours, as they are in a head and in a llama."""
        return self.header.architecture != "llama"

    def _all(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return tensors and fields by name; the files are read when they are first needed."""
        if not self._tensors:
            for file in model_files(self._path):
                reader = gguf.GGUFReader(file)
                self._tensors |= {each.name: each for each in reader.tensors}
                self._fields |= reader.fields
        return self._tensors, self._fields

    def fields(self, beginning: str) -> list[tuple[str, Any]]:
        """Return the fields whose names begin so."""
        return [each for each in self._all()[1].items() if each[0].startswith(beginning)]

    def weights(self, name: str) -> Floats | None:
        """Return a tensor as floats, shape (out, in) of a matrix; None where there is none."""
        tensor = self._all()[0].get(name)
        if tensor is None:
            return None
        floats: Floats = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        return np.ascontiguousarray(floats, np.float32)

    def embedding(self) -> Floats:
        """Return the rows of all ids."""
        rows = self.weights("token_embd.weight")
        if rows is None:
            raise ModelFileError(f"{self.header.name} has no rows of its ids: choose another file")
        return rows

    def output(self) -> Floats:
        """Return the output matrix, which may be the embedding."""
        rows = self.weights("output.weight")
        return self.embedding() if rows is None else rows
