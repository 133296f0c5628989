"""Small encoders of pictures and sounds with random weights, and a target that knows their tokens.

What an encoder returns is as large as the target's own token embeddings, so a picture changes the text and does not drown it.

Source: `tools/mtmd/clip.cpp` of llama.cpp for names and shapes.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from lab.synthetic.gguf_layout import Placed, read_layout
from lab.synthetic.gguf_writer import NewTensor, copied, encoded, write_gguf, write_model
from localspec.models.gguf import read_header

KINDS = ("plain", "tiles", "whole", "grid", "sound")
"""A token a patch; several chunks with tokens around them; a chunk that sees itself whole; M-RoPE; half a minute of sound a chunk."""
_WIDTH, _FF, _MELS, _STACK = 64, 128, 80, 25
_VALUES: Mapping[str, Mapping[str, str | int]] = {
    "plain": {"projector_type": "phi4", "image_min_pixels": 32**2, "image_max_pixels": 100 * 32**2},
    "tiles": {"projector_type": "idefics3", "projector.scale_factor": 2, "preproc_image_size": 128},
    "whole": {"projector_type": "gemma3", "projector.scale_factor": 4},
    "grid": {"projector_type": "qwen2vl_merger"},
    "sound": {"projector_type": "ultravox", "num_mel_bins": _MELS, "projector.stack_factor": _STACK},
}  # fmt: skip
_PATCHES = {"plain": (32, 128), "tiles": (8, 64), "whole": (8, 128), "grid": (32, 128)}
"""Sides of a patch, and of the picture whose patches have embeddings of their own."""
_TOKENS = {
    "<jupyter_start>": "<fake_token_around_image>",
    "<jupyter_text>": "<global-img>",
    "<jupyter_code>": "<|vision_start|>",
    "<jupyter_output>": "<|vision_end|>",
}
"""Special tokens of SmolLM2 that it has hardly seen, and what stands around pictures."""
_SECTIONS = [16, 8, 8, 0]
"""Pairs of numbers of a head that turn with each of the four positions."""
_LAYERS = (*range(3), *range(27, 30))
"""The layers of SmolLM2 that a target has: it takes a third of the time, and what it says changes with every picture."""
_F32, _F16 = 0, 1
Shapes = dict[str, tuple[int, ...]]
Values = dict[str, str | float | Sequence[float]]


def write_encoder(kind: str, target: Path, path: Path, seed: int = 1) -> Path:
    """Write an encoder for a target whose token embeddings are Q8_0, and return its path."""
    header = read_header(target)
    n_embd = header.number(f"{header.architecture}.embedding_length")
    assert n_embd is not None
    random, tensors = np.random.default_rng(seed), list[NewTensor]()
    for name, shape in _shapes(kind, n_embd).items():
        if len(shape) == 1 or "bias" in name:
            weights = np.full(shape, float("bias" not in name))
        else:
            weights = random.normal(size=shape[::-1]) / np.sqrt(_inputs(name, shape))
            weights *= _token_size(target) if n_embd in shape else 1
        half = name.startswith("a.conv") and "bias" not in name
        data = weights.astype(np.float16 if half else np.float32).tobytes()
        like = Placed(name, shape, _F16 if half else _F32, 0, len(data))
        tensors.append(NewTensor(name, like, [data]))
    with path.open("wb") as file:
        for _ in write_gguf(file, 3, _values(kind, n_embd), tensors, 32):
            pass
    return path


def seeing_target(source: Path, folder: Path, *, mrope: bool = False) -> Path:
    """Return some layers of SmolLM2 with tokens around pictures; with M-RoPE, an architecture that computes the same of texts."""
    layout, values = read_layout(source), dict[str, bytes]()
    for key, value in layout.values.items():
        values[key.replace("llama.", "qwen2vl.") if mrope else key] = value
    for old, new in _TOKENS.items():
        tokens = values["tokenizer.ggml.tokens"].replace(encoded(old)[4:], encoded(new)[4:])
        values["tokenizer.ggml.tokens"] = tokens
    values[f"{'qwen2vl' if mrope else 'llama'}.block_count"] = encoded(len(_LAYERS))
    if mrope:
        values["general.architecture"] = encoded("qwen2vl")
        values["qwen2vl.rope.dimension_sections"] = encoded(_SECTIONS)
    heads = {f"blk.{layer}.attn_{name}.weight" for layer in _LAYERS for name in "qk" if mrope}
    names = {t.name: t.name for t in layout.tensors if not t.name.startswith("blk.")}
    for number, layer in enumerate(_LAYERS):
        found = (t.name for t in layout.tensors if t.name.startswith(f"blk.{layer}."))
        names |= {name: name.replace(f".{layer}.", f".{number}.") for name in found}

    def tensors(original: BinaryIO) -> list[NewTensor]:
        return [
            NewTensor(new, t, _turned(original, t) if t.name in heads else copied(original, t))
            for t in layout.tensors
            if (new := names.get(t.name))
        ]

    made = folder / f"{source.stem[:40]}-{'mrope' if mrope else 'sees'}.gguf"
    write_model(source, made, layout, values, tensors)
    return made


def _turned(original: BinaryIO, placed: Placed, width: int = 64) -> Iterator[bytes]:
    """Return rows of heads whose pairs are halves apart instead of neighbours."""
    rows = np.frombuffer(b"".join(copied(original, placed)), np.uint8)
    pairs = rows.reshape(-1, width // 2, 2, placed.size_bytes // placed.shape[1])
    yield pairs.swapaxes(1, 2).tobytes()


def _token_size(target: Path) -> float:
    """Return the deviation of a number in the embeddings of a target's first tokens."""
    (placed,) = (t for t in read_layout(target).tensors if t.name == "token_embd.weight")
    with target.open("rb") as file:
        file.seek(placed.start)
        data = file.read(min(placed.size_bytes, 34 * 10_000))
    blocks = np.frombuffer(data, [("scale", "<f2"), ("numbers", "i1", 32)])
    return float((blocks["scale"][:, None].astype(float) * blocks["numbers"]).std())


