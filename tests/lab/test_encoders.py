"""Made encoders and their targets: what is written, and that a target with M-RoPE computes what it did of a text."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lab.synthetic.encoders import KINDS
from lab.synthetic.gguf_layout import read_layout
from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.models.gguf import read_header
from localspec.options import LoadOptions

TEXT = "The quick brown fox jumps over the lazy dog, and nobody asks the dog why."


def rows(path: Path) -> NDArray[np.float32]:
    model = LlamaModel(path, LoadOptions(n_ctx=256, threads=1, gpu_layers=0, max_rows=8))
    try:
        tokens = model.vocabulary.tokenize(TEXT, add_special=False, parse_special=False)
        context = LlamaContext(model)
        return context.logits(tokens, 8).copy()
    finally:
        model.close()


@pytest.mark.parametrize("kind", ["tiles", "grid"])
def test_a_target_that_sees_computes_the_same_of_a_text(
    seeing_models: Callable[[str], tuple[Path, Path]], smollm2_path: Path, kind: str
) -> None:
    original, made = rows(smollm2_path), rows(seeing_models(kind)[0])
    if kind == "tiles":
        assert np.array_equal(made, original)
    assert np.array_equal(made.argmax(-1), original.argmax(-1))
    assert min(np.corrcoef(a, b)[0, 1] for a, b in zip(made, original, strict=True)) > 0.99


def test_an_encoder_is_small_and_of_its_target(
    seeing_models: Callable[[str], tuple[Path, Path]],
) -> None:
    for kind in KINDS:
        target, encoder = seeing_models(kind)
        header = read_header(encoder)
        assert header.architecture == "clip"
        assert encoder.stat().st_size < 4 << 20
        assert {576} & {side for each in read_layout(encoder).tensors for side in each.shape}
        assert read_header(target).architecture == ("qwen2vl" if kind == "grid" else "llama")
