"""Model files of any size without weights: a header, and a hole where the tensors would be."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from localspec.models.gguf_encoding import GGML_TYPES
from tests.models.gguf_builder import Content, Tensor, build

Q4_K, Q5_0, F32 = 12, 6, 0


@dataclass(frozen=True, slots=True)
class Proportions:
    """Sizes of a model, in llama.cpp's words."""

    arch: str
    layers: int
    n_embd: int
    n_ff: int
    heads: int
    kv_heads: int
    head_width: int
    n_vocab: int
    tied: bool = False
    norms: tuple[str, ...] = ()
    more: tuple[tuple[str, Content], ...] = ()
    mtp: int = 0  # of the layers
    kind: int = Q4_K  # of the matrices
    experts: int = 0  # of a layer, each of this width


NORMS = ("attn_q_norm", "attn_k_norm")
LLAMA_8B = Proportions("llama", 32, 4096, 14336, 32, 8, 128, 128256)
LLAMA_1B = Proportions("llama", 16, 2048, 8192, 32, 8, 64, 128256, tied=True)
QWEN3_06B = Proportions("qwen3", 28, 1024, 3072, 16, 8, 128, 151936, True, NORMS)
QWEN3_8B = Proportions("qwen3", 36, 4096, 12288, 32, 8, 128, 151936, False, NORMS)
LLAMA_14B = Proportions("llama", 48, 5120, 13824, 40, 8, 128, 152064)
GEMMA3_4B = Proportions(
    "gemma3", 34, 2560, 10240, 8, 4, 256, 262144, True, (*NORMS, "post_attention_norm", "post_ffw_norm"),
    (("attention.sliding_window", 1024),),
)  # fmt: skip
STEP35 = Proportions(
    "step35", 35, 2048, 6144, 32, 8, 128, 128896, mtp=3,
    more=(
        ("attention.sliding_window", 512), ("attention.sliding_window_pattern", [1, 0] * 17 + [1]),
        ("expert_feed_forward_length", 1280), ("nextn_predict_layers", 3),
    ),
)  # fmt: skip
QWEN35 = Proportions(
    "qwen35", 33, 2560, 9216, 16, 4, 256, 248320, True, (*NORMS, "post_attention_norm"), mtp=1,
    more=(
        ("rope.dimension_sections", [11, 11, 10, 0]), ("ssm.conv_kernel", 4), ("ssm.inner_size", 4096),
        ("ssm.state_size", 128), ("ssm.time_step_rank", 32), ("ssm.group_count", 16), ("nextn_predict_layers", 1),
    ),
)  # fmt: skip


def sparse_model(
    path: Path,
    size: Proportions,
    more: Mapping[str, Content] | None = None,
    size_bytes: int | None = None,
) -> Path:
    """Write a file of such a model that takes no room on the disk, with `more` values, and a hole up to some size."""
    _sparse(path, {**_values(size), **(more or {})}, _tensors(size))
    if size_bytes is not None:
        assert path.stat().st_size <= size_bytes, f"{path.name} is larger than what it stands for"
        with path.open("r+b") as file:
            file.truncate(size_bytes)
    return path


