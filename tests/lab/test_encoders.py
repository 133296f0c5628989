"""Made encoders and their targets: what is written, and that a target with M-RoPE computes what it did of a text."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lab.synthetic.encoders import KINDS
from lab.synthetic.gguf_layout import read_layout
from localspec.models.gguf import read_header
from tests.lab.test_synthetic_logits import assert_nearly_alike, rows


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tiles", "grid"])
def test_a_target_that_sees_computes_the_same_of_a_text(
    seeing_models: Callable[[str], tuple[Path, Path]], smollm2_path: Path, kind: str
) -> None:
    original, made = (rows(path) for path in (smollm2_path, seeing_models(kind)[0]))
    if kind == "tiles":
        assert np.array_equal(made, original)
    assert_nearly_alike(made, original)


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
