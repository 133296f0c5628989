"""Architectures: what llama.cpp can draft with which, judged by headers alone. Where it cannot, it may end the process.

Pure. Source: `llm_arch_supports_rs_rollback`, `common/speculative.cpp` and `src/models/` of the llama.cpp that
llama-cpp-python 0.3.36 carries: which graphs keep the inputs of their layers (`t_layer_inp`), which there are for a layer of
multi-token prediction (`LLM_GRAPH_TYPE_DECODER_MTP`), and what they assert.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
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

_REFUSED_WITHOUT = _names("qwen35 qwen35moe qwen3next")
"""Those that llama.cpp refuses to load where their header promises MTP layers that the file lacks."""

EAGLE3 = "eagle3"
_WITH_A_TARGET = {
    EAGLE3: "EAGLE-3 heads",
    "dflash": "a DFlash draft",
    "gemma4-assistant": "an assistant of Gemma 4",
}
"""What a file of an architecture holds that is no model by itself."""


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads that a target has.

    Args:
        layers: of the target, whose inputs they take, as EAGLE-3 does; empty where they are MTP layers of its own file.
        count: how many MTP layers there are; 1 for others.
        of_outputs: whether their graph leaves hidden rows of those tokens alone whose logits are wanted.
    """

    layers: tuple[int, ...] = ()
    count: int = 1
    of_outputs: bool = False

    @property
    def is_mtp(self) -> bool:
        """Whether they are in the target's own file."""
        return not self.layers


def why_no_target(header: "GgufHeader") -> str | None:
    """Return why a file is no model that can answer, in words that follow its name; None if nothing speaks against it."""
    if _number(header, "pooling_type"):
        return (
            "makes vectors of texts, and writes none: name it with `localspec index add --vectors`"
        )
    held = _WITH_A_TARGET.get(header.architecture or "")
    if held is None:
        return None
    return f"holds {held}, which work beside a model alone: give that as the target, and this as --draft-model"


def why_no_drafts(header: "GgufHeader") -> str | None:
    """Return why no draft can be verified by a target, in words that follow its name; None if nothing speaks against it."""
    if header.architecture not in _WITHOUT_SNAPSHOTS:
        return None
    return f"keeps a recurrent state, which llama.cpp cannot roll back for {header.architecture}"


def why_no_draft_model(target: "GgufHeader", draft: "GgufHeader") -> str | None:
    """Return why a file cannot draft for a target, whatever its tokenizer; None if nothing speaks against it."""
    architecture = draft.architecture or ""
    if architecture == EAGLE3:
        return _why_no_eagle3(target, draft)
    held = _WITH_A_TARGET.get(architecture)
    return None if held is None else f"it holds {held}, which localspec does not draft with"


def why_no_mtp(header: "GgufHeader", *, exact: bool = False) -> str | None:
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
        return "promises MTP layers in its header, but they are not in the file"
    if architecture not in _WITH_MTP:
        return f"has MTP layers of {architecture}, which llama.cpp or localspec cannot draft with"
    if count > 1 and architecture not in _WITH_SEVERAL_MTP:
        return f"has {count} MTP layers, of which llama.cpp's graph of {architecture} runs a single one"
    if exact and architecture in _OTHERWISE_WITH_MTP:
        return "is computed otherwise where its MTP layer drafts, which --exact rules out"
    return why_no_drafts(header)


def mtp_layers(header: "GgufHeader") -> int:
    """Return how many layers of multi-token prediction a header promises; they are its last ones."""
    return _number(header, "nextn_predict_layers")


def corrections(header: "GgufHeader") -> dict[str, int]:
    """Return what a header should say instead, by keys, where llama.cpp refuses it for MTP layers that the file lacks."""
    count, blocks = mtp_layers(header), _number(header, "block_count")
    names = (each.name.split(".") for each in header.tensors if each.name.startswith("blk."))
    layers = (int(name[1]) for name in names if name[1].isdecimal())
    lacks = all(layer < blocks - count for layer in layers) and count < blocks
    if count == 0 or not lacks or header.architecture not in _REFUSED_WITHOUT:
        return {}
    key = header.architecture
    return {f"{key}.nextn_predict_layers": 0, f"{key}.block_count": blocks - count}


def heads_of(
    target: "GgufHeader", file: "GgufHeader | None" = None, *, exact: bool = False
) -> Heads | None:
    """Return the heads of a target: those of a file that fits, else its own MTP layers; None if there are none to draft with.

    Args:
        target: its header.
        file: of the draft model; None without one.
        exact: as in `why_no_mtp`.
    """
    if file is not None:
        return Heads(eagle3_layers(file)) if file.architecture == EAGLE3 else None
    if why_no_mtp(target, exact=exact) is not None:
        return None
    return Heads(count=mtp_layers(target), of_outputs=target.architecture in _OF_OUTPUTS)


def eagle3_layers(draft: "GgufHeader") -> tuple[int, ...]:
    """Return which layers of the target EAGLE-3 heads look at; empty where the header does not say."""
    value = draft.metadata.get(f"{EAGLE3}.target_layers")
    return tuple(map(int, value.tolist())) if isinstance(value, np.ndarray) else ()


def how_it_drafts(header: "GgufHeader") -> str | None:
    """Return what is special about drafting with a file, in a few words; None if nothing is."""
    if header.architecture == EAGLE3:
        width = _number(header, "target_hidden_size")
        return f"EAGLE-3 heads for a target of width {width}: --draft-model with --draft heads"
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


def _why_no_eagle3(target: "GgufHeader", draft: "GgufHeader") -> str | None:
    if target.architecture not in _WITH_LAYER_INPUTS:
        return (
            f"it holds EAGLE-3 heads, and llama.cpp has no hooks for them in {target.architecture}"
        )
    own = {tensor.name: tensor for tensor in draft.tensors}
    width, n_embd = _number(draft, "target_hidden_size"), _number(target, "embedding_length")
    n_layers = _number(target, "block_count") - _number(target, "nextn_predict_layers")
    layers = eagle3_layers(draft)
    if width != n_embd:
        return f"its EAGLE-3 heads are for a target of width {width}, and this one has {n_embd}"
    if len(layers) != 3 or not all(0 <= layer < n_layers for layer in layers):
        return f"its EAGLE-3 heads look at layers {list(layers)}, and the target has {n_layers}"
    if _number(draft, "block_count") != 1 or (
        "d2t" in own and own["d2t"].type_name.upper() != "I64"
    ):
        return "its EAGLE-3 heads are not of the form that llama.cpp takes"
    lends = {"token_embd.weight", "output.weight"} - own.keys()
    if lends and _number(draft, "embedding_length") != n_embd:
        return f"its EAGLE-3 heads lack {' and '.join(sorted(lends))}, and the target's are of another width"
    return why_no_drafts(target)


def _number(header: "GgufHeader", key: str) -> int:
    return header.number(f"{header.architecture}.{key}") or 0
