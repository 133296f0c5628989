"""Architectures: what llama.cpp can draft with which, judged by headers alone. Where it cannot, it may end the process.

Pure. Source: `llm_arch_supports_rs_rollback`, `common/speculative.cpp` and `src/models/` of the llama.cpp that
llama-cpp-python 0.3.36 carries: which graphs keep the inputs of their layers (`t_layer_inp`), which there are for a layer of
multi-token prediction (`LLM_GRAPH_TYPE_DECODER_MTP`), and what they assert.
"""

from dataclasses import dataclass

import numpy as np

from localspec.decoding.draft_block import DraftBlock
from localspec.models.gguf import GgufHeader


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


WITH_SNAPSHOTS = _names(
    "bailingmoe3 deepseek4 glm5-next kimi-k3 lfm2 lfm2moe nemotron_h nemotron_h_moe qwen35 qwen35moe qwen4exp"
)
"""Those whose recurrent state can be rolled back, by snapshots, so that they can verify drafts."""

_WITHOUT_SNAPSHOTS = _names(
    "arwkv7 falcon-h1 granitehybrid jamba kimi-linear mamba mamba2 minimax-01 plamo2 qwen3next rwkv6 rwkv6qwen2 rwkv7"
)
"""The others that keep a recurrent state."""

_WITH_LAYER_INPUTS = _names(
    "bailingmoe3 gemma4 gpt-oss hunyuan-dense hunyuan_vl lfm2 lfm2moe llama mimo2 minimax-m2 muse-glimmer nanbeige "
    "nemotron_h nemotron_h_moe qwen3 qwen35 qwen35moe qwen3moe"
)
"""Targets that EAGLE-3 heads can follow."""

_WITH_MTP = _names("cohere2moe glm4moe hy_v3 mimo2 nemotron_h_moe qwen35 qwen35moe step35")
"""Those with a graph for a layer of multi-token prediction that takes token and hidden row, and asserts no more than is judged here."""

_WITH_SEVERAL_MTP = _names("hy_v3 mimo2 step35")
"""Those whose graph can run any of several such layers."""

_OF_OUTPUTS = _names("mimo2 step35")
"""Those of which that graph leaves hidden rows of the tokens alone whose logits are wanted."""

_MTP_TENSORS = {"mimo2": ("attn_qkv", "ffn_gate", "ffn_up", "ffn_down")}
"""What that graph asserts beside `nextn.eh_proj`, and loading does not."""

_OTHERWISE_WITH_MTP = _names("glm4moe mimo2")
"""Those whose last layer is computed of other tokens where their hidden rows are kept, and so perhaps rounds otherwise."""

_WITH_LAST_OUTPUT = _names("mimo2 nemotron_h nemotron_h_moe")
"""Those of them that keep what leaves their last layer, too."""

_REFUSED_WITHOUT = _names("qwen35 qwen35moe qwen3next")
"""Those that llama.cpp refuses to load where their header promises MTP layers that the file lacks."""

_EAGLE3, _DFLASH, _ASSISTANT = "eagle3", "dflash", "gemma4-assistant"
_WITH_A_TARGET = {
    _EAGLE3: "EAGLE-3 heads",
    _DFLASH: "a DFlash draft",
    _ASSISTANT: "an assistant of Gemma 4",
}
"""What a file of an architecture holds that is no model by itself."""
_CACHE_SHARERS = frozenset({"gemma4"})
"""Targets that let an assistant look into their cache."""
ACCEPTED = "localspec.accepted"
"""Key of a file of heads: the share of first drafted tokens that was accepted when they were measured, see `Heads`."""

_LARGEST_BLOCK = 64


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads that a target has.

    Args:
        layers: of the target, whose inputs they take, as EAGLE-3 and DFlash do.
        block: what one pass drafts; None where each takes a token.
        shares_cache: whether they look into the target's own cache, as Gemma 4's assistants do.
        count: how many MTP layers there are; 1 for others.
        of_outputs: whether their graph leaves hidden rows of those tokens alone whose logits are wanted.
        accepted: share of first drafted tokens that the target accepted, in the kind of text that suits them best; None if their file
            does not say it.
    """

    layers: tuple[int, ...] = ()
    block: DraftBlock | None = None
    shares_cache: bool = False
    count: int = 1
    of_outputs: bool = False
    accepted: float | None = None

    @property
    def is_mtp(self) -> bool:
        """Whether they are in the target's own file."""
        return not (self.layers or self.shares_cache)


def why_no_target(header: GgufHeader) -> str | None:
    """Return why a file is no model that can answer, in words that follow its name; None if nothing speaks against it."""
    if _number(header, "pooling_type"):
        return (
            "makes vectors of texts, and writes none: name it with `localspec index add --vectors`"
        )
    if header.architecture == "clip":
        return "holds encoders of images or audio: give the model that they are for as the target, and this file as --mmproj"
    held = _WITH_A_TARGET.get(header.architecture or "")
    if held is None:
        return None
    return f"holds {held}, which draft for another model: give that model as the target, and this file as --draft-model"


