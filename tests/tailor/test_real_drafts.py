"""Draft models made of real weights: with each, the text stays the same, bit for bit."""

from contextlib import closing
from pathlib import Path

import pytest

from localspec.llama.quantize import quantise
from localspec.options import LoadOptions, ReplyOptions, SamplingParams
from tests.support.speaking import opened

pytestmark = [pytest.mark.slow, pytest.mark.weights]
PROMPT = "Write a short poem about the sea, and then a Python function that adds two numbers."
REPLY = ReplyOptions(SamplingParams(temperature=0.8), seed=7, max_tokens=64)


def test_the_text_is_the_same_with_every_draft(smollm2_path: Path, tmp_path: Path) -> None:
    smaller, layers = (tmp_path / f"{name}.gguf" for name in ("q4_0", "layers"))
    quantise(smollm2_path, smaller)
    quantise(smollm2_path, layers, made=None, left_out=(20, 21, 22))
    replies, options = [], LoadOptions(n_ctx=512, gpu_layers=0)
    for draft_model in (None, smaller, layers):
        draft = "off" if draft_model is None else "model:2"
        speaker = opened(smollm2_path, draft, draft_model, exact=True, options=options)
        with closing(speaker):
            replies.append(speaker.reply(PROMPT, REPLY))
    plain, *drafted = replies
    for each in drafted:
        assert each.tokens == plain.tokens
        assert (each.acceptance.acceptance_rate or 0.0) > 0.25