def _inputs(name: str, shape: tuple[int, ...]) -> float:
    """Return by how many numbers a weight's product is summed; more makes it count less."""
    if "position" in name:
        return 100
    if "conv" in name:
        return shape[1] / 4
    return shape[-1] if "input_projection" in name else float(np.prod(shape[:-1]))


def _values(kind: str, n_embd: int) -> dict[str, bytes]:
    sense = "audio" if kind == "sound" else "vision"
    values: Values = {
        "embedding_length": _WIDTH,
        "feed_forward_length": _FF,
        "block_count": 1,
        "projection_dim": n_embd,
        "attention.head_count": 2,
        "attention.layer_norm_epsilon": 1e-6,
    }
    if kind != "sound":
        patch, side = _PATCHES[kind]
        values |= {"image_size": side, "patch_size": patch}
        values |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    values |= _VALUES[kind]
    general: Values = {
        "general.architecture": "clip",
        f"clip.has_{sense}_encoder": True,
        "clip.use_gelu": True,
    }
    named: Values = {f"clip.{sense}.{key}": value for key, value in values.items()}
    named["clip.projector_type"] = named.pop(f"clip.{sense}.projector_type")
    return {key: encoded(value) for key, value in (general | named).items()}


def _shapes(kind: str, n_embd: int) -> Shapes:
    """Return the tensors of an encoder, as ggml counts dimensions."""
    shapes: Shapes = {
        f"blk.0.attn_{each}.weight": (_WIDTH, _WIDTH) for each in ("q", "k", "v", "out")
    }
    shapes |= {"blk.0.ffn_up.weight": (_WIDTH, _FF), "blk.0.ffn_down.weight": (_FF, _WIDTH)}
    shapes |= {f"{each}.weight": (_WIDTH,) for each in ("blk.0.ln1", "blk.0.ln2", "post_ln")}
    if kind == "sound":
        shapes |= {"conv1d.1.weight": (3, _MELS, _WIDTH), "conv1d.2.weight": (3, _WIDTH, _WIDTH)}
        shapes["position_embd.weight"] = (_WIDTH, 1500)
    else:
        patch, side = _PATCHES[kind]
        shapes["patch_embd.weight"] = (patch, patch, 3, _WIDTH)
        if kind != "grid":
            shapes["position_embd.weight"] = (_WIDTH, (side // patch) ** 2)
    last: Mapping[str, Shapes] = {
        "plain": {"0.weight": (_WIDTH, _FF), "2.weight": (_FF, n_embd)},
        "tiles": {"model.fc.weight": (4 * _WIDTH, n_embd)},
        "whole": {"input_projection.weight": (n_embd, _WIDTH), "soft_emb_norm.weight": (_WIDTH,)},
        "grid": {"0.weight": (4 * _WIDTH, _FF), "2.weight": (_FF, n_embd)},
        "sound": {
            "a.norm_pre.weight": (_STACK * _WIDTH,),
            "a.mlp.1.weight": (_STACK * _WIDTH, 2 * _FF),
            "a.norm_mid.weight": (_FF,),
            "a.mlp.2.weight": (_FF, n_embd),
        },
    }  # fmt: skip
    own = "a" if kind == "sound" else "v"
    named = {f"{own}.{name}": shape for name, shape in shapes.items()}
    for name, shape in list(named.items()):
        if "embd" not in name and name != "a.blk.0.attn_k.weight":
            named[name.replace("weight", "bias")] = (*[1] * ("conv" in name), shape[-1])
    named |= {f"mm.{name}": shape for name, shape in last[kind].items()}
    if kind in {"plain", "grid"}:
        named |= {"mm.0.bias": (_FF,), "mm.2.bias": (n_embd,)}
    if kind == "grid":
        named["v.patch_embd.weight.1"] = named["v.patch_embd.weight"]
    return named
