"""llama.cpp's own sampler chain over one row of logits, and the comparison with ours."""

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import llama_cpp.llama_cpp as native
import numpy as np
from numpy.typing import NDArray

from localspec.decoding.sampling import candidates, penalised
from localspec.options import SamplingParams

_TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


def native_candidates(
    row: NDArray[np.float32], history: Sequence[int], params: SamplingParams
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
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


def assert_agrees_with_llama_cpp(
    row: NDArray[np.float32],
    history: Sequence[int],
    params: SamplingParams,
    tolerance: float = 1e-5,
) -> None:
    """Assert that our sampling keeps the ids that llama.cpp's does, equally likely within `tolerance`.

    Tolerated are tokens at a boundary that float32 cannot place: the cumulative probability within `tolerance` of top-p (or of
    llama.cpp's running float32 sum over n tokens, n / 2^24), the logit within its rounding of min-p's, or equal logits.
    """
    ours = candidates(row, history, params)
    finite = np.isfinite(ours.log_weights)
    our_ids, our_shares = ours.ids[finite], ours.probabilities()[finite]
    ids, shares = native_candidates(row, history, params)
    odd = np.setxor1d(our_ids, ids)
    if odd.size:
        logits = penalised(row, history, params).astype(np.float64)
        misplaced = np.setdiff1d(odd, _boundary_ids(logits, params, tolerance))
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
    assert difference.max() <= tolerance, f"probabilities differ by {difference.max()}"


def _boundary_ids(
    logits: NDArray[np.float64], params: SamplingParams, tolerance: float
) -> NDArray[np.int64]:
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
        slack = max(tolerance, n / (1 << 24))
        weights = np.exp(ranked[:n] - ranked[0])
        after = np.cumsum(weights) / weights.sum()
        reached = np.flatnonzero(after >= params.top_p - slack)[0]
        passed = np.flatnonzero(after - weights / weights.sum() <= params.top_p + slack)[-1]
        boundary |= (ranked <= ranked[reached]) & (ranked >= ranked[passed])
    return np.asarray(order[boundary])
