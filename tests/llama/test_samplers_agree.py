"""Our sampling keeps what llama.cpp's own sampler chain keeps, on made rows of real shape and size, and on real ones."""

import ctypes
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as native
import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.decoding import sampling
from localspec.decoding.sampling import candidates, penalised
from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.options import LoadOptions, SamplingParams

pytestmark = pytest.mark.slow

Row = NDArray[np.float32]
N_VOCABS = (1_000, 32_000, 49_152, 151_936)
N_ROWS, TOLERANCE = 30, 1e-5


def real_row(rng: np.random.Generator, n_vocab: int) -> Row:
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


def random_history(rng: np.random.Generator, row: Row) -> list[int]:
    """Return a history that is rich in likely tokens, and repeats itself."""
    return list(map(int, rng.choice(np.argsort(-row)[:50], size=rng.integers(1, 200))))


@pytest.mark.parametrize("n_vocab", N_VOCABS)
@pytest.mark.parametrize("top_k", [1, 2, 40, 100, 200, 0])
def test_sampling_agrees_with_llama_cpp(n_vocab: int, top_k: int) -> None:
    rng = np.random.default_rng([n_vocab, top_k])
    for at in range(N_ROWS):
        row = real_row(rng, n_vocab)
        params = random_params(rng, n_vocab, top_k) if at else SamplingParams()
        check_agrees(row, random_history(rng, row), params)


@pytest.mark.parametrize("top_k", [0, 40, 5000])
def test_sampling_with_ties_agrees_with_llama_cpp(top_k: int) -> None:
    rng = np.random.default_rng(5)
    for _ in range(N_ROWS):
        row = np.round(real_row(rng, 2_000))
        params = random_params(rng, 2_000, top_k)
        check_agrees(row, random_history(rng, row), params)


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
            check_agrees(row, tokens[:end], params)


@pytest.mark.weights
def test_sampling_agrees_on_smollm2(smollm2: LlamaModel, context: LlamaContext) -> None:
    check_every_row(smollm2, context)


@pytest.mark.pair
def test_sampling_agrees_with_llama_cpp_on_152k_logits(qwen_draft_path: Path) -> None:
    model = LlamaModel(qwen_draft_path, LoadOptions(n_ctx=512, max_rows=1))
    check_every_row(model, LlamaContext(model))
    model.close()


RIGHT = sampling.candidates


def temperature_first(row: Row, history: Sequence[int], its: SamplingParams) -> Any:
    return RIGHT(row / np.float32(its.temperature), history, replace(its, temperature=1.0))


