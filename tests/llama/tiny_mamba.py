"""A real recurrent model of a few kilobytes, with random weights: what cannot be rolled back at all."""

from pathlib import Path

import numpy as np

from tests.llama.tiny_gguf import TOKENS, Weights, write_model
from tests.models.gguf_builder import Content

_N_EMBD, _D_INNER, _D_STATE, _D_CONV, _DT_RANK, _N_LAYER = 32, 64, 8, 4, 4, 2
SUPPRESSED = [5, 7]


def write(path: Path) -> Path:
    """Write the model and return its path."""
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (_N_EMBD, TOKENS),
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
    values: dict[str, Content] = {
        ".context_length": 512,
        ".embedding_length": _N_EMBD,
        ".feed_forward_length": 0,
        ".attention.head_count": 0,
        ".block_count": _N_LAYER,
        ".ssm.conv_kernel": _D_CONV,
        ".ssm.inner_size": _D_INNER,
        ".ssm.state_size": _D_STATE,
        ".ssm.time_step_rank": _DT_RANK,
        ".attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.suppress_tokens": SUPPRESSED,
    }
    return write_model(path, "mamba", values, shapes, shaped=_decaying)


def _decaying(name: str, weights: Weights) -> Weights:
    """Let a state decay."""
    return -np.abs(weights) - np.float32(0.1) if name.endswith("ssm_a") else weights
