"""Files for plans: headers of the registry's models in their sizes, and of a user's own; of weights there are holes."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from localspec.models.entries import ModelEntry
from localspec.models.registry import load_registry
from tests.models.gguf_builder import TOKENS, Content, Tensor, build, model_file, model_values
from tests.models.shapes import (
    GEMMA3_4B,
    LLAMA_1B,
    LLAMA_8B,
    NORMS,
    Q5_0,
    QWEN3_06B,
    QWEN3_8B,
    QWEN35,
    STEP35,
    Proportions,
    sparse_block,
    sparse_gemma4,
    sparse_model,
)
from tests.models.test_mmproj import mmproj_file

_VALUES = model_values()
WORDS = {key: value for key, value in _VALUES.items() if key.startswith("tokenizer")}
OTHERS = {**WORDS, "tokenizer.ggml.tokens": [*TOKENS[:-1], "ba"]}
_EXPERTS = (
    ("expert_count", 128), ("expert_used_count", 8), ("expert_feed_forward_length", 768),
)  # fmt: skip
_EAGLE3 = (("target_layers", [2, 18, 33]), ("target_hidden_size", 4096))

MADE: dict[str, Proportions] = {
    "smollm2-135m": Proportions("llama", 30, 576, 1536, 9, 3, 64, 49152, True, kind=Q5_0),
    "smollm2-360m": Proportions("llama", 32, 960, 2560, 15, 5, 64, 49152, True, kind=Q5_0),
    "smollm2-1.7b": Proportions("llama", 24, 2048, 8192, 32, 32, 64, 49152, True),
    "qwen2.5-coder-0.5b": Proportions("qwen2", 24, 896, 4864, 14, 2, 64, 151936, True, kind=Q5_0),
    "qwen2.5-coder-1.5b": Proportions("qwen2", 28, 1536, 8960, 12, 2, 128, 151936, True),
    "qwen2.5-coder-7b": Proportions("qwen2", 28, 3584, 18944, 28, 4, 128, 152064),
    "qwen3-0.6b": QWEN3_06B,
    "qwen3-1.7b": Proportions("qwen3", 28, 2048, 6144, 16, 8, 128, 151936, True, NORMS),
    "qwen3-8b": QWEN3_8B,
    "qwen3-32b": Proportions("qwen3", 64, 5120, 25600, 64, 8, 128, 151936, False, NORMS),
    "qwen3-8b-eagle3": Proportions("eagle3", 1, 4096, 12288, 32, 8, 128, 32000, more=_EAGLE3),
    "qwen3-30b-a3b-2507": Proportions(
        "qwen3moe", 48, 2048, 768, 32, 4, 128, 151936, False, NORMS, _EXPERTS, experts=128
    ),
    "qwen3.5-4b": QWEN35,
    "qwen3.5-4b:Q4_K_M-plain": replace(
        QWEN35, layers=32, mtp=0, more=tuple(x for x in QWEN35.more if x[0] != "nextn_predict_layers")
    ),
    "llama3.2-1b": LLAMA_1B,
    "llama3.1-8b": LLAMA_8B,
    "gemma3-270m": Proportions("gemma3", 18, 640, 2048, 4, 1, 256, 262144, True, NORMS, kind=Q5_0),
    "gemma3-4b": GEMMA3_4B,
}  # fmt: skip


@cache
def _folder() -> Path:
    return Path(mkdtemp(prefix="plans-"))


def _whole(data: bytes, path: Path, size_bytes: int | None = None) -> Path:
    path.write_bytes(data)
    if size_bytes is not None:
        with path.open("r+b") as file:
            file.truncate(size_bytes)
    return path


@cache
def blob(name: str, sha256: str) -> Path:
    """Return the file that stands for a model of the registry, or for its mmproj file."""
    path = _folder() / sha256
    entry = load_registry().model(name.removesuffix(" mmproj"))
    if name.endswith(" mmproj"):
        assert entry.mmproj is not None
        return _whole(
            _sees(MADE[name.removesuffix(" mmproj")].n_embd), path, entry.mmproj.size_bytes
        )
    return sparse_model(path, MADE[name], WORDS, entry.size_bytes)


def _sees(width: int, **values: Content) -> bytes:
    return mmproj_file("image", width=width, **values)


def put(data: Path, name: str) -> list[ModelEntry]:
    """Lay a model of the registry into a store, with its mmproj file where the name ends in `+`."""
    entry = load_registry().model(name.removesuffix("+"))
    files = [(name.removesuffix("+"), entry)]
    if name.endswith("+"):
        assert entry.mmproj is not None
        files.append((f"{name.removesuffix('+')} mmproj", entry.mmproj))
    (data / "blobs").mkdir(parents=True, exist_ok=True)
    for called, each in files:
        if not (path := data / "blobs" / each.sha256).exists():
            path.hardlink_to(blob(called, each.sha256))
    return [each for _, each in files]


@cache
def own_files() -> Path:
    """Return a folder with files of a user's own."""
    folder = _folder() / "own"
    folder.mkdir()
    eagle3 = Proportions("eagle3", 1, 4096, 14336, 32, 8, 128, 128256, more=(
        ("target_layers", [2, 16, 29]), ("target_hidden_size", 4096),
    ))  # fmt: skip
    recurrent = replace(LLAMA_1B, arch="mamba2", more=(
        ("ssm.conv_kernel", 4), ("ssm.inner_size", 4096), ("ssm.state_size", 128), ("ssm.group_count", 1),
    ))  # fmt: skip
    for name, size, words in (
        ("big.gguf", LLAMA_8B, WORDS),
        ("small.gguf", LLAMA_1B, WORDS),
        ("other.gguf", LLAMA_1B, OTHERS),
        ("strange.gguf", LLAMA_1B, {**WORDS, "tokenizer.ggml.tokens": [*TOKENS[:2], "x", "y", "z", "w"]}),
        ("short.gguf", replace(LLAMA_1B, more=(("context_length", 2048),)), WORDS),
        ("mtp.gguf", QWEN35, WORDS),
        ("three-mtp.gguf", STEP35, WORDS),
        ("eagle3.gguf", eagle3, WORDS),
        ("recurrent.gguf", recurrent, WORDS),
        ("qwen3.gguf", QWEN3_8B, WORDS),
        ("experts.gguf", MADE["qwen3-30b-a3b-2507"], WORDS),
    ):  # fmt: skip
        sparse_model(folder / name, size, words)
    promised = replace(QWEN35, layers=32, mtp=0)
    promised = replace(promised, more=tuple({**dict(QWEN35.more), "block_count": 33}.items()))
    sparse_model(folder / "promises.gguf", promised, WORDS)
    for kind in ("dflash", "dspark"):
        sparse_block(folder / f"{kind}.gguf", QWEN3_8B, kind, WORDS)
    sparse_gemma4(folder / "gemma4.gguf", WORDS)
    sparse_gemma4(folder / "assistant.gguf", WORDS, assistant=True)
    (folder / "toy.gguf").write_bytes(model_file())
    (folder / "cut.gguf").write_bytes(model_file()[:-1])
    (folder / "text.gguf").write_text("no model")
    embeds = {**WORDS, "general.architecture": "bert", "bert.pooling_type": 2}
    (folder / "embeds.gguf").write_bytes(build(embeds, [Tensor("w", (8, 4))], data_bytes=128))
    for name, architecture, kind in (
        ("lora.gguf", "llama", "lora"),
        ("lora-qwen.gguf", "qwen2", "lora"),
        ("control.gguf", "llama", "controlvector"),
    ):
        values = {
            "general.architecture": architecture,
            "general.type": "adapter",
            "adapter.type": kind,
        }
        tensor = Tensor("blk.0.attn_q.weight.lora_a", (2048, 8))
        (folder / name).write_bytes(build(values, [tensor], data_bytes=65536))
    for name, data in (
        ("sees.gguf", _sees(4096)),
        ("sees-narrow.gguf", _sees(16)),
        ("hears.gguf", mmproj_file("audio", width=4096)),
        ("sees-hugely.gguf", _sees(4096, **{"vision.image_size": 1000, "vision.patch_size": 1, "vision.embedding_length": 60_000})),
    ):  # fmt: skip
        (folder / name).write_bytes(data)
    for name, encoder in (
        ("seeing", "sees.gguf"), ("hugely", "sees-hugely.gguf"), ("narrowly", "sees-narrow.gguf"), ("cut", "cut.gguf"), ("wrongly", "toy.gguf"),
    ):  # fmt: skip
        (folder / name).mkdir()
        sparse_model(folder / name / "big.gguf", LLAMA_8B, WORDS)
        (folder / name / "mmproj-f16.gguf").write_bytes((folder / encoder).read_bytes())
    return folder
