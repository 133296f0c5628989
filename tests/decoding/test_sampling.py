"""Sampling transforms against slow, plain ones, written from llama.cpp's documented meaning."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.decoding.sampling import Candidates, candidates, penalised
from localspec.errors import PassFailed, UsageError
from localspec.options import FORBIDDEN, SamplingParams
from tests.decoding.rows import row_of, shaped_row
from tests.examples import examples

PLAIN = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0)


def slow_penalties(
    row: Sequence[float], history: Sequence[int], params: SamplingParams
) -> list[float]:
    """Logit bias, then penalties, one id after the other."""
    out = [float(logit) for logit in row]
    for token, bias in params.logit_bias:
        if token < len(out):
            out[token] += bias
    recent = history[max(0, len(history) - params.penalty_last_n) :]
    for token in range(len(out)):
        times = sum(1 for past in recent if past == token)
        if times == 0:
            continue
        if out[token] <= 0:
            out[token] *= params.repeat_penalty
        else:
            out[token] /= params.repeat_penalty
        out[token] -= times * params.frequency_penalty + params.presence_penalty
    return out


def slow_kept(logits: Sequence[float], params: SamplingParams) -> list[list[int]]:
    """Top-k, top-p and min-p; all answers that rounding at the boundary of top-p allows."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    if params.top_k > 0:
        order = order[: params.top_k]
    weights = [math.exp(logits[token] - logits[order[0]]) for token in order]
    total = math.fsum(weights)
    answers = []
    for n in range(1, len(order) + 1):
        before, after = math.fsum(weights[: n - 1]) / total, math.fsum(weights[:n]) / total
        if params.top_p == 1:
            may_end = n == len(order)
        else:
            may_end = before < params.top_p + 1e-12 and after >= params.top_p - 1e-12
        if may_end:
            answers.append(order[:n])
    if params.min_p > 0:
        least = logits[order[0]] + math.log(params.min_p)
        answers = [[token for token in kept if logits[token] >= least] for kept in answers]
    return [sorted(kept) for kept in answers]


logit = st.one_of(
    st.integers(-6, 6).map(float),  # ties
    st.floats(-30, 30, width=32),
    st.just(-math.inf),
)
rows = st.lists(logit, min_size=1, max_size=90).filter(lambda row: max(row) > -math.inf)
bias = st.tuples(st.integers(0, 100), st.floats(-10, 10, width=16))
all_params = st.builds(
    SamplingParams,
    temperature=st.sampled_from((0.0, 0.25, 0.8, 1.0, 2.0)),
    top_k=st.sampled_from((0, 1, 2, 3, 10, 40, 89, 1000)),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 1.0)),
    min_p=st.one_of(st.just(0.0), st.just(1.0), st.floats(0.001, 0.9)),
    repeat_penalty=st.sampled_from((1.0, 1.25, 0.5)),
    presence_penalty=st.sampled_from((0.0, 0.5, -0.25)),
    frequency_penalty=st.sampled_from((0.0, 0.25, -0.5)),
    penalty_last_n=st.sampled_from((0, 1, 5, 64)),
    logit_bias=st.lists(bias, max_size=3).map(tuple),
)


@given(rows, st.lists(st.integers(0, 99), max_size=80), all_params)
@examples(1500)
def test_penalties_and_candidates_are_those_of_the_slow_reference(
    row: list[float], history: list[int], params: SamplingParams
) -> None:
    before = np.array(row, dtype=np.float32)
    after = penalised(before, history, params)
    assert after == pytest.approx(slow_penalties(row, history, params), rel=1e-5, abs=1e-5)
    kept = candidates(before, history, params)
    assert before.tolist() == row, "the row was changed"
    logits = after.astype(float).tolist()
    if params.temperature == 0:
        assert kept.ids.tolist() == [logits.index(max(logits))], "the likeliest and lowest id"
        assert kept.probabilities().tolist() == [1.0]
        return
    assert kept.ids.tolist() in slow_kept(logits, params)
    assert kept.log_weights.dtype == np.float64
    scores = [logits[token] / params.temperature for token in kept.ids]
    weights = [math.exp(score - max(scores)) for score in scores]
    expected = [weight / math.fsum(weights) for weight in weights]
    assert kept.probabilities() == pytest.approx(expected, rel=1e-9, abs=1e-12)


HALF = SamplingParams(temperature=1, top_k=0, top_p=0.5, min_p=0)


@pytest.mark.parametrize(
    ("row", "history", "params", "ids"),
    [
        # Each transform sees what the one before it left, and temperature changes no set.
        ((4, 3, 2, 1, 0), [], SamplingParams(9, 3, 0.9, 0), [0, 1]),  # .665 + .245 = .910
        ((4, 3, 2, 1, 0), [], SamplingParams(9, 0, 0.9, 0), [0, 1, 2]),  # .636 + .234
        ((4, 3, 2, 1, 0), [], SamplingParams(9, 1, 1, 0, logit_bias=((4, 10.0),)), [4]),
        ((4, 3, 2, 1, 0), [0], SamplingParams(9, 1, 1, 0, presence_penalty=2), [1]),
        ((4, 3, 2, 1, 0), [], SamplingParams(100, 0, 1, 0.2), [0, 1]),
        ((0, 0), [], HALF, [0]),  # a top-p that is reached exactly keeps no more
        ((0, 0, 0, 0), [], HALF, [0, 1]),
        ((0, 0, 0, 0, 0), [], HALF, [0, 1, 2]),
    ],
)
def test_order_is_penalties_top_k_top_p_min_p_temperature(
    row: tuple[float, ...], history: list[int], params: SamplingParams, ids: list[int]
) -> None:
    assert candidates(row_of(*row), history, params).ids.tolist() == ids


