"""Real models of some kilobytes that are akin: hybrids, recurrent layers beside one of attention, a llama, and some with windows.

What surrounds the layers is the same in all of them. Where the layers count little, a text is what that alone would give,
so that models predict each other's.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np

from lab.synthetic.gguf_layout import read_layout
from localspec.models.gguf import read_header
from tests.llama.tiny_gguf import TOKENS, Weights, write_model
from tests.models.gguf_builder import Content, Raw

_N_EMBD, _N_FF, _N_HEAD, _WIDTH = 64, 96, 2, 32
_D_STATE, _GROUPS, _V_HEADS, _D_CONV, _L_CACHE = 16, 2, 4, 4, 3
_INNER = _V_HEADS * _D_STATE
_ADDS = ("attn_output", "ssm_out", "ffn_down", "out_proj")
"""The matrices through which a layer adds to the residual."""

_TOKEN = np.hstack([np.eye(_N_EMBD), np.zeros((_N_EMBD, _N_EMBD))]).astype(np.float32)
"""Takes the first of two rows, that of the token."""

_MARK, _BLOCK, _MASK, _CONV, _GROUP = 0.3, 8, 255, 3, 16

Shapes = dict[str, tuple[int, ...]]


def write_qwen35(
    path: Path,
    counts: float = 0.3,
    seed: int = 1,
    *,
    mtp: int = 0,
    lacking: int = 0,
    marked: bool = False,
) -> Path:
    """Write three layers of linear attention and one of attention, and return the path.

    `counts` is how much the layers count, the deviation of what they add; `mtp` the layers for the next token but one, and
    `lacking` those that the header promises beside them. Where tokens are `marked`, all have the same first number: with it,
    attention can look for a distance alone.
    """
    shapes = _around()
    for layer in range(4 + mtp):
        shapes |= _named(layer, _attention(2) if layer > 2 else _linear_attention())
    shapes |= _mtp_layers(mtp)
    values = _sizes(4 + mtp + lacking) | {
        ".rope.dimension_sections": [8, 4, 4, 0],
        ".ssm.conv_kernel": _D_CONV,
        ".ssm.inner_size": _INNER,
        ".ssm.state_size": _D_STATE,
        ".ssm.time_step_rank": _V_HEADS,
        ".ssm.group_count": _GROUPS,
        ".nextn_predict_layers": mtp + lacking,
        ".attention.head_count_kv": _N_HEAD,
    }
    shaped = _Shaped(counts, marked=marked)
    return write_model(path, "qwen35", values, shapes, seed, shaped, quantised=True)


def write_lfm2(path: Path, counts: float = 0.3, seed: int = 1) -> Path:
    """Write three layers of short convolutions and one of attention, and return the path; see `write_qwen35`."""
    shapes = _around("token_embd_norm")
    for layer in range(4):
        shapes |= _named(layer, _plain(_attention(1) if layer == 3 else _short_convolution()))
    values = _sizes(4) | {
        ".shortconv.l_cache": _L_CACHE,
        ".attention.head_count_kv": [0, 0, 0, _N_HEAD],
        ".vocab_size": TOKENS,
    }
    return write_model(path, "lfm2", values, shapes, seed, _Shaped(counts), quantised=True)


def write_llama(
    path: Path,
    counts: float = 0.3,
    seed: int = 1,
    *,
    pooling: int | None = None,
    marked: bool = False,
    layers: int = 4,
    more: Mapping[str, Content] = MappingProxyType({}),
) -> Path:
    """Write layers of attention, and return the path; see `write_qwen35`. `pooling` is llama.cpp's number, in a file that has one."""
    shapes = _around()
    for layer in range(layers):
        shapes |= _named(layer, _plain(_attention(1), "q_norm", "k_norm"))
    values = _sizes(layers) | ({} if pooling is None else {".pooling_type": pooling}) | {**more}
    shaped = _Shaped(counts, marked=marked)
    return write_model(path, "llama", values, shapes, seed, shaped, quantised=True)


