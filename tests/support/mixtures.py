"""Small models with random weights: mixtures of experts, and a dense one, in any type that llama.cpp quantises to.

They speak bytes and make no sense. A router is F32 in every file, as llama.cpp's own tools leave it.

Source: `src/models/` of llama.cpp for names and shapes.
"""

import ctypes
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.synthetic.gguf_layout import Placed
from lab.synthetic.gguf_writer import NewTensor, Value, encoded, write_gguf
from localspec.errors import LocalspecError
from localspec.llama.backend import initialise, last_complaint
from localspec.llama.native import native

TYPES = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q8_0": 7,
    "Q2_K": 10,
    "Q4_K_M": 15,
    "Q6_K": 18,
    "IQ3_XXS": 23,
    "IQ4_NL": 25,
    "IQ3_S": 26,
    "IQ4_XS": 30,
    "BF16": 32,
    "MXFP4": 38,
}
"""llama.cpp's `llama_ftype` by the names of files."""
_MIXED, _Q4_K = "Q8_0+Q4_K", 12
"""A kind of which the experts alone are Q4_K, as in many files that are meant to be small and good."""
_N_EMBD, _N_HEAD, _N_HEAD_KV, _WIDTH, _N_FF = 256, 4, 2, 64, 256
_EXPERTS, _USED, _WINDOW = 8, 2, 128
_F32, _CONTROL, _NORMAL = 0, 3, 1
_SPREAD = 0.6
"""Deviation of what each layer adds to the residual: texts depend on all layers, and do not fall into one cycle at once."""
Shapes = dict[str, tuple[int, ...]]


def byte_pieces() -> list[str]:
    """Return GPT-2's printable stand-ins for the 256 bytes."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    odd = [byte for byte in range(256) if byte not in printable]
    return [chr(b) if b in printable else chr(256 + odd.index(b)) for b in range(256)]


def mixture(folder: Path, architecture: str, layers: int, kind: str, seed: int = 1) -> Path:
    """Return a model of so many layers whose weights are of a kind, one of `TYPES` or Q8_0+Q4_K; one that is there is taken.

    Raises:
        LocalspecError: llama.cpp cannot quantise it so.
        OSError: the disk has no room for it.
    """
    stem = f"{architecture}-{layers}-{seed}"
    made, source = folder / f"{stem}-{kind}.gguf", folder / f"{stem}-F32.gguf"
    if not source.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = source.with_suffix(".partial")
        _write(partial, architecture, layers, seed)
        partial.replace(source)
    if not made.exists():
        partial = made.with_suffix(".partial")
        _quantise(source, partial, kind)
        partial.replace(made)
    return made


def _quantise(source: Path, destination: Path, kind: str) -> None:
    initialise()
    params = native.llama_model_quantize_default_params()
    params.ftype = TYPES[kind.partition("+")[0]]
    if kind == _MIXED:
        override = native.llama_model_tensor_override
        params.tt_overrides = (override * 2)(override(b"_exps", _Q4_K), override(None, 0))
    files = str(source).encode(), str(destination).encode()
    if native.llama_model_quantize(*files, ctypes.byref(params)):
        raise LocalspecError(f"llama.cpp cannot quantise {source}: {last_complaint()}")


def _write(path: Path, architecture: str, layers: int, seed: int) -> None:
    shapes: Shapes = {
        "token_embd.weight": (_N_EMBD, 257),
        "output_norm.weight": (_N_EMBD,),
        "output.weight": (_N_EMBD, 257),
    }
    for layer in range(layers):
        for name, shape in _layer(architecture).items():
            shapes[f"blk.{layer}.{name}"] = shape
    if architecture == "gemma4":
        shapes["rope_freqs.weight"] = (_WIDTH // 2,)
    random, tensors = np.random.default_rng(seed), list[NewTensor]()
    for name, shape in shapes.items():
        data = _weights(random, name, shape).astype(np.float32).tobytes()
        tensors.append(NewTensor(name, Placed(name, shape, _F32, 0, len(data)), [data]))
    with path.open("wb") as file:
        for _ in write_gguf(file, 3, _values(architecture, layers), tensors, 32):
            pass


def _weights(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return weights in numpy's order: of a matrix, as large as keeps the size of what goes through it."""
    numbers: NDArray[np.float64] = random.normal(size=shape[::-1])
    if "bias" in name or "sinks" in name:
        return 0.1 * numbers
    if len(shape) == 1:
        return np.ones_like(numbers) if "freqs" in name else 1 + 0.1 * numbers
    if name.startswith("token_embd"):
        return numbers
    adds = _SPREAD if "attn_output" in name or "ffn_down" in name else 1.0
    scaled: NDArray[np.float64] = numbers * (adds / shape[0] ** 0.5)
    return scaled


