"""`choose` draws from exactly its candidates' law, and a chooser as a plain reference does.

That draws are independent follows from the noise: `test_noise`. The reference sorts the whole row and has noise for all of it. All draws are fixed; see `law` for the false-alarm rate of
a check, one in a thousand.
"""

import os
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.decoding.choose import Chooser, choose
from localspec.decoding.noise import Noise, _mix
from localspec.decoding.sampling import Candidates, candidates, penalised
from localspec.options import SamplingParams
from tests.decoding.law import follows
from tests.decoding.rows import shaped_row
from tests.decoding.worlds import SomeResidues
from tests.examples import LONG, examples

# More make a sharper test.
N_DRAWS = int(os.environ.get("LOCALSPEC_DRAWS", "5000" if LONG else "2400"))
WEIGHTS = np.array([0.4, 0.25, 0.2, 0.1, 0.05])
IDS = (0, 1, 2, 151_935, 262_143)

Draw = Callable[[int], int]


def weighted(ids: Sequence[int], weights: NDArray[np.float64], shift: float = 0.0) -> Candidates:
    """Return candidates; their log weights need not be normalised, hence `shift`."""
    return Candidates(np.array(ids, dtype=np.int64), np.log(weights) + shift)


KEPT = weighted(IDS, WEIGHTS)


def counted(draw: Draw, ids: Sequence[int] = IDS, n_draws: int = N_DRAWS) -> NDArray[np.int64]:
    index = {token: i for i, token in enumerate(ids)}
    return np.bincount([index[draw(i)] for i in range(n_draws)], minlength=len(ids))


def at_positions(seed: int, start: int = 0, kept: Candidates = KEPT) -> Draw:
    noise = Noise(seed)
    return lambda i: choose(kept, noise, start + i)


SHIFTED = weighted(IDS, WEIGHTS, shift=-7.5)
OVER_POSITIONS = [
    pytest.param(at_positions(seed, start), id=f"seed {seed} from {start}")
    for seed, start in (
        (0, 0),
        (1, 0),
        (12345, 100_000),
        (-1, 0),
        (2**64 - 1, 100_000),
        (10**30, 0),
    )
]
OVER_SEEDS = [
    pytest.param(lambda seed, at=at: choose(SHIFTED, Noise(seed), at), id=f"position {at}")
    for at in (0, 1, 511, 100_000)
]
IN_STEP = [
    pytest.param(lambda i: choose(KEPT, Noise(i), i), id="in step"),
    pytest.param(lambda i: choose(KEPT, Noise(-i), i), id="against each other"),
]


@pytest.mark.long
@pytest.mark.parametrize("draw", [*OVER_POSITIONS, *OVER_SEEDS, *IN_STEP])
def test_choices_follow_the_weights(draw: Draw) -> None:
    assert follows(counted(draw), WEIGHTS)


@pytest.mark.long
@pytest.mark.parametrize("start", [0, 1000, 151_000, 262_143 - 39])
def test_choices_follow_the_weights_whatever_the_ids_are_and_however_many(start: int) -> None:
    for weights in (WEIGHTS, 1 / np.arange(1.0, 41.0)):
        law, ids = weights / weights.sum(), range(start, start + weights.size)
        assert follows(counted(at_positions(4, kept=weighted(ids, law)), ids), law)


