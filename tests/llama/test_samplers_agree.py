"""Our sampling keeps what llama.cpp's own sampler chain keeps, on made rows of real shape and size, and on real ones."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.decoding import sampling
from localspec.decoding.sampling import Candidates
from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.options import LoadOptions, SamplingParams
from tests.llama.native_samplers import assert_agrees_with_llama_cpp, native_candidates

pytestmark = pytest.mark.slow

N_VOCABS = (1_000, 32_000, 49_152, 151_936)
N_ROWS = 40


def real_row(rng: np.random.Generator, n_vocab: int) -> NDArray[np.float32]:
    """Return logits such as models give: a broad bell, and tokens that stand out, few or many."""
    row = rng.normal(rng.uniform(-2, 4), rng.uniform(1.5, 2.5), n_vocab)
    outstanding = rng.choice(n_vocab, size=rng.integers(1, 400), replace=False)
    row[outstanding] += rng.exponential(rng.choice([0.7, 1.5, 3.0]), outstanding.size)
    row[outstanding] += rng.uniform(0, 7)
    return row.astype(np.float32)


def random_params(rng: np.random.Generator, n_vocab: int, top_k: int) -> SamplingParams:
    penalised = rng.random() < 0.6
    return SamplingParams(
        temperature=float(rng.choice([0.0, 0.3, 0.8, 1.0, 1.0, 1.7])),
        top_k=top_k,
        top_p=float(rng.choice([1.0, 0.95, 0.95, 0.9, 0.6])),
        min_p=float(rng.choice([0.0, 0.0, 0.02, 0.05])),
        repeat_penalty=float(rng.choice([1.0, 1.1, 1.5])) if penalised else 1.0,
        presence_penalty=float(rng.choice([0.0, 0.6])) if penalised else 0.0,
        frequency_penalty=float(rng.choice([0.0, 0.4])) if penalised else 0.0,
        penalty_last_n=int(rng.choice([1, 16, 64, 300])),
        logit_bias=tuple(
            (int(token), float(rng.choice([-np.inf, -3, 5])))
            for token in rng.choice(n_vocab, size=rng.integers(0, 4), replace=False)
        ),
    )


def random_history(rng: np.random.Generator, row: NDArray[np.float32]) -> list[int]:
    """Return a history that is rich in likely tokens, and repeats itself."""
    likely = np.argsort(-row)[:50]
    tokens = rng.choice(likely, size=rng.integers(1, 200))
    return [int(token) for token in tokens]


@pytest.mark.parametrize("n_vocab", N_VOCABS)
@pytest.mark.parametrize("top_k", [1, 2, 40, 100, 200, 0])
def test_sampling_agrees_with_llama_cpp(n_vocab: int, top_k: int) -> None:
    rng = np.random.default_rng([n_vocab, top_k])
    for at in range(N_ROWS):
        row = real_row(rng, n_vocab)
        params = random_params(rng, n_vocab, top_k) if at else SamplingParams()
        assert_agrees_with_llama_cpp(row, random_history(rng, row), params)


@pytest.mark.parametrize("top_k", [0, 40, 5000])
def test_sampling_with_ties_agrees_with_llama_cpp(top_k: int) -> None:
    rng = np.random.default_rng(5)
    for _ in range(N_ROWS):
        row = np.round(real_row(rng, 2_000))
        params = random_params(rng, 2_000, top_k)
        assert_agrees_with_llama_cpp(row, random_history(rng, row), params)


TEXT = (
    "def mean(values):\n    return sum(values) / len(values)\n\nThe old bridge was built in 1783, "
    "and its architect was the first woman to sign a public work. Once upon a time, the sea said: "
)
REPEATING = SamplingParams(repeat_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2)


def check_every_row(model: LlamaModel, context: LlamaContext) -> None:
    tokens = model.vocabulary.tokenize(TEXT, add_special=False, parse_special=False)
    rng = np.random.default_rng(4)
    for end in range(1, len(tokens) + 1):
        row = context.logits(tokens[:end], rows=1)[0]
        drawn = (random_params(rng, row.size, k) for k in (1, 40, 0))
        for params in (SamplingParams(), REPEATING, *drawn):
            assert_agrees_with_llama_cpp(row, tokens[:end], params)


@pytest.mark.weights
def test_sampling_agrees_on_smollm2(smollm2: LlamaModel, context: LlamaContext) -> None:
    check_every_row(smollm2, context)


@pytest.mark.pair
def test_sampling_agrees_with_llama_cpp_on_152k_logits(qwen_draft_path: Path) -> None:
    model = LlamaModel(qwen_draft_path, LoadOptions(n_ctx=512, max_rows=1))
    check_every_row(model, LlamaContext(model))
    model.close()


def test_native_chain_keeps_what_it_is_told_to() -> None:
    """The comparison would be worth nothing if the chain did nothing."""
    row = np.arange(10, dtype=np.float32)
    ids, shares = native_candidates(row, [], SamplingParams(1, top_k=3, top_p=1, min_p=0))
    assert ids.tolist() == [7, 8, 9]
    assert shares == pytest.approx([0.0900, 0.2447, 0.6652], abs=1e-4)
    penalty = SamplingParams(1, top_k=1, top_p=1, min_p=0, presence_penalty=5)
    assert native_candidates(row, [9], penalty)[0].tolist() == [8]
    assert native_candidates(row, [], SamplingParams(0))[0].tolist() == [9]


RIGHT = sampling.candidates
Row = NDArray[np.float32]


def wrong_order(row: Row, history: list[int], params: SamplingParams) -> Candidates:
    """Apply the temperature first, as other programs do."""
    hot = SamplingParams(1.0, params.top_k, params.top_p, params.min_p)
    return RIGHT(row / np.float32(params.temperature), history, hot)


def no_penalties(row: Row, _history: list[int], params: SamplingParams) -> Candidates:
    return RIGHT(row, [], params)


def one_too_many(row: Row, history: list[int], params: SamplingParams) -> Candidates:
    return RIGHT(row, history, replace(params, top_k=params.top_k + 1))


@pytest.mark.parametrize(
    ("wrong", "params"),
    [
        (wrong_order, SamplingParams(1.5, 40, 0.8, 0.05)),
        (no_penalties, SamplingParams(1.0, 40, 1.0, 0.0, repeat_penalty=1.3)),
        (one_too_many, SamplingParams(1.0, 40, 1.0, 0.0)),
    ],
)
def test_disagreement_is_noticed(
    wrong: object, params: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.llama.native_samplers.candidates", wrong)
    rng = np.random.default_rng(2)
    row = real_row(rng, 5_000)
    while native_candidates(row, [], params)[0].size < 10:
        row = real_row(rng, 5_000)
    with pytest.raises(AssertionError):
        assert_agrees_with_llama_cpp(row, random_history(rng, row), params)