def _layer(architecture: str) -> Shapes:
    heads, kv_heads = _N_HEAD * _WIDTH, _N_HEAD_KV * _WIDTH
    shapes: Shapes = {
        "attn_norm.weight": (_N_EMBD,),
        "attn_q.weight": (_N_EMBD, heads),
        "attn_k.weight": (_N_EMBD, kv_heads),
        "attn_v.weight": (_N_EMBD, kv_heads),
        "attn_output.weight": (heads, _N_EMBD),
    }
    if architecture in {"llama", "gemma4"}:
        shapes |= dict.fromkeys(("ffn_gate.weight", "ffn_up.weight"), (_N_EMBD, _N_FF))
        shapes |= {"ffn_down.weight": (_N_FF, _N_EMBD), "ffn_norm.weight": (_N_EMBD,)}
    if architecture == "llama":
        return shapes
    shapes |= {"ffn_gate_inp.weight": (_N_EMBD, _EXPERTS)}
    shapes |= dict.fromkeys(
        ("ffn_gate_exps.weight", "ffn_up_exps.weight"), (_N_EMBD, _N_FF, _EXPERTS)
    )
    shapes |= {"ffn_down_exps.weight": (_N_FF, _N_EMBD, _EXPERTS)}
    if architecture == "gpt-oss":
        biased = {name: shapes[name] for name in shapes if "norm" not in name}
        for name, shape in biased.items():
            shapes[name.replace("weight", "bias")] = shape[1:]
        return shapes | {
            "post_attention_norm.weight": (_N_EMBD,),
            "attn_sinks.weight": (_N_HEAD,),
        }
    shapes |= {"attn_q_norm.weight": (_WIDTH,), "attn_k_norm.weight": (_WIDTH,)}
    if architecture == "qwen3moe":
        return shapes | {"ffn_norm.weight": (_N_EMBD,)}
    norms = ("post_attention_norm", "post_ffw_norm", "post_ffw_norm_1", "post_ffw_norm_2")
    shapes |= {f"{name}.weight": (_N_EMBD,) for name in (*norms, "pre_ffw_norm_2")}
    return shapes | {"ffn_gate_inp.scale": (_N_EMBD,), "layer_output_scale.weight": (1,)}


def _values(architecture: str, layers: int) -> dict[str, bytes]:
    sizes: dict[str, Value] = {
        "context_length": 4096,
        "embedding_length": _N_EMBD,
        "feed_forward_length": _N_FF,
        "block_count": layers,
        "attention.head_count": _N_HEAD,
        "attention.head_count_kv": _N_HEAD_KV,
        "attention.key_length": _WIDTH,
        "attention.value_length": _WIDTH,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": _WIDTH,
        "rope.freq_base": 10_000.0,
    }
    if architecture != "llama":
        sizes |= {"expert_count": _EXPERTS, "expert_used_count": _USED}
        sizes |= {"expert_feed_forward_length": _N_FF, "attention.sliding_window": _WINDOW}
    if architecture == "gemma4":
        sizes |= {
            "embedding_length_per_layer_input": 0,
            "attention.sliding_window_pattern": [1, 0] * (layers // 2),
            "attention.key_length_swa": _WIDTH,
            "attention.value_length_swa": _WIDTH,
            "rope.dimension_count_swa": _WIDTH,
        }
    values: dict[str, Value] = {
        "general.architecture": architecture,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*byte_pieces(), "<|endoftext|>"],
        "tokenizer.ggml.token_type": [*[_NORMAL] * 256, _CONTROL],
        "tokenizer.ggml.merges": ["t h"],
        "tokenizer.ggml.eos_token_id": 256,
        "tokenizer.chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }
    values |= {f"{architecture}.{name}": value for name, value in sizes.items()}
    return {key: encoded(value) for key, value in values.items()}
