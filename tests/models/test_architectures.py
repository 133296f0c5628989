"""What llama.cpp cannot draft with ends in one line, before anything is loaded."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.decoding.draft_block import DraftBlock
from localspec.errors import LocalspecError, PairMismatch, UsageError
from localspec.models.architectures import (
    ACCEPTED,
    Heads,
    corrections,
    heads_in,
    heads_of,
    how_it_drafts,
    why_no_draft_model,
    why_no_drafts,
    why_no_mtp,
    why_no_target,
)
from localspec.models.gguf import GgufHeader, read_header
from localspec.models.pairs import Fit, judge_headers
from localspec.options import LaunchOptions, LoadOptions
from localspec.plan.load_plan import LoadPlan
from localspec.plan.make import make_plan
from tests.llama import tiny_mamba, tiny_models

WRITERS: dict[str, Callable[[Path], Path]] = {
    "llama": tiny_models.write_llama,
    "vectors": lambda path: tiny_models.write_llama(path, pooling=1),
    "qwen35": tiny_models.write_qwen35,
    "mtp": lambda path: tiny_models.write_qwen35(path, mtp=1),
    "promised": lambda path: tiny_models.write_qwen35(path, lacking=1),
    "two mtp": lambda path: tiny_models.write_qwen35(path, mtp=2),
    "step35": lambda path: tiny_models.write_windowed(path, mtp=3),
    "mimo2": lambda path: tiny_models.write_windowed(path, mtp=2, architecture="mimo2"),
    "lfm2": tiny_models.write_lfm2,
    "mamba": tiny_mamba.write,
    "eagle3": tiny_models.write_eagle3,
    "dflash": tiny_models.write_dflash,
    "dflash2": lambda path: tiny_models.write_dflash(path, kind="dflash2"),
    "dspark": lambda path: tiny_models.write_dflash(path, kind="dspark"),
    "dspark with a bonus": lambda at: tiny_models.write_dflash(at, kind="dspark", anchored=False),
    "gemma4": tiny_models.write_gemma4,
    "assistant": tiny_models.write_assistant,
}
Models = dict[str, Path]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder = tmp_path_factory.mktemp("models")
    return {name: write(folder / f"{name}.gguf") for name, write in WRITERS.items()}


def header(path: Path, architecture: str | None = None, **values: Any) -> GgufHeader:
    """Return the header of a file, as if it were of another architecture, or had other values."""
    own = read_header(path)
    old, new = own.architecture, architecture or own.architecture
    metadata: dict[str, Any] = {
        key.replace(f"{old}.", f"{new}.", 1): value for key, value in own.metadata.items()
    }
    metadata |= {"general.architecture": new, **{f"{new}.{key}": values[key] for key in values}}
    return replace(own, metadata=metadata)


def plan(
    models: Models, target: str, draft: str, draft_model: str | None = None, parallel: int = 1
) -> LoadPlan:
    heads = None if draft_model is None else str(models[draft_model])
    load = LoadOptions(n_ctx=256)
    request = LaunchOptions(
        target=str(models[target]), draft_model=heads, draft=draft, fit=False, load=load
    )
    return make_plan(request, parallel=parallel)


def test_eagle3_heads_fit_where_there_are_hooks_and_the_form_is_right(models: Models) -> None:
    heads = header(models["eagle3"])
    assert heads_in(heads) == Heads((1, 2, 3))
    for said, accepted in ((0.5, 0.5), (0.0, 0.0), (1.5, None), (float("nan"), None), ("x", None)):
        measured = replace(heads, metadata={**heads.metadata, ACCEPTED: said})
        assert heads_in(measured) == Heads((1, 2, 3), accepted=accepted)
    for architecture in ("llama", "qwen3", "qwen35", "lfm2", "gpt-oss", "gemma4"):
        assert why_no_draft_model(header(models["llama"], architecture), heads) is None
    for architecture in ("qwen2", "gemma3", "mamba", "deepseek2", "falcon-h1", "glm4moe"):
        without_hooks = header(models["llama"], architecture)
        reason = why_no_draft_model(without_hooks, heads)
        assert architecture in (reason or "")
        fit = judge_headers(without_hooks, heads)
        assert (fit.verdict, fit.reason) == (Fit.INCOMPATIBLE, reason)
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({}, {"target_hidden_size": 128}, "width 128"),
        ({}, {"embedding_length": 32}, "without output.weight and token_embd.weight"),
        ({}, {"block_count": 2}, "form"),
        ({"block_count": 3}, {}, "[1, 2, 3]"),
    ]
    for target, draft, word in cases:
        pair = header(models["llama"], **target), header(models["eagle3"], **draft)
        assert word in (why_no_draft_model(*pair) or "")


def test_blocks_and_assistants_fit_targets_of_their_form_alone(models: Models) -> None:
    blocks = header(models["dflash"])
    unmasked = {each: value for each, value in blocks.metadata.items() if "mask" not in each}
    assert why_no_draft_model(header(models["llama"]), replace(blocks, metadata=unmasked))
    cases: dict[str, list[tuple[dict[str, Any], dict[str, Any], str]]] = {
        "llama dflash": [
            ({}, {"embedding_length": 128}, "width 128"),
            ({"architecture": "qwen2"}, {}, "no hooks for them in qwen2"),
            ({"block_count": 3}, {}, "[0, 1, 3]"),
            ({}, {"target_layers": "none"}, "layers []"),
            ({}, {"block_size": 1}, "form"),
            ({}, {"block_size": 65}, "form"),
            ({}, {"hyper_connection.count": 4}, "form"),
            ({}, {"attention.value_length": 16}, "form"),
            ({}, {"attention.sliding_window": 64}, "form"),
        ],
        "gemma4 assistant": [
            ({"architecture": "gemma3"}, {}, "no hooks for them in gemma3"),
            ({}, {"embedding_length_out": 128}, "width 128"),
            ({}, {"nextn_predict_layers": 1}, "form"),
            ({}, {"attention.key_length": 64}, "form"),
            ({}, {"attention.head_count_kv": 1}, "form"),
            ({"attention.sliding_window_pattern": np.array([0, 1, 0, 1])}, {}, "form"),
        ],
    }
    for names, refused in cases.items():
        target, heads = names.split()
        for changed, draft, word in [({}, {}, ""), *refused]:
            pair = header(models[target], **changed), header(models[heads], **draft)
            reason = why_no_draft_model(*pair)
            assert reason is None if not word else word in (reason or "")


def test_what_a_block_gives_is_read_from_the_header(models: Models) -> None:
    for name, block in (
        ("dflash", DraftBlock(8, 255)),
        ("dflash2", DraftBlock(8, 255, top_k=4)),
        ("dspark", DraftBlock(8, 255, skipped=0)),
        ("dspark with a bonus", DraftBlock(8, 255)),
    ):
        assert heads_in(header(models[name])) == Heads((0, 1, 3), block)
    assert heads_in(header(models["assistant"])) == Heads(shares_cache=True)
    assert heads_in(header(models["llama"])) is None


def test_what_may_be_a_target_and_how_it_drafts_is_read_from_the_header(models: Models) -> None:
    for architecture in ("eagle3", "dflash", "gemma4-assistant"):
        assert "--draft-model" in (why_no_target(header(models["eagle3"], architecture)) or "")
    assert "index add --vectors" in (why_no_target(header(models["vectors"])) or "")
    assert why_no_target(header(models["llama"])) is None
    assert why_no_mtp(header(models["mtp"])) is None
    assert "no MTP layers" in (why_no_mtp(header(models["qwen35"])) or "")
    promised = header(models["qwen35"], nextn_predict_layers=1)
    assert "promises" in (why_no_mtp(promised) or "")
    assert "not in the file" in (how_it_drafts(promised) or "")
    lacking = header(models["promised"])
    assert corrections(lacking) == {"qwen35.nextn_predict_layers": 0, "qwen35.block_count": 4}
    assert not corrections(header(models["mtp"]))
    assert not corrections(header(models["promised"], nextn_predict_layers=1 << 31))
    assert "2 MTP layers" in (why_no_mtp(header(models["two mtp"])) or "")
    step, mimo = header(models["step35"]), header(models["mimo2"])
    assert heads_of(step, exact=True) == Heads(count=3, of_outputs=True)
    assert heads_of(mimo) == Heads(count=2, of_outputs=True)
    assert "--exact" in (why_no_mtp(mimo, exact=True) or "")
    split = replace(mimo, tensors=tuple(t for t in mimo.tensors if "attn_qkv" not in t.name))
    assert "not in the file" in (why_no_mtp(split) or "")
    glm = header(models["mtp"], "glm4moe")
    assert why_no_mtp(glm) is None
    assert "--exact" in (why_no_mtp(glm, exact=True) or "")
    for architecture in ("qwen3next", "deepseek2", "llama"):
        assert architecture in (why_no_mtp(header(models["mtp"], architecture)) or "")
    assert "mamba" in (why_no_drafts(header(models["mamba"])) or "")
    assert why_no_drafts(header(models["lfm2"])) is None
    assert how_it_drafts(header(models["llama"])) is None
    for name, words in (
        ("mtp", "7 tokens; has an MTP layer to draft with"),
        ("step35", "has 3 MTP layers to draft with"),
        ("lfm2", "7 tokens"),
        ("mamba", "cannot roll back"),
        ("eagle3", "width 64"),
        ("dflash", "width 64"),
        ("assistant", "width 64"),
    ):
        assert words in (how_it_drafts(header(models[name])) or "")


@pytest.mark.parametrize("parallel", [1, 4])
def test_heads_are_planned_where_there_are_some(models: Models, parallel: int) -> None:
    cases: list[tuple[str, str, str | None, Heads | None]] = [
        ("mtp", "heads auto", None, Heads()),
        ("llama", "heads auto", "eagle3", Heads((1, 2, 3))),
        ("llama", "heads auto", "dflash", Heads((0, 1, 3), DraftBlock(8, 255))),
        ("gemma4", "heads auto", "assistant", Heads(shares_cache=True)),
        ("llama", "auto", None, None),
        ("mtp", "lookup", None, None),
    ]
    for target, drafts, draft_model, heads in cases:
        for draft in drafts.split():
            assert plan(models, target, draft, draft_model, parallel).heads == heads
    assert plan(models, "mtp", "auto", "lfm2").heads is None, "the other one was named"


def test_own_heads_go_first(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = models["mtp"].parent
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(folder))
    for target, draft_model, kind, note in (
        ("mtp", "lfm2", Heads(), None),
        ("llama", "eagle3", Heads((1, 2, 3)), None),
        ("mamba", "eagle3", None, "no hooks for them in mamba"),
        ("two mtp", "lfm2", None, "a single MTP layer"),
    ):
        names = f'target = "{models[target]}"\ndraft_model = "{models[draft_model]}"\n'
        (folder / "models.toml").write_text(f"[pairs.mine]\n{names}")
        made = make_plan(LaunchOptions("mine", fit=False, load=LoadOptions(n_ctx=256)))
        assert made.heads == kind
        assert kind != Heads() or made.draft_model is None
        assert not note or note in " ".join(made.notes)


def test_what_cannot_draft_ends_in_one_line_before_anything_is_loaded(models: Models) -> None:
    for name, word in (("promised", "not in the file"), ("two mtp", "a single MTP layer")):
        made = plan(models, name, "auto")
        assert made.heads is None
        (note,) = made.notes
        assert note.startswith("its MTP layers do not draft: ")
        assert word in note
        assert "\n" not in note
    cases: list[tuple[str, str, str | None, type[LocalspecError], str]] = [
        ("promised", "heads", None, UsageError, "not in the file"),
        ("eagle3", "auto", None, PairMismatch, "another model"),
        ("vectors", "off", None, PairMismatch, "makes vectors"),
        ("mamba", "heads", "eagle3", PairMismatch, "no hooks for them in mamba"),
        ("llama", "heads", None, UsageError, "no MTP layers"),
        ("two mtp", "heads", None, UsageError, "2 MTP layers"),
        ("llama", "model", "eagle3", UsageError, "--draft heads"),
        ("llama", "model", "dflash", UsageError, "--draft heads"),
        ("llama", "auto", "assistant", PairMismatch, "no hooks for them in llama"),
    ]
    for target, draft, draft_model, error, word in cases:
        with pytest.raises(error, match=word) as raised:
            plan(models, target, draft, draft_model)
        assert "\n" not in str(raised.value)
