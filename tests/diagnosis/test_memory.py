"""What doctor says of where models go."""

from pathlib import Path

import pytest

from localspec.diagnosis.doctor import memory
from localspec.errors import UsageError
from tests.models.shapes import LLAMA_1B, QWEN3_06B, sparse_model


def told(folder: Path, **values: object) -> list[tuple[str, str]]:
    facts = memory(folder, {"pair": None, "gpu_layers": 0, **values})
    return [(fact.value, fact.state) for fact in facts]


def test_the_models_that_are_set_are_planned(tmp_path: Path) -> None:
    target = sparse_model(tmp_path / "target.gguf", LLAMA_1B)
    ((line, state),) = told(tmp_path, target=str(target))
    assert line.startswith("needs RAM: 913 MB of ")
    assert "context 4096 in f16" in line
    assert state == "ok"


def test_what_cannot_be_is_a_warning(tmp_path: Path) -> None:
    target = sparse_model(tmp_path / "target.gguf", LLAMA_1B)
    draft_model = sparse_model(tmp_path / "draft.gguf", QWEN3_06B)
    facts = told(tmp_path, target=str(target), draft_model=str(draft_model))
    assert [state for _, state in facts] == ["ok", "warning"]


def test_models_that_are_not_here_are_only_named(tmp_path: Path) -> None:
    ((line, state),) = told(tmp_path, pair="qwen2.5-coder-1.5b")
    assert line.startswith("not on this machine")
    assert state == "ok"


def test_workers_are_left_to_whoever_uses_them(tmp_path: Path) -> None:
    ((line, state),) = told(tmp_path, workers=("127.0.0.1:1", "127.0.0.1:2"))
    assert state == "ok"
    assert line == "known at loading, when 127.0.0.1:1, 127.0.0.1:2 will report what is free"


def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    target = sparse_model(tmp_path / "target.gguf", LLAMA_1B)
    with pytest.raises(UsageError, match="choose one of"):
        told(tmp_path, target=str(target), gpu_layers=None, devices=("CUDA7",), device=("CUDA7",))