def write_bert(path: Path, pooling: int = 1, seed: int = 1, n_ctx: int = 1024) -> Path:
    """Write two layers that see all of a text, which begins and ends with a token of the file's, and return the path.

    With the `pooling` 4 its rows are scores.
    """
    shapes: Shapes = {
        "token_embd.weight": (_N_EMBD, TOKENS),
        "token_types.weight": (_N_EMBD, 2),
        "position_embd.weight": (_N_EMBD, n_ctx),
    }
    norms = ["token_embd_norm"]
    for layer in range(2):
        block = {f"attn_{name}": (_N_EMBD, _N_EMBD) for name in ("q", "k", "v", "output")}
        block |= {"ffn_up": (_N_EMBD, _N_FF), "ffn_down": (_N_FF, _N_EMBD)}
        for name, shape in block.items():
            shapes[f"blk.{layer}.{name}.weight"] = shape
            shapes[f"blk.{layer}.{name}.bias"] = shape[1:]
        norms += [f"blk.{layer}.{name}" for name in ("attn_output_norm", "layer_output_norm")]
    for name in norms:
        shapes |= {f"{name}.weight": (_N_EMBD,), f"{name}.bias": (_N_EMBD,)}
    if pooling == 4:
        shapes |= {"cls.output.weight": (_N_EMBD, 1), "cls.output.bias": (1,)}
    values = _sizes(2) | {
        ".context_length": n_ctx,
        ".attention.layer_norm_epsilon": 1e-6,
        ".attention.causal": False,
        ".pooling_type": pooling,
        "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.bos_token_id": 256,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": True,
    }
    return write_model(path, "bert", values, shapes, seed, _Shaped(0.3))


def write_windowed(
    path: Path, counts: float = 0.3, seed: int = 1, *, mtp: int = 0, architecture: str = "step35"
) -> Path:
    """Write four layers of attention, one of them with a window, and return the path; see `write_qwen35`.

    The `architecture` is one that has several layers for the next tokens: step35 or mimo2.
    """
    shapes = _around()
    for layer in range(4 + mtp):
        block = _plain(_attention(1))
        if architecture == "mimo2":
            block = _plain(_attention(1), "q", "k", "v", "q_norm", "k_norm")
            block["attn_qkv.weight"] = (_N_EMBD, 3 * _N_HEAD * _WIDTH)
        shapes |= _named(layer, block)
    shapes |= _mtp_layers(mtp)
    values = _sizes(4 + mtp) | {
        ".attention.head_count_kv": _N_HEAD,
        ".attention.sliding_window": 64,
        ".attention.sliding_window_pattern": [layer % 3 == 1 for layer in range(4 + mtp)],
        ".expert_feed_forward_length": _N_FF,
        ".nextn_predict_layers": mtp,
    }
    return write_model(path, architecture, values, shapes, seed, _Shaped(counts), quantised=True)


def _mtp_layers(count: int) -> Shapes:
    """Return what layers for the next tokens have beside those of attention, behind four others."""
    norms = {f"nextn.{name}.weight": (_N_EMBD,) for name in ("enorm", "hnorm")}
    own: Shapes = {"nextn.eh_proj.weight": (2 * _N_EMBD, _N_EMBD), **norms}
    return {
        name: shape for layer in range(4, 4 + count) for name, shape in _named(layer, own).items()
    }