def is_heads_alone(header: GgufHeader) -> bool:
    """Return whether a file holds heads of another model: of an architecture of their own, or MTP layers without the others."""
    if header.architecture in _WITH_A_TARGET:
        return True
    names = [each.name for each in header.tensors if each.name.startswith("blk.")]
    return bool(mtp_layers(header) and names) and not any(n.startswith("blk.0.") for n in names)


def why_no_drafts(header: GgufHeader) -> str | None:
    """Return why no draft can be verified by a target, in words that follow its name; None if nothing speaks against it."""
    if header.architecture not in _WITHOUT_SNAPSHOTS:
        return None
    return f"keeps a recurrent state, which llama.cpp cannot roll back for {header.architecture}"


def why_no_draft_model(target: GgufHeader, draft: GgufHeader) -> str | None:
    """Return why a file cannot draft for a target, whatever its tokenizer; None if nothing speaks against it."""
    architecture = draft.architecture or ""
    held = _WITH_A_TARGET.get(architecture)
    if held is None:
        return None
    if target.architecture not in (
        _CACHE_SHARERS if architecture == _ASSISTANT else _WITH_LAYER_INPUTS
    ):
        return f"it holds {held}, and llama.cpp has no hooks for them in {target.architecture}"
    width, n_embd = _target_width(draft), _number(target, "embedding_length")
    if width != n_embd:
        return f"it holds {held} for a target of width {width}, and this target has width {n_embd}"
    if architecture == _ASSISTANT:
        return None if _fits_cache(target, draft) else _form(held)
    return _why_not_followed(target, draft, held) or why_no_drafts(target)


def why_no_layer_inputs(header: GgufHeader) -> str | None:
    """Return why no EAGLE-3 head can follow a target, in words that follow its name; None if nothing speaks against it."""
    if header.architecture not in _WITH_LAYER_INPUTS:
        return f"is {header.architecture}, in which llama.cpp has no hooks for a head: choose a model of {', '.join(sorted(_WITH_LAYER_INPUTS))}"
    return why_no_drafts(header)


def why_no_mtp(header: GgufHeader, *, exact: bool = False) -> str | None:
    """Return why a target has no MTP layer to draft with, in words that follow its name; None if it has one.

    Args:
        header: of the target.
        exact: whether no bit may depend on drafting.
    """
    architecture = header.architecture or ""
    count, blocks = mtp_layers(header), _number(header, "block_count")
    if count == 0:
        return "has no MTP layers"
    names = {tensor.name for tensor in header.tensors}
    needed = ("nextn.eh_proj", *_MTP_TENSORS.get(architecture, ()))
    promised = range(max(0, blocks - count), blocks)
    if any(f"blk.{layer}.{name}.weight" not in names for layer in promised for name in needed):
        return "promises MTP layers in its header, but these layers are not in the file"
    if architecture not in _WITH_MTP:
        return f"has MTP layers of {architecture}, and llama.cpp or localspec cannot draft with such layers"
    if count > 1 and architecture not in _WITH_SEVERAL_MTP:
        return f"has {count} MTP layers, and llama.cpp's graph of {architecture} runs a single MTP layer"
    if exact and architecture in _OTHERWISE_WITH_MTP:
        return "is computed otherwise while its MTP layer drafts, and --exact rules that out"
    return why_no_drafts(header)


def heads_in(draft: GgufHeader) -> Heads | None:
    """Return the heads that a file of its own holds; None if it is a model, or holds none of which the header says enough."""
    architecture = draft.architecture
    if architecture == _ASSISTANT:
        return Heads(shares_cache=True)
    if architecture == _DFLASH:
        return Heads(tuple(_values(draft, "target_layers")), _block(draft))
    if architecture != _EAGLE3:
        return None
    accepted = draft.metadata.get(ACCEPTED)
    measured = accepted if isinstance(accepted, float) and 0 <= accepted <= 1 else None
    return Heads(tuple(_values(draft, "target_layers")), accepted=measured)


def _block(draft: GgufHeader) -> DraftBlock:
    """Return what a pass of a DFlash draft gives: with a Markov head (DSpark), it begins with the latest token's own row."""
    values, names = draft.metadata, {tensor.name for tensor in draft.tensors}
    markov = "markov_w1.weight" in names
    anchored = markov and values.get(f"{_DFLASH}.sample_from_anchor", True) is True
    return DraftBlock(
        _number(draft, "block_size"),
        draft.number("tokenizer.ggml.mask_token_id") or 0,
        skipped=0 if anchored else 1,
        top_k=_number(draft, "selector_top_k"),
        causal=values.get(f"{_DFLASH}.attention.causal") is True,
    )


def mtp_layers(header: GgufHeader) -> int:
    """Return how many layers of multi-token prediction a header promises; they are its last ones."""
    return _number(header, "nextn_predict_layers")


def corrections(header: GgufHeader) -> dict[str, int]:
    """Return what a header should say instead, by keys, where llama.cpp refuses it for MTP layers that the file lacks."""
    count, blocks = mtp_layers(header), _number(header, "block_count")
    if count == 0 or header.architecture not in _REFUSED_WITHOUT:
        return {}
    names = (each.name.split(".") for each in header.tensors if each.name.startswith("blk."))
    layers = (int(name[1]) for name in names if name[1].isdecimal())
    if count >= blocks or any(layer >= blocks - count for layer in layers):
        return {}
    key = header.architecture
    return {f"{key}.nextn_predict_layers": 0, f"{key}.block_count": blocks - count}


