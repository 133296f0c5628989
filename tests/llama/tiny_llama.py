"""A real model of some kilobytes with random weights: a llama of bytes, which answers anything."""

from pathlib import Path

from tests.llama.tiny_gguf import TOKENS, write_model

N_EMBD, _N_FF, _N_LAYER, _N_HEAD = 64, 96, 2, 2


def write(path: Path, seed: int = 1) -> Path:
    """Write the model, all of it F32, and return its path."""
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (N_EMBD, TOKENS),
        "output_norm.weight": (N_EMBD,),
        "output.weight": (N_EMBD, TOKENS),
    }
    for layer in range(_N_LAYER):
        block: dict[str, tuple[int, ...]] = {"attn_norm.weight": (N_EMBD,)}
        block |= {f"attn_{part}.weight": (N_EMBD, N_EMBD) for part in ("q", "k", "v", "output")}
        block |= {"ffn_norm.weight": (N_EMBD,), "ffn_gate.weight": (N_EMBD, _N_FF)}
        block |= {"ffn_up.weight": (N_EMBD, _N_FF), "ffn_down.weight": (_N_FF, N_EMBD)}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
    values = {
        ".context_length": 1024,
        ".embedding_length": N_EMBD,
        ".feed_forward_length": _N_FF,
        ".block_count": _N_LAYER,
        ".attention.head_count": _N_HEAD,
        ".attention.layer_norm_rms_epsilon": 1e-5,
        ".rope.dimension_count": N_EMBD // _N_HEAD,
    }
    return write_model(path, "llama", values, shapes, seed)