def sparse_block(
    path: Path,
    size: Proportions,
    kind: str,
    words: Mapping[str, Content] | None = None,
    *,
    own: bool = False,
) -> Path:
    """Write a drafter of blocks for a target of this size: dflash, dspark or dflash2, with an embedding of its `own` or without."""
    embd, rank, layers = size.n_embd, 256, [1, 5, 9, 13, 17]
    more: dict[str, Content] = {"target_layers": layers, "block_size": 16}
    norms = ("enc.output_norm.weight", "output_norm.weight")
    tensors: Tensors = [("fc.weight", (len(layers) * embd, embd), Q4_K)]
    tensors += [(name, (embd,), F32) for name in norms]
    if own:
        tensors += [
            (f"{name}.weight", (embd, size.n_vocab), Q4_K) for name in ("token_embd", "output")
        ]
    if kind == "dspark":
        tensors += [(f"markov_w{at}.weight", (rank, size.n_vocab), Q4_K) for at in (1, 2)]
        tensors.append(("conf_proj.weight", (embd + rank, 1), F32))
    if kind == "dflash2":
        more |= {
            "conv_kernel_size": 3,
            "conv_group_size": 64,
            "selector_rank": rank,
            "selector_top_k": 8,
        }
        for name in ("predecessor", "successor"):
            tensors.append((f"selector_{name}.weight", (rank, size.n_vocab), Q4_K))
        tensors.append(("selector_hidden.weight", (embd, rank), Q4_K))
        for name in (f"blk.{at}.{part}_conv" for at in range(5) for part in ("attn", "ffn")):
            tensors.append((f"{name}_base", (embd, 3, 2), F32))
            tensors.append((f"{name}_proj.weight", (embd, 6 * embd // 64), F32))
    drafter = replace(size, arch="dflash", layers=5, norms=NORMS, more=tuple(more.items()), mtp=0)
    values = {**_values(drafter), **(words or {}), "tokenizer.ggml.mask_token_id": 5}
    return _sparse(path, values, tensors + [each for each in _tensors(drafter) if "blk" in each[0]])


def sparse_gemma4(
    path: Path, words: Mapping[str, Content] | None = None, *, assistant: bool = False
) -> Path:
    """Write a Gemma 4 of twelve layers, or an assistant for it."""
    embd, ff, layers = (1024, 4096, 4) if assistant else (2560, 10240, 12)
    more: dict[str, Content] = {
        "attention.sliding_window": 512,
        "attention.sliding_window_pattern": [1, 0] * (layers // 2),
        "embedding_length_per_layer_input": 0,
        **{
            f"{name}_swa": 256
            for name in ("attention.key_length", "attention.value_length", "rope.dimension_count")
        },
    }
    norms = (*NORMS, "post_attention_norm", "post_ffw_norm")
    size = Proportions("gemma4", layers, embd, ff, 8, 2, 256, 262144, True, norms)
    tensors = [*_tensors(size), ("rope_freqs.weight", (128,), F32)]
    if assistant:
        more |= {"embedding_length_out": 2560, "nextn_predict_layers": layers}
        tensors = [each for each in tensors if "attn_k" not in each[0] and "attn_v" not in each[0]]
        tensors += [(f"blk.{at}.layer_output_scale.weight", (1,), F32) for at in range(layers)]
        tensors.append(("nextn.pre_projection.weight", (2 * 2560, embd), Q4_K))
        tensors.append(("nextn.post_projection.weight", (embd, 2560), Q4_K))
        size = replace(size, arch="gemma4-assistant")
    values = _values(replace(size, more=tuple(more.items())))
    return _sparse(path, {**values, **(words or {})}, tensors)


Tensors = list[tuple[str, tuple[int, ...], int]]


def _sparse(path: Path, values: Mapping[str, Content], named: Tensors) -> Path:
    tensors, offset = [], 0
    for name, shape, kind in named:
        tensors.append(Tensor(name, shape, kind, offset))
        offset += -(-(GGML_TYPES[kind].row_bytes(shape[0]) or 0) * prod(shape[1:]) // 32) * 32
    path.write_bytes(build(values, tensors))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + offset)
    return path


def _values(size: Proportions) -> dict[str, Content]:
    own: dict[str, Content] = {
        "context_length": 131072,
        "block_count": size.layers,
        "embedding_length": size.n_embd,
        "feed_forward_length": size.n_ff,
        "attention.head_count": size.heads,
        "attention.head_count_kv": size.kv_heads,
        "attention.key_length": size.head_width,
        "attention.value_length": size.head_width,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": size.head_width,
        "vocab_size": size.n_vocab,
        **dict(size.more),
    }
    named: dict[str, Content] = {f"{size.arch}.{key}": value for key, value in own.items()}
    return {"general.architecture": size.arch, "tokenizer.ggml.model": "no_vocab", **named}


def _tensors(size: Proportions) -> Tensors:
    embd, ff = size.n_embd, size.n_ff
    q, kv = size.heads * size.head_width, size.kv_heads * size.head_width
    widths = {"attn_q_norm": size.head_width, "attn_k_norm": size.head_width}
    tensors: Tensors = [
        ("token_embd.weight", (embd, size.n_vocab), size.kind),
        ("output_norm.weight", (embd,), F32),
    ]
    if not size.tied:
        tensors.append(("output.weight", (embd, size.n_vocab), size.kind))
    matrices: dict[str, tuple[int, ...]] = {
        "attn_q": (embd, q),
        "attn_k": (embd, kv),
        "attn_v": (embd, kv),
        "attn_output": (q, embd),
        "ffn_gate": (embd, ff),
        "ffn_up": (embd, ff),
        "ffn_down": (ff, embd),
    }
    if size.experts:
        matrices = {name: at for name, at in matrices.items() if "ffn" not in name}
        matrices |= {
            "ffn_gate_exps": (embd, ff, size.experts),
            "ffn_up_exps": (embd, ff, size.experts),
            "ffn_down_exps": (ff, embd, size.experts),
        }
    for layer in range(size.layers):
        own: dict[str, tuple[int, ...]] = {**matrices}
        norms = ["attn_norm", "ffn_norm", *size.norms]
        if size.arch == "qwen35":
            own["attn_q"] = (embd, 2 * q)
            norms.remove("ffn_norm")
            if layer < size.layers - size.mtp and layer % 4 < 3:
                own, linear = _linear_attention(own, dict(size.more), embd)
                tensors += [(f"blk.{layer}.{name}", at, F32) for name, at in linear.items()]
                norms = [name for name in norms if name not in NORMS]
        if layer >= size.layers - size.mtp:
            own["nextn.eh_proj"] = (2 * embd, embd)
            norms += ["nextn.enorm", "nextn.hnorm"]
        tensors += [(f"blk.{layer}.{name}.weight", at, size.kind) for name, at in own.items()]
        for norm in norms:
            tensors.append((f"blk.{layer}.{norm}.weight", (widths.get(norm, embd),), F32))
    return tensors


def _linear_attention(
    matrices: Mapping[str, tuple[int, ...]], values: Mapping[str, Content], embd: int
) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Return the matrices of a layer of linear attention, and its smaller tensors."""
    inner, state, heads, groups, kernel = (
        int(str(values[f"ssm.{name}"]))
        for name in ("inner_size", "state_size", "time_step_rank", "group_count", "conv_kernel")
    )
    channels = inner + 2 * groups * state
    own = {name: at for name, at in matrices.items() if not name.startswith("attn_")}
    own |= {"attn_qkv": (embd, channels), "attn_gate": (embd, inner), "ssm_out": (inner, embd)}
    own |= {"ssm_beta": (embd, heads), "ssm_alpha": (embd, heads)}
    small = {"ssm_conv1d.weight": (kernel, channels), "ssm_dt.bias": (heads,), "ssm_a": (heads,)}
    return own, small | {"ssm_norm.weight": (state,)}
