"""Made encoders and their targets: what is written, and that a target with M-RoPE computes what it did of a text."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lab.synthetic.gguf_layout import read_layout
from localspec.models.gguf import read_header
from tests.lab.test_synthetic_logits import assert_nearly_alike, rows
from tests.support.encoders import KINDS


@pytest.mark.slow
def test_a_target_with_m_rope_computes_what_the_other_does_of_a_text(
    seeing_models: Callable[[str], tuple[Path, Path]],
) -> None:
    assert_nearly_alike(*(rows(seeing_models(kind)[0]) for kind in ("grid", "tiles")))


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
