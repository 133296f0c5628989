"""A synthetic target's logits are the original's: bit for bit with more layers, up to rounding with more channels."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lab.synthetic.heavier import heavier
from lab.synthetic.wider import wider
from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.options import LoadOptions

pytestmark = [pytest.mark.weights, pytest.mark.slow]

TEXT = "The quick brown fox jumps over the lazy dog, and nobody asks the dog why. " * 4


def rows(path: Path, options: LoadOptions) -> NDArray[np.float32]:
    """Return the logits after a prompt, of a wide pass, and of a narrow one."""
    model = LlamaModel(path, options)
    try:
        context = LlamaContext(model)
        tokens = model.vocabulary.tokenize(TEXT, add_special=False, parse_special=False)
        found = [context.logits(tokens, 1).copy(), context.logits([*tokens, 5, 6, 7], 4).copy()]
        found.append(context.logits([*tokens, 5, 6, 7, 8], 1).copy())
        return np.concatenate(found)
    finally:
        model.close()


@pytest.mark.parametrize("exact", [False, True])
def test_a_heavier_target_computes_the_same_bits(
    smollm2_path: Path, tmp_path: Path, exact: bool
) -> None:
    options = LoadOptions(n_ctx=256, threads=1, gpu_layers=0, max_rows=4)
    options = options.exact() if exact else options
    heavy = heavier(smollm2_path, 2, tmp_path)
    assert np.array_equal(rows(smollm2_path, options), rows(heavy, options))


def test_a_wider_target_computes_the_same_up_to_rounding(
    smollm2_path: Path, tmp_path: Path
) -> None:
    options = LoadOptions(n_ctx=256, threads=1, gpu_layers=0, max_rows=4)
    wide = rows(wider(smollm2_path, 2, tmp_path), options)
    original = rows(smollm2_path, options)
    assert np.array_equal(wide.argmax(-1), original.argmax(-1))
    assert min(np.corrcoef(a, b)[0, 1] for a, b in zip(wide, original, strict=True)) > 0.99
