"""Predicted memory against llama.cpp's own plan (without weights) and own buffers (with them)."""

from dataclasses import replace
from pathlib import Path

import pytest

from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.models.gguf import read_header
from localspec.models.memory import ModelShape, model_shape, predict
from localspec.options import LoadOptions
from localspec.resources import Usage
from tests.llama.reserved import Reserved, dry_run, logged
from tests.models import shapes

USUAL = LoadOptions(4096, max_rows=1, n_batch=512, flash_attention=True, load_mode="copy")
OPTIONS = [
    USUAL,
    replace(USUAL, n_ctx=32768, max_rows=16),
    replace(USUAL, n_ctx=300, max_rows=4),
    replace(USUAL, n_ctx=8192, kv_type="q8_0"),
    replace(USUAL, n_batch=64, max_rows=16),
    replace(USUAL, flash_attention=False),
]


def shape_of(path: Path) -> ModelShape:
    shape = model_shape(read_header(path))
    assert shape is not None
    return shape


def assert_within_5_percent(usage: Usage, real: Reserved) -> None:
    # The output buffer grows with the rows that are asked for, and is logged at one row.
    predicted = usage.total_bytes - usage.output_bytes
    assert predicted == pytest.approx(real.total, rel=0.05)
    assert usage.weights_bytes == pytest.approx(real.model, rel=0.001)
    assert usage.kv_bytes == pytest.approx(real.kv, rel=0.001)
    # The smallest of the three parts, and the only one that is not arithmetic on the header.
    assert usage.compute_bytes == pytest.approx(real.compute, rel=0.11)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(
    "size",
    [
        shapes.LLAMA_1B,
        shapes.LLAMA_8B,
        shapes.QWEN3_06B,
        shapes.QWEN3_8B,
        shapes.LLAMA_14B,
        shapes.GEMMA3_4B,
    ],
    ids=lambda size: f"{size.arch}-{size.layers}-{size.n_embd}",
)
def test_models_too_large_for_a_test_are_predicted_as_llama_cpp_plans_them(
    size: shapes.Proportions, options: LoadOptions, tmp_path: Path
) -> None:
    path = shapes.sparse_model(tmp_path / "model.gguf", size)
    assert_within_5_percent(predict(shape_of(path), options)[0], dry_run(path, options))


def assert_a_load_is_predicted(path: Path, options: LoadOptions) -> None:
    model = LlamaModel(path, options)
    weights = logged().model  # a context begins the log anew
    LlamaContext(model)
    real = replace(logged(), model=weights)
    model.close()
    assert_within_5_percent(predict(shape_of(path), options)[0], real)


@pytest.mark.weights
@pytest.mark.parametrize(
    "options", [LoadOptions(gpu_layers=0), LoadOptions(2048, gpu_layers=0, kv_type="bf16")]
)
def test_smollm2_takes_what_was_predicted(smollm2_path: Path, options: LoadOptions) -> None:
    assert_a_load_is_predicted(smollm2_path, options)


@pytest.mark.pair
def test_the_coder_pair_takes_what_was_predicted(qwen_paths: tuple[Path, Path]) -> None:
    for path in qwen_paths:
        assert_a_load_is_predicted(path, LoadOptions(gpu_layers=0))
