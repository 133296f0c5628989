"""Our sampling keeps what llama.cpp's own sampler chain keeps, on rows of real shape and size.

The rows are made, so no model is needed; `test_real_logits.py` compares on real ones.
"""

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.decoding import sampling
from localspec.decoding.sampling import Candidates
from localspec.options import SamplingParams
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
    for _ in range(N_ROWS):
        row = real_row(rng, n_vocab)
        params = random_params(rng, n_vocab, top_k)
        assert_agrees_with_llama_cpp(row, random_history(rng, row), params)


@pytest.mark.parametrize("top_k", [0, 40, 5000])
def test_sampling_with_ties_agrees_with_llama_cpp(top_k: int) -> None:
    rng = np.random.default_rng(5)
    for _ in range(N_ROWS):
        row = np.round(real_row(rng, 2_000))
        params = random_params(rng, 2_000, top_k)
        assert_agrees_with_llama_cpp(row, random_history(rng, row), params)


def test_sampling_defaults_agree_with_llama_cpp() -> None:
    rng = np.random.default_rng(1)
    for _ in range(40):
        row = real_row(rng, 49_152)
        assert_agrees_with_llama_cpp(row, random_history(rng, row), SamplingParams())


def test_native_chain_keeps_what_it_is_told_to() -> None:
    """The comparison would be worth nothing if the chain did nothing."""
    row = np.arange(10, dtype=np.float32)
    ids, shares = native_candidates(row, [], SamplingParams(1, top_k=3, top_p=1, min_p=0))
    assert ids.tolist() == [7, 8, 9]
    assert shares == pytest.approx([0.0900, 0.2447, 0.6652], abs=1e-4)
    penalty = SamplingParams(1, top_k=1, top_p=1, min_p=0, presence_penalty=5)
    assert native_candidates(row, [9], penalty)[0].tolist() == [8]
    assert native_candidates(row, [], SamplingParams(0))[0].tolist() == [9]


def wrong_order(row: NDArray[np.float32], history: list[int], params: SamplingParams) -> Candidates:
    """Apply the temperature first, as other programs do."""
    hot = SamplingParams(1.0, params.top_k, params.top_p, params.min_p)
    return RIGHT(row / np.float32(params.temperature), history, hot)


def no_penalties(
    row: NDArray[np.float32], history: list[int], params: SamplingParams
) -> Candidates:
    return RIGHT(row, [], params)


def one_too_many(
    row: NDArray[np.float32], history: list[int], params: SamplingParams
) -> Candidates:
    more = SamplingParams(params.temperature, params.top_k + 1, params.top_p, params.min_p)
    return RIGHT(row, history, more)


RIGHT = sampling.candidates


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
