"""Real models of some kilobytes with random weights, which speak bytes: what is the same in all of them."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tests.models.gguf_builder import Content, Tensor, build

TOKENS = 257
"""The 256 bytes, and what ends a reply."""
_CONTROL, _NORMAL = 3, 1
_F32, _Q8_0, _I64, _BLOCK = 0, 8, 27, 32
Weights = NDArray[np.float32]


def byte_pieces() -> list[str]:
    """Return GPT-2's printable stand-ins for the 256 bytes."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    odd = [byte for byte in range(256) if byte not in printable]
    return [chr(b) if b in printable else chr(256 + odd.index(b)) for b in range(256)]


def byte_tokenizer() -> dict[str, Content]:
    """Return the keys of a tokenizer of bytes, and of a chat template."""
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*byte_pieces(), "<|endoftext|>"],
        "tokenizer.ggml.token_type": [*[_NORMAL] * 256, _CONTROL],
        "tokenizer.ggml.merges": ["t h"],
        "tokenizer.ggml.eos_token_id": 256,
        "tokenizer.chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }


def write_model(
    path: Path,
    architecture: str,
    values: Mapping[str, Content],
    shapes: Mapping[str, tuple[int, ...]],
    seed: int = 1,
    shaped: Callable[[str, Weights], Weights] = lambda _name, weights: weights,
    *,
    quantised: bool = False,
    whole: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> Path:
    """Write a model and return its path.

    Names of `values` that begin with a dot are the architecture's; `shapes` are as ggml counts dimensions. Weights are normal with
    a deviation of 0.3, before `shaped` changes them, in numpy's order of dimensions. Where matrices are `quantised` to Q8_0, passes
    of several tokens can round as those of one do, in F32 never. `whole` are tensors of whole numbers.
    """
    own = any(name.startswith("tokenizer.ggml.tokens") for name in values)
    header: dict[str, Content] = {"general.architecture": architecture}
    header |= {} if own else byte_tokenizer()
    for name, value in values.items():
        header[architecture + name if name.startswith(".") else name] = value
    random, tensors, data = np.random.default_rng(seed), [], b""
    for name, shape in shapes.items():
        numbers = random.normal(0, 0.3, prod(shape)).astype(np.float32).reshape(shape[::-1])
        weights = np.ascontiguousarray(shaped(name, numbers), dtype=np.float32)
        assert weights.size == prod(shape), name
        q8_0 = quantised and len(shape) == 2 and "conv" not in name
        written = _in_q8_0(weights) if q8_0 else weights.tobytes()
        tensors.append(Tensor(name, shape, _Q8_0 if q8_0 else _F32, len(data)))
        data += written + bytes(-len(written) % 32)
    for name, integers in whole.items():
        tensors.append(Tensor(name, (len(integers),), _I64, len(data)))
        data += np.array(integers, dtype=np.int64).tobytes() + bytes(-8 * len(integers) % 32)
    path.write_bytes(build(header, tensors) + data)
    return path


def _in_q8_0(weights: Weights) -> bytes:
    """Return blocks of 32 weights, each its scale and whole numbers, as ggml has them."""
    blocks = weights.reshape(-1, _BLOCK)
    scales = (np.abs(blocks).max(axis=1, keepdims=True) / 127).astype(np.float16)
    divisors = np.where(scales == 0, 1, scales).astype(np.float32)
    numbers = np.rint(blocks / divisors).clip(-127, 127).astype(np.int8)
    return np.hstack([scales.view(np.int8).reshape(-1, 2), numbers]).tobytes()
