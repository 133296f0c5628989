"""Every choice is, to the bit, that of a plain reference that sorts the whole row and has noise for all of it."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.decoding.choose import Chooser, choose_with_gap
from localspec.decoding.noise import Noise, _mix
from localspec.decoding.sampling import penalised
from localspec.errors import PassFailed
from localspec.options import SamplingParams
from tests.decoding.rows import shaped_row
from tests.decoding.worlds import SomeResidues
from tests.examples import examples

Choice = tuple[int, float, tuple[int, ...], float]
"""Token, gap, the next two, and how sure it is."""

KINDS = ("normal", "ties", "ascending", "constant", "holes", "flat")
WIDE = (32_000, 151_936, 262_144)
params = st.builds(
    SamplingParams,
    temperature=st.sampled_from((0.0, 0.0, 1e-308, 1e-300, 1e-11, 0.25, 0.8, 1.0, 3.0)),
    top_k=st.sampled_from((0, 0, 1, 2, 3, 40, 200)),
    top_p=st.sampled_from((1.0, 1.0, 0.95, 0.3)),
    min_p=st.sampled_from((0.0, 0.05, 0.5, 1.0)),
    repeat_penalty=st.sampled_from((1.0, 1.0, 1.3)),
    logit_bias=st.sampled_from(((), ((0, 4.0),))),
)


def row_like(seed: int, size: int, kind: str) -> NDArray[np.float32]:
    if kind == "flat":
        return shaped_row(seed, size, "normal") / np.float32(30)
    return shaped_row(seed, size, kind)


def plain_noise(seed: int, position: int, size: int) -> NDArray[np.float64]:
    """The words are made in Python's own integers, for every id."""
    gamma, wrap = 0x9E3779B97F4A7C15, 1 << 64
    key = _mix((_mix((seed + gamma) % wrap) + position * gamma) % wrap)
    words = [_mix((token * gamma + key) % wrap) >> 12 for token in range(size)]
    return np.asarray(-np.log(-np.log((np.array(words, dtype=np.float64) + 0.5) * 2.0**-52)))


def best_first(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.lexsort((np.arange(scores.size), -scores))


def plain_choice(
    row: NDArray[np.float32],
    prefix: list[int],
    params: SamplingParams,
    noise: NDArray[np.float64],
    allowed: NDArray[np.bool_],
) -> Choice:
    scores = penalised(row, prefix, params).astype(np.float64)
    scores[~allowed] = -np.inf
    order = best_first(scores)
    best = scores[order[0]]
    if params.temperature == 0:
        order = order[:1]
    elif params.top_k:
        order = order[: params.top_k]
    if not allowed.all():  # what may not follow is no candidate, not even an unlikely one
        order = order[scores[order] > -np.inf]
    if params.top_p < 1:
        weights = np.exp(scores[order] - best)
        reached = np.cumsum(weights) >= params.top_p * weights.sum()
        order = order[: reached.argmax() + 1]
    if params.min_p > 0:
        order = order[scores[order] >= best + np.log(params.min_p)]
    kept = np.sort(order)
    if kept.size == 1:
        token, sure = int(kept[0]), 1.0
        by_logit = best_first(np.where(allowed, row, -np.inf).astype(np.float64))
        others = [int(each) for each in by_logit if each != token and row[each] > -np.inf]
        others = [each for each in others if allowed[each]][:2]
        gap = float(row[token]) - float(row[others[0]]) if others else 1e6
        return token, gap, tuple(others), sure
    with np.errstate(over="ignore"):
        log_weights = (scores[kept] - best) / params.temperature
    perturbed = log_weights + noise[kept]
    ranks = best_first(perturbed)[:3]
    weights = np.exp(log_weights)
    token, *rest = kept[ranks].tolist()
    gap = min(1e6, float(perturbed[ranks[0]] - perturbed[ranks[1]]))
    return token, gap, tuple(rest), float(weights[ranks[0]] / weights.sum())


def both_choices(chooser: Chooser, row: NDArray[np.float32], prefix: list[int]) -> Choice:
    """As a draft model's row is chosen from; the target's choice is the same."""
    kept = chooser.candidates(row, prefix)
    rivals = chooser.rivals(kept, row, prefix)
    token, gap, others = choose_with_gap(kept, rivals, chooser.noise, len(prefix))
    assert chooser.choose(row, prefix) == token
    return token, gap, others, kept.probability(token)


@given(
    seed=st.integers(0, 10_000),
    size=st.one_of(st.integers(4, 300), st.integers(1000, 5000)),
    kind=st.sampled_from(KINDS),
    params=params,
    prefix=st.lists(st.integers(0, 999), max_size=8),
)
@example(7, 2000, "constant", SamplingParams(1e-20, 0, 1.0, 0.0, logit_bias=((0, 4.0),)), [])
@example(7, 2000, "constant", SamplingParams(1e-300, 0, 1.0, 0.0, logit_bias=((0, 4.0),)), [])
@examples(1500)
def test_choice_is_that_of_the_plain_reference(
    seed: int, size: int, kind: str, params: SamplingParams, prefix: list[int]
) -> None:
    row = row_like(seed, size, kind)
    row[seed % size] = 1.0  # something may follow
    before, allowed = row.copy(), np.ones(size, dtype=np.bool_)
    expected = plain_choice(row, prefix, params, plain_noise(seed, len(prefix), size), allowed)
    assert both_choices(Chooser(params, Noise(seed)), row, prefix) == expected
    assert np.array_equal(row, before), "the row was changed"


@given(
    seed=st.integers(0, 10_000),
    size=st.integers(300, 2000),
    kind=st.sampled_from(("normal", "ties", "constant")),
    params=params,
    prefix=st.lists(st.integers(0, 299), max_size=8),
)
@examples(300)
def test_choice_under_a_constraint_is_that_of_the_plain_reference(
    seed: int, size: int, kind: str, params: SamplingParams, prefix: list[int]
) -> None:
    row, constraint = row_like(seed, size, kind), SomeResidues(seed % 7, last=size - 1)
    noise, allowed = Noise(seed), constraint.allows(prefix, np.arange(size))
    expected = plain_choice(row, prefix, params, plain_noise(seed, len(prefix), size), allowed)
    assert both_choices(Chooser(params, noise, constraint), row, prefix)[0] == expected[0]


@pytest.mark.parametrize("size", WIDE)
@pytest.mark.parametrize("kind", KINDS)
def test_choice_from_a_row_of_a_real_vocabulary_is_that_of_the_plain_reference(
    size: int, kind: str
) -> None:
    row, everything = row_like(size, size, kind), np.ones(size, dtype=np.bool_)
    numbers = Noise(5).gumbel(3, np.arange(size))
    for one in (
        SamplingParams(temperature=0),
        SamplingParams(),
        SamplingParams(top_p=1, min_p=0),
        SamplingParams(top_k=0, top_p=1, min_p=0.02),
        SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0),
    ):
        expected = plain_choice(row, [1, 2, 3], one, numbers, everything)
        assert both_choices(Chooser(one, Noise(5)), row, [1, 2, 3]) == expected


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("places", [[0], [4999], [17, 18, 4000], range(100, 300)])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p"), [(40, 0.95, 0.05), (0, 1, 0.1), (0, 1, 0), (1, 1, 0)]
)
def test_row_that_holds_what_is_no_logit_is_refused(
    bad: float, places: list[int], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    row = shaped_row(1, 5000, "normal")
    row[list(places)] = bad
    chooser = Chooser(SamplingParams(temperature, top_k, top_p, min_p), Noise(0))
    with pytest.raises(PassFailed, match="no usable logits"):
        chooser.candidates(row, [])
