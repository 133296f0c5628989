"""Our sampling keeps what llama.cpp's own sampler chain keeps, row by row on real logits."""

from pathlib import Path

import numpy as np
import pytest

from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.options import LoadOptions, SamplingParams
from tests.llama.native_samplers import assert_agrees_with_llama_cpp
from tests.llama.test_samplers_agree import random_params

TEXT = (
    "def mean(values):\n    return sum(values) / len(values)\n\nThe old bridge was built in 1783, "
    "and its architect was the first woman to sign a public work. Once upon a time, the sea said: "
)
DEFAULTS = SamplingParams()
REPEATING = SamplingParams(repeat_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2)


def assert_agrees_on_every_row(model: LlamaModel, context: LlamaContext) -> None:
    tokens = model.vocabulary.tokenize(TEXT, add_special=False, parse_special=False)
    rng = np.random.default_rng(4)
    for end in range(1, len(tokens) + 1):
        row = context.logits(tokens[:end], rows=1)[0]
        for params in (DEFAULTS, REPEATING, *(random_params(rng, row.size, k) for k in (1, 40, 0))):
            assert_agrees_with_llama_cpp(row, tokens[:end], params)


@pytest.mark.slow
@pytest.mark.weights
def test_sampling_agrees_with_llama_cpp_on_smollm2(
    smollm2: LlamaModel, context: LlamaContext
) -> None:
    assert_agrees_on_every_row(smollm2, context)


@pytest.mark.pair
def test_sampling_agrees_with_llama_cpp_on_152k_logits(qwen_draft_path: Path) -> None:
    model = LlamaModel(qwen_draft_path, LoadOptions(n_ctx=512, max_rows=1))
    assert_agrees_on_every_row(model, LlamaContext(model))
    model.close()