@pytest.mark.parametrize("height", [-30_000.0, -5000.0, 30_000.0])
def test_logits_and_log_weights_of_any_height_give_the_same_candidates(height: float) -> None:
    row = row_of(3, 2, 1, -4, 2.5)
    low, high = (candidates(each, [], SamplingParams()) for each in (row, row + height))
    assert low.ids.tolist() == high.ids.tolist()
    assert low.probabilities() == pytest.approx(high.probabilities())
    even = Candidates(np.arange(2), np.array([height, height]))
    assert even.probabilities().tolist() == [0.5, 0.5]


def test_defaults_are_those_of_the_command_line() -> None:
    assert SamplingParams() == SamplingParams(0.8, 40, 0.95, 0.05, 1.0, 0.0, 0.0, 64, ())
    assert not SamplingParams().penalises


@pytest.mark.parametrize(
    ("row", "history", "params", "after"),
    [
        ((4, -4, 0, 4), [0, 1, 2], SamplingParams(repeat_penalty=2), [2, -8, 0, 4]),
        (
            (0, 0, 0),
            [1, 2, 2, 2],
            SamplingParams(presence_penalty=1, frequency_penalty=0.5),
            [0, -1.5, -2.5],
        ),
        ((0, 0, 0), [0, 1, 2], SamplingParams(presence_penalty=1, penalty_last_n=2), [0, -1, -1]),
        ((0, 0, 0), [0, 1, 2], SamplingParams(presence_penalty=1, penalty_last_n=0), [0, 0, 0]),
        # Ids beyond the row are left alone.
        (
            (0, 0),
            [1, 2, 7],
            SamplingParams(presence_penalty=1, logit_bias=((2, 5.0), (9, 5.0))),
            [0, -1],
        ),
    ],
)
def test_what_is_penalised(
    row: tuple[float, ...], history: list[int], params: SamplingParams, after: list[float]
) -> None:
    assert penalised(row_of(*row), history, params).tolist() == after


def test_row_without_transforms_is_not_copied() -> None:
    row = row_of(1, 2)
    assert penalised(row, [0, 1], SamplingParams()) is row


def test_what_is_banned_is_left_out_and_next_to_no_temperature_is_greedy() -> None:
    for bias in (-math.inf, FORBIDDEN):
        banned = SamplingParams(temperature=1, logit_bias=((1, bias),))
        left = candidates(row_of(0, 500, 0), [], banned)
        assert left.probabilities()[[0, -1]].tolist() == [0.5, 0.5]
    kept = candidates(row_of(1, 2, 2, 0), [], SamplingParams(temperature=1e-310))
    assert kept.probabilities()[np.isin(kept.ids, [1, 2])].tolist() == [0.5, 0.5]


SETTINGS = [(40, 0.95, 0.05), (0, 1, 0.1), (0, 1, 0), (1, 1, 0)]


@pytest.mark.parametrize("size", [3, 64, 4160, 151_936])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(("top_k", "top_p", "min_p"), SETTINGS)
def test_row_that_holds_what_is_no_logit_fails_the_pass(
    size: int, temperature: float, bad: float, top_k: int, top_p: float, min_p: float
) -> None:
    params = SamplingParams(temperature, top_k, top_p, min_p)
    for places in ([0], [1], [size // 2], [size - 1], [0, size - 2], range(size // 3, size // 2)):
        row = shaped_row(0, size, "normal")
        row[list(places) or [0]] = bad
        with pytest.raises(PassFailed, match="no usable logits"):
            candidates(row, [], params)
    with pytest.raises(PassFailed):
        candidates(np.full(size, -np.inf, dtype=np.float32), [], params)


NAN, INF = math.nan, math.inf
REFUSED = {
    "temperature": (-1.0, NAN, INF),
    "top_k": (-1,),
    "top_p": (0.0, -0.5, 1.01, NAN),
    "min_p": (-0.1, 1.5, NAN),
    "repeat_penalty": (0.0, -1.0, INF, NAN),
    "presence_penalty": (NAN, INF),
    "frequency_penalty": (-INF,),
    "penalty_last_n": (-1,),
}


@pytest.mark.parametrize("name", REFUSED)
def test_value_out_of_range_is_a_usage_error_of_one_line(name: str) -> None:
    for value in REFUSED[name]:
        with pytest.raises(UsageError) as caught:
            SamplingParams(**{name: value})  # type: ignore[arg-type]
        message = str(caught.value)
        assert name in message
        assert str(value) in message
        assert "\n" not in message


@pytest.mark.parametrize("entry", [(-1, 1.0), (0, NAN), (0, INF)])
def test_impossible_logit_bias_is_a_usage_error_of_one_line(entry: tuple[int, float]) -> None:
    with pytest.raises(UsageError, match="logit_bias") as caught:
        SamplingParams(logit_bias=(entry,))
    assert "\n" not in str(caught.value)


def test_values_at_the_edge_are_allowed() -> None:
    SamplingParams(0.0, 0, 1.0, 0.0, penalty_last_n=0, logit_bias=((0, -INF),))
    SamplingParams(min_p=1.0)


def test_candidates_do_not_depend_on_what_cannot_be_chosen() -> None:
    row = shaped_row(5, 151_936, "normal")
    lower = row.copy()
    lower[row < np.sort(row)[-40]] -= 3
    one, other = (candidates(each, [], SamplingParams()) for each in (row, lower))
    assert np.array_equal(one.ids, other.ids)
    assert np.array_equal(one.log_weights, other.log_weights)


def test_plain_params_leave_the_distribution_as_it_is() -> None:
    row = shaped_row(6, 500, "normal")
    exact = np.exp(row.astype(np.float64))
    assert candidates(row, [], PLAIN).probabilities() == pytest.approx(exact / exact.sum())
