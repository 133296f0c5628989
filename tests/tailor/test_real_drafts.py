"""Draft models made of real weights: with each, the text stays the same, bit for bit."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from localspec.launch.load import load
from localspec.launch.plan import make_plan
from localspec.llama.quantize import quantise
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams

pytestmark = [pytest.mark.slow, pytest.mark.weights]
PROMPT = "Write a short poem about the sea, and then a Python function that adds two numbers."


def reply(draft_model: Path | None, target: Path) -> tuple[Sequence[int], float]:
    """Return the text with exact kernels at a temperature, and the share of drafted tokens that was accepted."""
    request = LaunchOptions(
        target=str(target),
        draft_model=None if draft_model is None else str(draft_model),
        draft="off" if draft_model is None else "model:2",
        load=LoadOptions(n_ctx=512, gpu_layers=0),
        exact=True,
    )
    runtime = load(make_plan(request))
    options = ReplyOptions(SamplingParams(temperature=0.8), seed=7, max_tokens=96)
    made = runtime.assistant.reply(PROMPT, options)
    runtime.assistant.close()
    return made.tokens, made.acceptance.acceptance_rate or 0.0


def test_the_text_is_the_same_with_every_draft(smollm2_path: Path, tmp_path: Path) -> None:
    smaller, layers = (tmp_path / f"{name}.gguf" for name in ("q4_0", "layers"))
    quantise(smollm2_path, smaller)
    quantise(smollm2_path, layers, made=None, left_out=(20, 21, 22))
    plain, _ = reply(None, smollm2_path)
    for made in (smaller, layers):
        tokens, accepted = reply(made, smollm2_path)
        assert tokens == plain, made.stem
        assert accepted > 0.25
