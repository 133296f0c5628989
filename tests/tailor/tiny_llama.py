"""A real model of some kilobytes with random weights: a llama of bytes, which answers anything."""

from math import prod
from pathlib import Path

import numpy as np

from tests.llama.tiny_mamba import byte_pieces
from tests.models.gguf_builder import Content, Tensor, build

N_EMBD, _N_FF, _N_LAYER, _N_HEAD = 64, 96, 2, 2
_CONTROL, _NORMAL = 3, 1


def write(path: Path, seed: int = 1) -> Path:
    """Write the model, all of it F32, and return its path."""
    tokens = [*byte_pieces(), "<|endoftext|>"]
    values: dict[str, Content] = {
        "general.architecture": "llama",
        "llama.context_length": 1024,
        "llama.embedding_length": N_EMBD,
        "llama.feed_forward_length": _N_FF,
        "llama.block_count": _N_LAYER,
        "llama.attention.head_count": _N_HEAD,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": N_EMBD // _N_HEAD,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [*[_NORMAL] * 256, _CONTROL],
        "tokenizer.ggml.merges": ["t h"],
        "tokenizer.ggml.eos_token_id": 256,
        "tokenizer.chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (N_EMBD, len(tokens)),
        "output_norm.weight": (N_EMBD,),
        "output.weight": (N_EMBD, len(tokens)),
    }
    for layer in range(_N_LAYER):
        block: dict[str, tuple[int, ...]] = {"attn_norm.weight": (N_EMBD,)}
        block |= {f"attn_{part}.weight": (N_EMBD, N_EMBD) for part in ("q", "k", "v", "output")}
        block |= {"ffn_norm.weight": (N_EMBD,), "ffn_gate.weight": (N_EMBD, _N_FF)}
        block |= {"ffn_up.weight": (N_EMBD, _N_FF), "ffn_down.weight": (_N_FF, N_EMBD)}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
    random, tensors, data = np.random.default_rng(seed), [], b""
    for name, shape in shapes.items():
        numbers = random.normal(0, 0.3, prod(shape)).astype(np.float32)
        tensors.append(Tensor(name, shape, offset=len(data)))
        data += numbers.tobytes() + bytes(-numbers.nbytes % 32)
    path.write_bytes(build(values, tensors) + data)
    return path