def write_eagle3(
    path: Path,
    counts: float = 0.003,
    seed: int = 1,
    *,
    ids: Sequence[int] = (),
    target: Path | None = None,
    layers: Sequence[int] = (1, 2, 3),
) -> Path:
    """Write EAGLE-3 heads for these models, or for a real target, and return the path; see `write_qwen35`.

    Its attention looks for the token itself, and what the token stands for goes on to the target's own head, or to one of
    its own for these `ids`; everything else counts as `counts` says. A real `target` gives its width and its tokenizer.
    """
    values, width = (_sizes(1), _N_EMBD) if target is None else _sizes_for(target)
    block: Shapes = {"attn_norm.weight": (width,)}
    block |= {f"ffn_{name}.weight": (width, _N_FF) for name in ("gate", "up")}
    block["ffn_down.weight"] = (_N_FF, width)
    block |= {f"attn_{name}.weight": (2 * width, width) for name in ("q", "k", "v")}
    block |= {"attn_output.weight": (width, width), "attn_norm_2.weight": (width,)}
    shapes: Shapes = {"fc.weight": (3 * width, width), "output_norm.weight": (width,)}
    shapes |= _named(0, block | {"ffn_norm.weight": (width,)})
    if ids:
        shapes["output.weight"] = (width, len(ids))
    shaped, token = _Shaped(counts), np.eye(width, 2 * width, dtype=np.float32)

    def eagle3(name: str, weights: Weights) -> Weights:
        if name == "output.weight":
            return np.take(_followed(_embedded(seed, marked=False)), ids, axis=0)
        if name == "fc.weight":
            return weights * np.float32(counts)
        if name.endswith(("attn_q.weight", "attn_k.weight")):
            return 2 * token
        if name.endswith("attn_v.weight"):
            return token
        if name.endswith("attn_output.weight"):
            return np.eye(width, dtype=np.float32)
        return shaped(name, weights)

    values |= {".target_layers": list(layers), ".target_hidden_size": width}
    whole = {"d2t": list(ids)} if ids else {}
    return write_model(path, "eagle3", values, shapes, seed, eagle3, quantised=True, whole=whole)