WRONG: dict[str, tuple[Any, SamplingParams]] = {
    "order": (temperature_first, SamplingParams(1.5, 40, 0.8, 0.05)),
    "penalties": (lambda row, _, its: RIGHT(row, [], its), SamplingParams(1.0, 40, 1.0, 0.0, 1.3)),
    "count": (
        lambda row, history, its: RIGHT(row, history, replace(its, top_k=its.top_k + 1)),
        SamplingParams(1.0, 40, 1.0, 0.0),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_disagreement_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, params = WRONG[name]
    monkeypatch.setattr("tests.llama.test_samplers_agree.candidates", wrong)
    rng = np.random.default_rng(2)
    row = real_row(rng, 5_000)
    while native_candidates(row, [], params)[0].size < 10:
        row = real_row(rng, 5_000)
    with pytest.raises(AssertionError):
        check_agrees(row, random_history(rng, row), params)


_TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


def native_candidates(row: Row, history: Sequence[int], params: SamplingParams) -> tuple[Any, Any]:
    """Return the ids that llama.cpp's chain keeps, ascending, and their probabilities.

    The chain is that of its `common_sampler`: logit bias, penalties, top-k, top-p, min-p,
    temperature. The softmax over what is left is ours, in float64.
    """
    cells = np.zeros(row.size, dtype=_TOKEN_DATA)
    cells["id"] = np.arange(row.size)
    cells["logit"] = row
    array: Any = native.llama_token_data_array()
    array.data = cells.ctypes.data_as(native.llama_token_data_p)
    array.size, array.selected, array.sorted = row.size, -1, False
    chain = _chain(row.size, params)
    try:
        for token in history:
            native.llama_sampler_accept(chain, token)
        native.llama_sampler_apply(chain, ctypes.byref(array))
    finally:
        native.llama_sampler_free(chain)
    kept = np.sort(cells[: array.size], order="id")
    kept = kept[kept["logit"] > -np.inf]
    scores = kept["logit"].astype(np.float64)
    weights = np.exp(scores - scores.max())
    return kept["id"].astype(np.int64), weights / weights.sum()


def _chain(n_vocab: int, params: SamplingParams) -> Any:
    biases = (native.llama_logit_bias * len(params.logit_bias))(
        *(native.llama_logit_bias(token, bias) for token, bias in params.logit_bias)
    )
    penalties = params.repeat_penalty, params.frequency_penalty, params.presence_penalty
    samplers = (
        native.llama_sampler_init_logit_bias(n_vocab, len(biases), biases),
        native.llama_sampler_init_penalties(n_vocab, params.penalty_last_n, *penalties),
        native.llama_sampler_init_top_k(params.top_k),
        native.llama_sampler_init_top_p(params.top_p, 1),
        native.llama_sampler_init_min_p(params.min_p, 1),
        native.llama_sampler_init_temp(params.temperature),
    )
    chain = native.llama_sampler_chain_init(native.llama_sampler_chain_default_params())
    for sampler in samplers:
        native.llama_sampler_chain_add(chain, sampler)
    return chain


def check_agrees(row: Row, history: Sequence[int], params: SamplingParams) -> None:
    """Assert that our sampling keeps the ids that llama.cpp's does, equally likely within the tolerance.

    Tolerated are tokens at a boundary that float32 cannot place: the cumulative probability within it of top-p (or of
    llama.cpp's running float32 sum over n tokens, n / 2^24), the logit within its rounding of min-p's, or equal logits.
    """
    ours = candidates(row, history, params)
    finite = np.isfinite(ours.log_weights)
    our_ids, our_shares = ours.ids[finite], ours.probabilities()[finite]
    ids, shares = native_candidates(row, history, params)
    odd = np.setxor1d(our_ids, ids)
    if odd.size:
        logits = penalised(row, history, params).astype(np.float64)
        misplaced = np.setdiff1d(odd, _boundary_ids(logits, params))
        assert misplaced.size == 0, f"{misplaced} are kept by only one of both, with {params}"
    if not np.isin(our_ids, ids).any():
        assert our_ids.size == ids.size, "of equal logits, another number is kept"
        return
    theirs = dict(zip(ids.tolist(), shares.tolist(), strict=True))
    if odd.size:
        # Without the boundary tokens both are renormalised over what they share.
        common = np.isin(our_ids, ids)
        our_ids, our_shares = our_ids[common], our_shares[common] / our_shares[common].sum()
        total = math.fsum(theirs[token] for token in our_ids.tolist())
        theirs = {token: theirs[token] / total for token in our_ids.tolist()}
    difference = np.abs(our_shares - np.array([theirs[token] for token in our_ids.tolist()]))
    assert difference.max() <= TOLERANCE, f"probabilities differ by {difference.max()}"


def _boundary_ids(logits: NDArray[np.float64], params: SamplingParams) -> NDArray[np.int64]:
    """Return the ids that may be kept or not."""
    order = np.lexsort((np.arange(logits.size), -logits))
    ranked = logits[order]
    if params.temperature == 0:
        return np.asarray(order[ranked == ranked[0]])
    boundary = np.zeros(order.size, dtype=bool)
    n = order.size
    if 0 < params.top_k < n:
        n = params.top_k
        if ranked[n - 1] == ranked[n]:
            boundary |= ranked == ranked[n]
    if params.min_p > 0:
        least = ranked[0] + math.log(params.min_p)
        boundary |= abs(ranked - least) <= 1e-6 * max(1.0, abs(least))
    if params.top_p < 1:
        slack = max(TOLERANCE, n / (1 << 24))
        weights = np.exp(ranked[:n] - ranked[0])
        after = np.cumsum(weights) / weights.sum()
        reached = np.flatnonzero(after >= params.top_p - slack)[0]
        passed = np.flatnonzero(after - weights / weights.sum() <= params.top_p + slack)[-1]
        boundary |= (ranked <= ranked[reached]) & (ranked >= ranked[passed])
    return np.asarray(order[boundary])
