"""What llama.cpp cannot draft with ends in one line, before anything is loaded."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import LocalspecError, PairMismatch, UsageError
from localspec.launch.plan import LoadPlan, make_plan
from localspec.models.architectures import (
    Heads,
    eagle3_layers,
    how_it_drafts,
    why_no_draft_model,
    why_no_drafts,
    why_no_mtp,
    why_no_target,
)
from localspec.models.gguf import GgufHeader, read_header
from localspec.models.pairs import Fit, judge_headers
from localspec.options import LaunchOptions, LoadOptions
from tests.llama import tiny_mamba, tiny_models

# Architectures of models that people run, the registry's among them, which have no hooks.
WITHOUT_HOOKS = (
    *(
        "qwen2",
        "qwen2moe",
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3n",
        "phi2",
        "phi3",
        "phimoe",
        "granite",
    ),
    *(
        "granitemoe",
        "smollm3",
        "olmo2",
        "exaone4",
        "deepseek2",
        "mistral3",
        "command-r",
        "stablelm",
    ),
    *(
        "falcon-h1",
        "granitehybrid",
        "mamba",
        "mamba2",
        "jamba",
        "rwkv7",
        "glm4",
        "glm4moe",
        "cohere2moe",
    ),
)
Write = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path) -> Callable[[str], Path]:
    """Write a model by its name, once."""
    writers: dict[str, Callable[[Path], Path]] = {
        "llama": tiny_models.write_llama,
        "qwen35": tiny_models.write_qwen35,
        "mtp": lambda path: tiny_models.write_qwen35(path, mtp=1),
        "two mtp": lambda path: tiny_models.write_qwen35(path, mtp=2),
        "lfm2": tiny_models.write_lfm2,
        "mamba": tiny_mamba.write,
        "eagle3": tiny_models.write_eagle3,
    }

    def write(name: str) -> Path:
        path = tmp_path / f"{name}.gguf"
        return path if path.exists() else writers[name](path)

    return write


def header(path: Path, architecture: str | None = None, **values: Any) -> GgufHeader:
    """Return the header of a file, as if it were of another architecture, or said something else."""
    found = read_header(path)
    old, new = found.architecture, architecture or found.architecture
    metadata: dict[str, Any] = {
        key.replace(f"{old}.", f"{new}.", 1): value for key, value in found.metadata.items()
    }
    metadata |= {"general.architecture": new, **{f"{new}.{key}": values[key] for key in values}}
    return replace(found, metadata=metadata)


def plan(target: Path, draft: str, draft_model: Path | None = None, parallel: int = 1) -> LoadPlan:
    request = LaunchOptions(
        target=str(target),
        draft_model=None if draft_model is None else str(draft_model),
        draft=draft,
        fit=False,
        load=LoadOptions(n_ctx=256),
    )
    return make_plan(request, parallel=parallel)


@pytest.mark.parametrize("architecture", WITHOUT_HOOKS)
def test_eagle3_heads_are_refused_where_there_are_no_hooks(
    made: Callable[[str], Path], architecture: str
) -> None:
    target, heads = header(made("llama"), architecture), header(made("eagle3"))
    reason = why_no_draft_model(target, heads)
    assert reason is not None
    assert architecture in reason
    fit = judge_headers(target, heads)
    assert (fit.verdict, fit.reason) == (Fit.INCOMPATIBLE, reason)


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "qwen35", "lfm2", "gpt-oss", "gemma4"])
def test_eagle3_heads_fit_where_there_are_hooks(
    made: Callable[[str], Path], architecture: str
) -> None:
    heads = header(made("eagle3"))
    assert why_no_draft_model(header(made("llama"), architecture), heads) is None
    assert eagle3_layers(heads) == (1, 2, 3)


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"target_hidden_size": 128}, "width 128"),
        ({"embedding_length": 32}, "lack output.weight and token_embd.weight"),
        ({"block_count": 2}, "form"),
    ],
    ids=str,
)
def test_eagle3_heads_of_another_form_are_refused(
    made: Callable[[str], Path], changed: dict[str, Any], word: str
) -> None:
    reason = why_no_draft_model(header(made("llama")), header(made("eagle3"), **changed))
    assert reason is not None
    assert word in reason


def test_eagle3_heads_of_a_deeper_target_are_refused(made: Callable[[str], Path]) -> None:
    reason = why_no_draft_model(header(made("llama"), block_count=3), header(made("eagle3")))
    assert reason is not None
    assert "[1, 2, 3]" in reason


@pytest.mark.parametrize("architecture", ["eagle3", "dflash", "gemma4-assistant"])
def test_what_works_beside_a_model_is_no_target(
    made: Callable[[str], Path], architecture: str
) -> None:
    assert "--draft-model" in (why_no_target(header(made("eagle3"), architecture)) or "")


def test_what_makes_vectors_is_no_target(tmp_path: Path) -> None:
    path = tiny_models.write_llama(tmp_path / "vectors.gguf", pooling=1)
    assert "index add --vectors" in (why_no_target(read_header(path)) or "")
    assert why_no_target(read_header(tiny_models.write_llama(tmp_path / "text.gguf"))) is None
    with pytest.raises(PairMismatch, match="makes vectors"):
        plan(path, "off")


@pytest.mark.parametrize("architecture", ["dflash", "gemma4-assistant"])
def test_drafts_of_kinds_that_we_do_not_drive_are_refused(
    made: Callable[[str], Path], architecture: str
) -> None:
    drafts = header(made("eagle3"), architecture)
    assert "does not draft" in (why_no_draft_model(header(made("llama")), drafts) or "")


def test_mtp_layers_are_found_in_the_header(made: Callable[[str], Path]) -> None:
    assert why_no_mtp(header(made("mtp"))) is None
    assert "no MTP layers" in (why_no_mtp(header(made("qwen35"))) or "")
    assert "no MTP layers" in (why_no_mtp(header(made("qwen35"), nextn_predict_layers=1)) or "")
    assert "2 MTP layers" in (why_no_mtp(header(made("two mtp"))) or "")
    glm = header(made("mtp"), "glm4moe")
    assert why_no_mtp(glm) is None
    assert "--exact" in (why_no_mtp(glm, exact=True) or "")
    for architecture in ("qwen3next", "deepseek2", "llama"):
        assert architecture in (why_no_mtp(header(made("mtp"), architecture)) or "")


def test_a_state_that_cannot_be_rolled_back_verifies_no_drafts(
    made: Callable[[str], Path],
) -> None:
    assert "mamba" in (why_no_drafts(header(made("mamba"))) or "")
    assert why_no_drafts(header(made("lfm2"))) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("llama", None),
        ("mtp", "7 tokens, one answer at a time; has an MTP layer: --draft heads"),
        ("lfm2", "7 tokens"),
        ("mamba", "cannot roll back"),
        ("eagle3", "width 64"),
    ],
)
def test_show_says_what_is_special(
    made: Callable[[str], Path], name: str, words: str | None
) -> None:
    said = how_it_drafts(header(made(name)))
    assert said is None if words is None else words in (said or "")


@pytest.mark.parametrize("draft", ["heads", "auto"])
def test_heads_are_planned_where_there_are_some(made: Callable[[str], Path], draft: str) -> None:
    assert plan(made("mtp"), draft).heads == Heads()
    assert plan(made("llama"), draft, made("eagle3")).heads == Heads((1, 2, 3))
    assert plan(made("llama"), "auto").heads is None
    assert plan(made("mtp"), "lookup").heads is None


@pytest.mark.parametrize(
    ("target", "draft", "draft_model", "parallel", "error", "word"),
    [
        ("eagle3", "auto", None, 1, PairMismatch, "beside a model"),
        ("mamba", "heads", "eagle3", 1, PairMismatch, "no hooks for them in mamba"),
        ("llama", "heads", None, 1, UsageError, "no MTP layers"),
        ("two mtp", "heads", None, 1, UsageError, "2 MTP layers"),
        ("mtp", "heads", None, 4, UsageError, "one answer at a time"),
        ("llama", "auto", "eagle3", 4, UsageError, "one answer at a time"),
        ("llama", "model", "eagle3", 1, UsageError, "--draft heads"),
    ],
)
def test_what_cannot_draft_ends_in_one_line_before_anything_is_loaded(
    made: Callable[[str], Path],
    target: str,
    draft: str,
    draft_model: str | None,
    parallel: int,
    error: type[LocalspecError],
    word: str,
) -> None:
    heads = None if draft_model is None else made(draft_model)
    with pytest.raises(error) as raised:
        plan(made(target), draft, heads, parallel)
    assert word in str(raised.value)
    assert "\n" not in str(raised.value)