@pytest.mark.slow
def test_law_check_catches_a_wrong_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Normal noise, and Gumbel noise that is a tenth too small."""
    gumbel, draw = Noise.gumbel, at_positions(0)

    def normal(self: Noise, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.random.default_rng(position).normal(0, np.pi / np.sqrt(6), ids.size)

    for wrong in (normal, lambda *args: 0.9 * gumbel(*args)):
        monkeypatch.setattr(Noise, "gumbel", wrong)
        assert not follows(counted(draw, n_draws=20_000), WEIGHTS)


@pytest.mark.long
def test_choices_from_a_row_follow_what_sampling_kept_of_it() -> None:
    row = np.array([2.0, 1.5, 1.5, 0.0, -1.0, -np.inf, 1.0, 3.0], dtype=np.float32)
    params = SamplingParams(temperature=0.7, top_k=6, top_p=0.97, min_p=0.01, repeat_penalty=1.3)
    kept = candidates(row, [7, 7, 3], params)
    assert kept.ids.size > 3
    drawn = counted(at_positions(21, kept=kept), kept.ids.tolist())
    assert follows(drawn, kept.probabilities())


def test_single_candidate_is_chosen_without_noise_and_one_of_no_weight_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = Candidates(np.array([3, 4, 5]), np.array([-np.inf, 0.0, -np.inf]))
    assert {choose(kept, Noise(seed), 0) for seed in range(200)} == {4}
    monkeypatch.delattr(Noise, "gumbel")
    assert choose(weighted([17], np.ones(1)), Noise(0), 0) == 17


# The plain reference.

Choice = tuple[int, float, float, tuple[int, ...]]
"""Token, how sure it is, by how much it leads, and the next two."""
KINDS = ("normal", "ties", "ascending", "constant", "holes", "flat")
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
        token = int(kept[0])
        by_logit = best_first(np.where(allowed, row, -np.inf).astype(np.float64))
        others = [int(each) for each in by_logit if each != token and row[each] > -np.inf]
        others = [each for each in others if allowed[each]][:2]
        gap = float(row[token]) - float(row[others[0]]) if others else 1e6
        return token, 1.0, gap, tuple(others)
    log_weights = (scores[kept] - best) / max(params.temperature, 1e-200)
    perturbed = log_weights + noise[kept]
    ranks = best_first(perturbed)[:3]
    weights = np.exp(log_weights)
    token, *rest = kept[ranks].tolist()
    gap = min(1e6, float(perturbed[ranks[0]] - perturbed[ranks[1]]))
    return token, float(weights[ranks[0]] / weights.sum()), gap, tuple(rest)


def choice(chooser: Chooser, row: NDArray[np.float32], prefix: list[int]) -> Choice:
    """As a draft model's row is chosen from; the target's choice is the same."""
    before = row.copy()
    proposed = chooser.propose(row, prefix)
    assert chooser.choose(row, prefix) == proposed[0]
    assert np.array_equal(row, before), "the row was changed"
    return proposed


TIES = SamplingParams(1e-20, 0, 1.0, 0.0, logit_bias=((0, 4.0),))


@given(
    seed=st.integers(0, 10_000),
    size=st.one_of(st.integers(4, 300), st.integers(1000, 5000)),
    kind=st.sampled_from(KINDS),
    params=params,
    prefix=st.lists(st.integers(0, 999), max_size=8),
)
@example(7, 2000, "constant", TIES, [])
@example(7, 2000, "constant", SamplingParams(1e-300, 0, 1.0, 0.0, logit_bias=((0, 4.0),)), [])
@examples(1500)
def test_choice_is_that_of_the_plain_reference(
    seed: int, size: int, kind: str, params: SamplingParams, prefix: list[int]
) -> None:
    row = row_like(seed, size, kind)
    row[seed % size] = 1.0  # something may follow
    everything = np.ones(size, dtype=np.bool_)
    expected = plain_choice(row, prefix, params, plain_noise(seed, len(prefix), size), everything)
    assert choice(Chooser(params, Noise(seed)), row, prefix) == expected


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
    """What is forbidden takes no place among the top k and no share of the top p."""
    row, constraint = row_like(seed, size, kind), SomeResidues(seed % 7, last=size - 1)
    allowed = constraint.allows(prefix, np.arange(size))
    expected = plain_choice(row, prefix, params, plain_noise(seed, len(prefix), size), allowed)
    token, *_, others = choice(Chooser(params, Noise(seed), constraint), row, prefix)
    assert token == expected[0]
    assert allowed[list(others)].all()


@pytest.mark.parametrize("size", [32_000, 151_936, 262_144])
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
        assert choice(Chooser(one, Noise(5)), row, [1, 2, 3]) == expected


def test_an_id_that_alone_may_follow_leads_by_more_than_any_other() -> None:
    only = Chooser(SamplingParams(temperature=0), Noise(0)).propose(np.zeros(1, np.float32), [])
    assert (only[0], only[3]) == (0, ())
    assert 1e3 < only[2] < np.inf