def heads_of(
    target: GgufHeader, file: GgufHeader | None = None, *, exact: bool = False
) -> Heads | None:
    """Return the heads of a target: those that a file holds, else its own MTP layers; None if there are none to draft with.

    Args:
        target: its header.
        file: of what was paired with it; None without such a file.
        exact: as in `why_no_mtp`.
    """
    if file is not None and (held := heads_in(file)) is not None:
        return held
    if why_no_mtp(target, exact=exact) is not None:
        return None
    return Heads(count=mtp_layers(target), of_outputs=target.architecture in _OF_OUTPUTS)


def how_it_drafts(header: GgufHeader) -> str | None:
    """Return what is special about drafting with a file, in a few words; None if nothing is."""
    if (held := _WITH_A_TARGET.get(header.architecture or "")) is not None:
        return f"{held} for a target of width {_target_width(header)}: give the file as --draft-model, with --draft heads"
    parts = [why_no_target(header) or why_no_drafts(header)]
    if header.architecture in WITH_SNAPSHOTS:
        parts.append("keeps a recurrent state: drafts of up to 7 tokens")
    count = mtp_layers(header)
    reason = why_no_mtp(header)
    if count and reason is None:
        own = "an MTP layer" if count == 1 else f"{count} MTP layers"
        parts.append(f"has {own} to draft with")
    elif count:
        parts.append(reason)
    return "; ".join(dict.fromkeys(filter(None, parts))) or None


def _why_not_followed(target: GgufHeader, draft: GgufHeader, held: str) -> str | None:
    """Return why heads cannot take the inputs of a target's layers, or llama.cpp would end the process on them."""
    layers = _values(draft, "target_layers")
    n_layers = _number(target, "block_count") - _number(target, "nextn_predict_layers")
    last = n_layers - (target.architecture not in _WITH_LAST_OUTPUT)
    if not layers or not all(0 <= layer <= last for layer in layers):
        return f"it holds {held} for the target's layers {layers}, and this target has {n_layers} layers"
    own = {tensor.name: tensor for tensor in draft.tensors}
    fits = _is_block if draft.architecture == _DFLASH else _is_eagle3
    if not fits(draft) or ("d2t" in own and own["d2t"].type_name.upper() != "I64"):
        return _form(held)
    lends = {"token_embd.weight", "output.weight"} - own.keys()
    if lends and _number(draft, "embedding_length") != _number(target, "embedding_length"):
        return f"it holds {held} without {' and '.join(sorted(lends))}, and this target's tensors of that name have another width"
    return None


def _is_eagle3(draft: GgufHeader) -> bool:
    return len(_values(draft, "target_layers")) == 3 and _number(draft, "block_count") == 1


def _is_block(draft: GgufHeader) -> bool:
    """Return whether llama.cpp takes a DFlash draft, and it was tried; DSpark for DeepSeek 4 was not."""
    windows = _values(draft, "attention.sliding_window_pattern")
    return (
        2 <= _number(draft, "block_size") <= _LARGEST_BLOCK
        and draft.number("tokenizer.ggml.mask_token_id") is not None
        and (any(windows) or not _number(draft, "attention.sliding_window"))
        and _number(draft, "attention.key_length") == _number(draft, "attention.value_length")
        and not _number(draft, "hyper_connection.count")
    )


def _fits_cache(target: GgufHeader, draft: GgufHeader) -> bool:
    """Return whether an assistant can look into a target's cache: at its last two layers, one of a window and one of all."""
    n_layers, windows = _number(draft, "block_count"), "attention.sliding_window_pattern"
    pairs = [
        [_values(each, f"attention.{name}")[-2:] for each in (target, draft)]
        for name in ("key_length", "key_length_swa", "head_count_kv")
    ]
    return (
        n_layers == _number(draft, "nextn_predict_layers") > 0
        and _values(target, windows)[-2:] == [1, 0]
        and 1 in _values(draft, windows)  # else llama.cpp ends the process
        and all({*own} <= {*theirs} for theirs, own in pairs)  # of each layer, or one for all
    )


def _target_width(draft: GgufHeader) -> int:
    """Return the width of a target that heads in a file of their own are for."""
    name = {_EAGLE3: "target_hidden_size", _ASSISTANT: "embedding_length_out"}
    return _number(draft, name.get(draft.architecture or "", "embedding_length"))


def _form(held: str) -> str:
    return f"it holds {held} of a form that llama.cpp or localspec cannot use"


def _values(header: GgufHeader, key: str) -> list[int]:
    """Return the whole numbers of a key: one, or one for each layer."""
    value = header.metadata.get(f"{header.architecture}.{key}")
    return (
        [int(each) for each in np.atleast_1d(value)] if isinstance(value, np.ndarray | int) else []
    )


def _number(header: GgufHeader, key: str) -> int:
    return header.number(f"{header.architecture}.{key}") or 0