def write_dflash(
    path: Path,
    counts: float = 0.003,
    seed: int = 1,
    *,
    kind: str = "dflash",
    anchored: bool = True,
    mrope: bool = False,
    ids: Sequence[int] = (),
) -> Path:
    """Write a drafter of blocks for these models with marked tokens, and return the path; see `write_qwen35`.

    Its attention looks at the place from which the text has come round to this one, for texts mostly turn in circles of eight.
    `kind` is dflash, dspark, which has a Markov head and begins with the row of the latest token where it is `anchored`, or
    dflash2, which has a selector; both know which token follows. `ids` are those that it drafts.
    """
    values = _sizes(2) | {
        ".target_layers": [0, 1, 3],
        ".block_size": _BLOCK,
        "tokenizer.ggml.mask_token_id": _MASK,
    }
    values |= {".rope.dimension_sections": [_WIDTH // 2, 0, 0, 0]} if mrope else {}
    anchored = anchored and kind == "dspark"
    shapes: Shapes = {"fc.weight": (3 * _N_EMBD, _N_EMBD)}
    shapes |= dict.fromkeys(("enc.output_norm.weight", "output_norm.weight"), (_N_EMBD,))
    for layer in range(2):
        shapes |= _named(layer, _plain(_attention(1)))
    own = _looking_back(8 if anchored else 9)
    followed = _followed(_embedded(seed))[list(ids) or range(TOKENS)]
    if ids:
        shapes["output.weight"], own["output.weight"] = (_N_EMBD, len(ids)), followed
    if kind == "dspark":
        values[".sample_from_anchor"] = anchored
        shapes |= {"markov_w1.weight": (_N_EMBD, TOKENS), "conf_proj.weight": (2 * _N_EMBD, 1)}
        shapes["markov_w2.weight"] = (_N_EMBD, len(followed))
        own |= {"markov_w1.weight": _embedded(seed), "markov_w2.weight": 4 * followed}
    if kind == "dflash2":
        values |= {".conv_kernel_size": _CONV, ".conv_group_size": _GROUP}
        values |= {".selector_rank": _N_EMBD, ".selector_top_k": 4}
        selector = {"predecessor": _embedded(seed), "successor": 4 * followed}
        own |= {f"selector_{name}.weight": weights for name, weights in selector.items()}
        own["selector_hidden.weight"] = np.tile(_TOKEN[0, :_N_EMBD], (_N_EMBD, 1))
        shapes |= {name: own[name].shape[::-1] for name in own if name.startswith("selector_")}
        shapes |= _convolutions()
    shaped = _Shaped(counts)

    def dflash(name: str, weights: Weights) -> Weights:
        if name in own:
            return own[name]
        if name != "fc.weight" and "conv" not in name:
            return shaped(name, weights)
        quiet = weights * np.float32(counts)
        if name == "fc.weight":
            quiet[:, :_N_EMBD] = np.eye(_N_EMBD)
        elif name.endswith("_base"):
            quiet[:, 0] = 1  # of the place itself, before and behind the layer
        return quiet

    whole = {"d2t": list(ids)} if ids else {}
    return write_model(path, "dflash", values, shapes, seed, dflash, quantised=True, whole=whole)


def _convolutions() -> Shapes:
    shapes: Shapes = {}
    for name in ("attn_conv", "ffn_conv"):
        block: Shapes = {f"{name}_base": (_N_EMBD, _CONV, 2)}
        block[f"{name}_proj.weight"] = (_N_EMBD, 2 * _CONV * _N_EMBD // _GROUP)
        shapes |= _named(0, block) | _named(1, block)
    return shapes


def _looking_back(distance: int) -> dict[str, Weights]:
    """Return a layer of attention that takes over the marked token so many places before."""
    first = np.eye(1, _N_EMBD, dtype=np.float32)
    angles = distance * 10_000.0 ** (-2 * np.arange(_WIDTH // 2) / _WIDTH)
    turned = np.concatenate([np.cos(angles) + np.sin(angles), np.cos(angles) - np.sin(angles)])
    attention = {
        "attn_q": np.outer(np.tile(turned, _N_HEAD), first),
        "attn_k": np.outer(np.ones(_N_HEAD * _WIDTH), first),
        "attn_v": np.eye(_N_EMBD),
        "attn_output": np.eye(_N_EMBD),
        "attn_q_norm": np.full(_WIDTH, 5.0),
        "attn_k_norm": np.full(_WIDTH, 5.0),
    }
    return {f"blk.0.{name}.weight": each.astype(np.float32) for name, each in attention.items()}


def write_gemma4(path: Path, counts: float = 0.3, seed: int = 1) -> Path:
    """Write four layers of attention, every other of a window, and return the path; see `write_qwen35`."""
    shapes = _around() | {"rope_freqs.weight": (_WIDTH // 2,)}
    for layer in range(4):
        shapes |= _named(layer, _attention(1) | _GEMMA_NORMS)
    values = _sizes(4) | _gemma_sizes(2)
    return write_model(path, "gemma4", values, shapes, seed, _gemma(counts), quantised=True)


def write_assistant(path: Path, counts: float = 0.003, seed: int = 1) -> Path:
    """Write an assistant for a made Gemma 4, half as wide, and return the path; it knows which token follows. See `write_qwen35`."""
    half, heads = _N_EMBD // 2, _N_HEAD * _WIDTH
    narrowing = np.linalg.qr(np.random.default_rng(seed).normal(size=(_N_EMBD, half)))[0].T
    block: Shapes = dict.fromkeys(("attn_norm.weight", "post_attention_norm.weight"), (half,))
    block |= dict.fromkeys(("ffn_norm.weight", "post_ffw_norm.weight"), (half,))
    block |= {"attn_q.weight": (half, heads), "attn_output.weight": (heads, half)}
    block |= {"attn_q_norm.weight": (_WIDTH,), "layer_output_scale.weight": (1,)}
    block |= dict.fromkeys(("ffn_gate.weight", "ffn_up.weight"), (half, _N_FF))
    block |= {"ffn_down.weight": (_N_FF, half)}
    shapes: Shapes = {"token_embd.weight": (half, TOKENS), "output_norm.weight": (half,)}
    shapes |= {"rope_freqs.weight": (_WIDTH // 2,)}
    shapes |= {"nextn.pre_projection.weight": (2 * _N_EMBD, half)}
    shapes |= {"nextn.post_projection.weight": (half, _N_EMBD)}
    shapes |= _named(0, block) | _named(1, block)
    values = _sizes(2) | _gemma_sizes(1)
    values |= {".embedding_length": half, ".embedding_length_out": _N_EMBD}
    values |= {".nextn_predict_layers": 2}
    shaped = _gemma(counts)

    def assistant(name: str, weights: Weights) -> Weights:
        if name == "token_embd.weight":
            return _followed((_embedded(seed, marked=False) @ narrowing.T).astype(np.float32))
        if name == "nextn.pre_projection.weight":
            return np.hstack([narrowing, 4 * counts * weights[:, _N_EMBD:]]).astype(np.float32)
        return np.ones_like(weights) if "scale" in name else shaped(name, weights)

    return write_model(path, "gemma4-assistant", values, shapes, seed, assistant, quantised=True)


_GEMMA_NORMS: Shapes = {f"{name}.weight": (_N_EMBD,) for name in ("ffn_norm", "post_ffw_norm")}


def _gemma_sizes(pairs: int) -> dict[str, Content]:
    """Return the sizes of a Gemma of so many pairs of layers: one of a window, and one of all."""
    return {
        ".embedding_length_per_layer_input": 0,
        ".attention.sliding_window": 32,
        ".attention.sliding_window_pattern": [1, 0] * pairs,
        ".attention.head_count_kv": _N_HEAD,
        ".attention.key_length_swa": _WIDTH,
        ".attention.value_length_swa": _WIDTH,
        ".rope.dimension_count_swa": _WIDTH,
    }


def _gemma(counts: float) -> Callable[[str, Weights], Weights]:
    """Return what shapes a Gemma's weights: what its layers add is as large as the norms behind them say."""
    shaped = _Shaped(counts)

    def gemma(name: str, weights: Weights) -> Weights:
        if name.endswith(("post_attention_norm.weight", "post_ffw_norm.weight")):
            return np.full_like(weights, 300 * counts)
        return np.ones_like(weights) if name == "rope_freqs.weight" else shaped(name, weights)

    return gemma


def _embedded(seed: int, *, marked: bool = True) -> Weights:
    """Return the embedding of a target of this seed."""
    embedded = np.random.default_rng(seed).normal(0, 0.3, (TOKENS, _N_EMBD)).astype(np.float32)
    if marked:
        embedded[:, 0] = _MARK
    return embedded


def _around(norm: str = "output_norm") -> Shapes:
    return {
        "token_embd.weight": (_N_EMBD, TOKENS),
        f"{norm}.weight": (_N_EMBD,),
        "output.weight": (_N_EMBD, TOKENS),
    }


def _sizes(layers: int) -> dict[str, Content]:
    return {
        ".context_length": 1024,
        ".embedding_length": _N_EMBD,
        ".feed_forward_length": _N_FF,
        ".block_count": layers,
        ".attention.head_count": _N_HEAD,
        ".attention.key_length": _WIDTH,
        ".attention.value_length": _WIDTH,
        ".attention.layer_norm_rms_epsilon": 1e-5,
        ".rope.dimension_count": _WIDTH,
    }


def _sizes_for(target: Path) -> tuple[dict[str, Content], int]:
    """Return the sizes of heads for a real target, with its tokenizer, and its width."""
    header, values = read_header(target), _sizes(1)
    width, n_head = (
        header.number(f"{header.architecture}.{name}") or 0
        for name in ("embedding_length", "attention.head_count")
    )
    values |= {".embedding_length": width, ".attention.head_count": n_head}
    for name in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        values[f".{name}"] = width // n_head
    for name, value in read_layout(target).values.items():
        if name.startswith("tokenizer."):
            values[name] = Raw(int.from_bytes(value[:4], "little"), value[4:])
    return values, width


def _named(layer: int, block: Shapes) -> Shapes:
    return {f"blk.{layer}.{name}": shape for name, shape in block.items()}


def _block() -> Shapes:
    return {
        "attn_norm.weight": (_N_EMBD,),
        "post_attention_norm.weight": (_N_EMBD,),
        "ffn_gate.weight": (_N_EMBD, _N_FF),
        "ffn_up.weight": (_N_EMBD, _N_FF),
        "ffn_down.weight": (_N_FF, _N_EMBD),
    }


def _attention(queries: int) -> Shapes:
    """Return a layer of attention; with two of `queries`, the second one is a gate."""
    return _block() | {
        "attn_q.weight": (_N_EMBD, queries * _N_HEAD * _WIDTH),
        "attn_k.weight": (_N_EMBD, _N_HEAD * _WIDTH),
        "attn_v.weight": (_N_EMBD, _N_HEAD * _WIDTH),
        "attn_output.weight": (_N_HEAD * _WIDTH, _N_EMBD),
        "attn_q_norm.weight": (_WIDTH,),
        "attn_k_norm.weight": (_WIDTH,),
    }


def _plain(block: Shapes, *without: str) -> Shapes:
    """Return a layer whose second norm has its usual name, without some parts of its attention."""
    out = {"post_attention_norm.weight", *(f"attn_{name}.weight" for name in without)}
    rest = {name: shape for name, shape in block.items() if name not in out}
    return rest | {"ffn_norm.weight": (_N_EMBD,)}


def _linear_attention() -> Shapes:
    channels = _INNER + 2 * _GROUPS * _D_STATE
    return _block() | {
        "attn_qkv.weight": (_N_EMBD, channels),
        "attn_gate.weight": (_N_EMBD, _INNER),
        "ssm_conv1d.weight": (_D_CONV, channels),
        "ssm_dt.bias": (_V_HEADS,),
        "ssm_a": (_V_HEADS,),
        "ssm_beta.weight": (_N_EMBD, _V_HEADS),
        "ssm_alpha.weight": (_N_EMBD, _V_HEADS),
        "ssm_norm.weight": (_D_STATE,),
        "ssm_out.weight": (_INNER, _N_EMBD),
    }


def _short_convolution() -> Shapes:
    return _block() | {
        "shortconv.conv.weight": (_L_CACHE, _N_EMBD),
        "shortconv.in_proj.weight": (_N_EMBD, 3 * _N_EMBD),
        "shortconv.out_proj.weight": (_N_EMBD, _N_EMBD),
    }


class _Shaped:
    """Lets a token be followed by its neighbour of eight, norms leave things as they are, and layers count as `counts` says."""

    def __init__(self, counts: float, *, marked: bool = False) -> None:
        self._counts, self._marked = counts, marked
        self._embedded = np.zeros((TOKENS, _N_EMBD), dtype=np.float32)

    def __call__(self, name: str, weights: Weights) -> Weights:
        if name == "token_embd.weight":
            if self._marked:
                weights[:, 0] = _MARK
            self._embedded = weights
        if name == "output.weight":
            return _followed(self._embedded)
        if name.endswith("norm.weight"):
            return np.ones_like(weights)
        if name.endswith("ssm_a"):
            return -np.abs(weights) - np.float32(0.1)
        if name.endswith("eh_proj.weight"):
            return np.where(_TOKEN == 0, 4 * np.float32(self._counts) * weights, _TOKEN)
        if any(part in name for part in _ADDS):
            return weights * np.float32(self._counts / 0.3)
        return weights


def _followed(embedded: Weights) -> Weights:
    """Return the head with which a token is followed by the next of eight, and the last of eight by the first."""
    ids = np.arange(TOKENS - 1)
    before = np.append(ids // 8 * 8 + (ids - 1) % 8, TOKENS - 1)
    return np.take(embedded, before, axis=0)
