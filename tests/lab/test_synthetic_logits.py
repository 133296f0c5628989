"""A synthetic target's logits are the original's: bit for bit with more layers, up to rounding with more channels or M-RoPE; made encoders are of it."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lab.synthetic.gguf_layout import read_layout
from lab.synthetic.heavier import heavier
from lab.synthetic.wider import wider
from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.models.gguf import read_header
from localspec.options import LoadOptions
from tests.support.encoders import KINDS

TEXT = "The quick brown fox jumps over the lazy dog, and nobody asks the dog why. " * 4
OPTIONS = LoadOptions(n_ctx=256, threads=1, gpu_layers=0, max_rows=4)


def rows(path: Path, options: LoadOptions = OPTIONS) -> NDArray[np.float32]:
    """Return the logits after a prompt, of a wide pass, and of a narrow one."""
    with closing(LlamaModel(path, options)) as model:
        context = LlamaContext(model)
        tokens = model.vocabulary.tokenize(TEXT, add_special=False, parse_special=False)
        found = [context.logits(tokens, 1).copy(), context.logits([*tokens, 5, 6, 7], 4).copy()]
        found.append(context.logits([*tokens, 5, 6, 7, 8], 1).copy())
        return np.concatenate(found)


def assert_nearly_alike(made: NDArray[np.float32], original: NDArray[np.float32]) -> None:
    assert np.array_equal(made.argmax(-1), original.argmax(-1))
    assert min(np.corrcoef(a, b)[0, 1] for a, b in zip(made, original, strict=True)) > 0.99


@pytest.mark.weights
@pytest.mark.slow
def test_heavier_and_wider_targets_compute_the_same(smollm2_path: Path, tmp_path: Path) -> None:
    heavy = heavier(smollm2_path, 2, tmp_path)
    for options in (OPTIONS, OPTIONS.exact()):
        assert np.array_equal(rows(smollm2_path, options), rows(heavy, options))
    assert_nearly_alike(rows(wider(smollm2_path, 2, tmp_path)), rows(smollm2_path))


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
