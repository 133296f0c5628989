"""A real recurrent model of a few kilobytes, with random weights: what cannot be truncated."""

from math import prod
from pathlib import Path

import numpy as np

from tests.models.gguf_builder import Content, Tensor, build

_N_EMBD, _D_INNER, _D_STATE, _D_CONV, _DT_RANK, _N_LAYER = 32, 64, 8, 4, 4, 2
_CONTROL, _NORMAL = 3, 1
SUPPRESSED = [5, 7]


def byte_pieces() -> list[str]:
    """Return GPT-2's printable stand-ins for the 256 bytes."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    odd = [byte for byte in range(256) if byte not in printable]
    return [chr(b) if b in printable else chr(256 + odd.index(b)) for b in range(256)]


def write(path: Path) -> Path:
    """Write the model and return its path."""
    tokens = [*byte_pieces(), "<|endoftext|>"]
    values: dict[str, Content] = {
        "general.architecture": "mamba",
        "mamba.context_length": 512,
        "mamba.embedding_length": _N_EMBD,
        "mamba.feed_forward_length": 0,
        "mamba.attention.head_count": 0,
        "mamba.block_count": _N_LAYER,
        "mamba.ssm.conv_kernel": _D_CONV,
        "mamba.ssm.inner_size": _D_INNER,
        "mamba.ssm.state_size": _D_STATE,
        "mamba.ssm.time_step_rank": _DT_RANK,
        "mamba.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [*[_NORMAL] * 256, _CONTROL],
        "tokenizer.ggml.merges": ["t h"],
        "tokenizer.ggml.eos_token_id": 256,
        "tokenizer.ggml.suppress_tokens": SUPPRESSED,
        "tokenizer.chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (_N_EMBD, len(tokens)),
        "output_norm.weight": (_N_EMBD,),
    }
    for layer in range(_N_LAYER):
        block = {
            "attn_norm.weight": (_N_EMBD,),
            "ssm_in.weight": (_N_EMBD, 2 * _D_INNER),
            "ssm_conv1d.weight": (_D_CONV, _D_INNER),
            "ssm_conv1d.bias": (_D_INNER,),
            "ssm_x.weight": (_D_INNER, _DT_RANK + 2 * _D_STATE),
            "ssm_dt.weight": (_DT_RANK, _D_INNER),
            "ssm_dt.bias": (_D_INNER,),
            "ssm_a": (_D_STATE, _D_INNER),
            "ssm_d": (_D_INNER,),
            "ssm_out.weight": (_D_INNER, _N_EMBD),
        }
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
    random = np.random.default_rng(1)
    tensors, data = [], b""
    for name, shape in shapes.items():
        numbers = random.normal(0, 0.3, prod(shape))
        if name.endswith("ssm_a"):
            numbers = -np.abs(numbers) - 0.1  # a state that decays
        weights = numbers.astype(np.float32)
        tensors.append(Tensor(name, shape, offset=len(data)))
        data += weights.tobytes() + bytes(-weights.nbytes % 32)
    path.write_bytes(build(values, tensors) + data)
    return path
