"""From a row of logits to a token: what may follow, what sampling leaves of it, and which token that is.

Two references are slow and plain: one penalises one id after the other, the other sorts the whole row and has noise
for all of it. That draws are independent follows from the noise: `test_noise`. All draws are fixed; see `law` for the false-alarm rate
of a check, one in a thousand.
"""

import math
import os
from collections.abc import Callable, Sequence
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.decoding import constraint as constraint_module
from localspec.decoding.choose import Chooser, choose
from localspec.decoding.constraint import AnswerConstraint
from localspec.decoding.noise import Noise, _mix
from localspec.decoding.sampling import Candidates, candidates, penalised
from localspec.decoding.top import allowed_ids, ranked_ids, top_ids
from localspec.errors import PassFailed
from localspec.options import FORBIDDEN, SamplingParams
from tests.decoding.law import follows
from tests.examples import LONG, examples
from tests.support.checks import refuses
from tests.toy import Brackets

Row = NDArray[np.float32]
KINDS = ("normal", "ties", "ascending", "constant", "holes", "flat")


def shaped_row(seed: int, size: int, kind: str) -> Row:
    """Return a row of logits of a shape that makes trouble."""
    row = np.random.default_rng(seed).normal(0, 3, size).astype(np.float32)
    if kind == "ties":
        row = np.round(row)
    elif kind == "ascending":
        row = np.sort(row)
    elif kind == "constant":
        row[:] = 1
    elif kind == "holes":
        row[np.random.default_rng(seed + 1).random(size) < 0.97] = -np.inf
    return row / np.float32(30) if kind == "flat" else row


def best_first(row: NDArray[np.floating]) -> NDArray[np.int64]:
    return np.argsort(-row, kind="stable")


# The highest logits.


@given(
    st.integers(0, 10_000),
    st.one_of(st.integers(1, 300), st.integers(300, 5_000)),
    st.integers(1, 200),
    st.sampled_from(KINDS),
)
@examples(400)
def test_top_ids_are_those_of_a_full_sort(seed: int, size: int, top_k: int, kind: str) -> None:
    row = shaped_row(seed, size, kind)
    order = best_first(row)[:top_k]
    assert np.array_equal(ranked_ids(row, top_k), order)
    assert np.array_equal(top_ids(row, top_k), np.sort(order))


@pytest.mark.parametrize("size", [49_152, 262_144])
@pytest.mark.parametrize("kind", [*KINDS, 0, 1, 39, 40, 41, 500])
def test_top_ids_keep_the_lowest_among_equals(size: int, kind: str | int) -> None:
    if isinstance(kind, int):  # so many finite ones
        row = np.full(size, -np.inf, dtype=np.float32)
        row[7 : 7 + 16 * kind : 16] = np.arange(kind) % 50
    else:
        row = shaped_row(size, size, kind)
    order = best_first(row)
    for top_k in (1, 40, 200, 1000, size // 64, size - 1):
        assert np.array_equal(top_ids(row, top_k), np.sort(order[:top_k]))
    assert top_ids(row, 0).size == size


PARAMS = (
    SamplingParams(),
    SamplingParams(temperature=0),
    SamplingParams(temperature=0, repeat_penalty=1.5),
    SamplingParams(top_k=0),
    SamplingParams(top_k=1),
    SamplingParams(top_k=400, top_p=1, min_p=0),
    SamplingParams(
        top_k=3, repeat_penalty=2, presence_penalty=1, logit_bias=((0, 9), (2, -np.inf))
    ),
)


class Counting:
    """A constraint over ids alone, and what it was asked about."""

    def __init__(self, seed: int, size: int, share: float) -> None:
        self.allowed = np.random.default_rng(seed).random(size) < share
        self.allowed[seed % size] = True
        self.ids: list[int] = []

    def __call__(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        self.ids += ids.tolist()
        return np.asarray(self.allowed[ids])


@given(
    st.integers(0, 10_000),
    st.sampled_from((1, 5, 300, 4_000, 49_152)),
    st.sampled_from(KINDS),
    st.sampled_from((0.0, 0.001, 0.05, 0.5, 1.0)),
    st.sampled_from(PARAMS),
    st.lists(st.integers(0, 4), max_size=9),
)
@examples(500)
def test_lazily_found_candidates_are_those_of_a_row_masked_first(
    seed: int, size: int, kind: str, share: float, params: SamplingParams, history: list[int]
) -> None:
    row, allows = shaped_row(seed, size, kind), Counting(seed, size, share)
    history = [token % size for token in history]
    masked = np.where(allows.allowed, row, np.float32(-np.inf))
    try:
        expected = candidates(masked, history, params)
    except PassFailed:
        with pytest.raises(PassFailed):
            candidates(row, history, params, allows)
        return
    kept = candidates(row, history, params, allows)
    # Ids without a logit are kept of the masked row, with no weight; here they are left out.
    weighty = np.isfinite(expected.log_weights) & (masked[expected.ids] > -np.inf)
    assert np.array_equal(kept.ids, expected.ids[weighty])
    assert np.array_equal(kept.log_weights, expected.log_weights[weighty])
    allowed_ids(row, params.top_k, allows)
    assert np.isfinite(row[allows.ids]).all(), "asked about an id without a logit"


def test_few_ids_are_asked_about_where_the_best_may_follow() -> None:
    row, allows = shaped_row(3, 151_936, "normal"), Counting(3, 151_936, 0.9)
    allowed_ids(row, 40, allows)
    assert len(allows.ids) == 80
    allows.ids.clear()
    allowed_ids(row, 1, allows)
    assert len(allows.ids) <= 65
    falling, last = -np.arange(151_936, dtype=np.float32), Counting(151_935, 151_936, 0.0)
    for most in (0, 1, 40):
        assert allowed_ids(falling, most, last).tolist() == [151_935]

    for params in PARAMS:
        with pytest.raises(PassFailed, match="grammar"):
            candidates(row, [], params, lambda ids: np.zeros(ids.size, dtype=np.bool_))


# What sampling leaves of a row.


def slow_penalties(
    row: Sequence[float], history: Sequence[int], params: SamplingParams
) -> list[float]:
    """Logit bias, then penalties, one id after the other."""
    out = [float(logit) for logit in row]
    for token, bias in params.logit_bias:
        if token < len(out):
            out[token] += bias
    recent = history[max(0, len(history) - params.penalty_last_n) :]
    for token in {each for each in recent if 0 <= each < len(out)}:
        times = recent.count(token)
        factor = params.repeat_penalty if out[token] <= 0 else 1 / params.repeat_penalty
        out[token] = out[token] * factor - times * params.frequency_penalty
        out[token] -= params.presence_penalty
    return out


@given(
    st.lists(st.integers(-6, 6) | st.floats(-30, 30, width=32), min_size=1, max_size=90),
    st.lists(st.integers(-9, 99), max_size=80),
    st.builds(
        SamplingParams,
        repeat_penalty=st.sampled_from((1.0, 1.25, 0.5)),
        presence_penalty=st.sampled_from((0.0, 0.5, -0.25)),
        frequency_penalty=st.sampled_from((0.0, 0.25, -0.5)),
        penalty_last_n=st.sampled_from((0, 1, 5, 64)),
        logit_bias=st.lists(
            st.tuples(st.integers(0, 100), st.floats(-10, 10, width=16)), max_size=3
        ).map(tuple),
    ),
)
@examples(1000)
def test_penalties_are_those_of_the_slow_reference(
    row: list[float], history: list[int], params: SamplingParams
) -> None:
    before = np.array(row, dtype=np.float32)
    slow = slow_penalties(row, history, params)
    assert penalised(before, history, params) == pytest.approx(slow, rel=1e-5, abs=1e-5)
    assert before.tolist() == row, "the row was changed"


def test_a_top_p_that_is_reached_exactly_keeps_no_more_and_height_does_not_matter() -> None:
    half = SamplingParams(temperature=1, top_k=0, top_p=0.5, min_p=0)
    for count, ids in ((2, [0]), (4, [0, 1]), (5, [0, 1, 2])):
        assert candidates(np.zeros(count, np.float32), [], half).ids.tolist() == ids
    row = np.array([3, 2, 1, -4, 2.5], np.float32)
    for height in (-30_000.0, -5000.0, 30_000.0):
        low, high = (candidates(each, [], SamplingParams()) for each in (row, row + height))
        assert low.ids.tolist() == high.ids.tolist()
        assert low.probabilities() == pytest.approx(high.probabilities())
        even = Candidates(np.arange(2), np.array([height, height]))
        assert even.probabilities().tolist() == [0.5, 0.5]
    for bias in (-math.inf, FORBIDDEN):
        banned = SamplingParams(temperature=1, logit_bias=((1, bias),))
        left = candidates(np.array([0, 500, 0], np.float32), [], banned)
        assert left.probabilities()[[0, -1]].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("size", [3, 64, 151_936])
@pytest.mark.parametrize(
    "params", [*PARAMS[:4], SamplingParams(0.8, 0, 1, 0.1), SamplingParams(0.8, 0, 1, 0)], ids=str
)
def test_row_that_holds_what_is_no_logit_fails_the_pass(size: int, params: SamplingParams) -> None:
    for bad in (math.nan, math.inf):
        for at in ([0], [1], [size - 1], [0, size - 2], [*range(size // 3, size // 2)]):
            row = shaped_row(0, size, "normal")
            row[at or [0]] = bad
            with pytest.raises(PassFailed, match="no usable logits"):
                candidates(row, [], params)
    with pytest.raises(PassFailed):
        candidates(np.full(size, -np.inf, dtype=np.float32), [], params)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *product(("temperature", "top_p", "min_p", "presence_penalty"), (math.nan, math.inf)),
        *product(("repeat_penalty",), (0.0, -1.0, math.inf)),
        *product(("logit_bias",), (((-1, 1.0),), ((0, math.nan),), ((0, math.inf),))),
        *[("top_p", 0.0), ("frequency_penalty", -math.inf), ("penalty_last_n", -1), ("top_k", -1)],
    ],
)
def test_value_out_of_range_is_a_usage_error(name: str, value: object) -> None:
    refuses(name, SamplingParams, **{name: value})
    SamplingParams(0.0, 0, 1.0, 1.0, penalty_last_n=0, logit_bias=((0, -math.inf),))


# The law of a choice.

# More make a sharper test.
N_DRAWS = int(os.environ.get("LOCALSPEC_DRAWS", "5000" if LONG else "2400"))
WEIGHTS = np.array([0.4, 0.25, 0.2, 0.1, 0.05])
IDS = np.array([0, 1, 2, 151_935, 262_143])


def chosen(draw: Callable[[int], tuple[Noise, int]], n_draws: int = N_DRAWS) -> NDArray[np.int64]:
    """Return how often each candidate was chosen under such noises and at such positions; log weights need not be normalised."""
    kept = Candidates(IDS, np.log(WEIGHTS) - 7.5)
    ids = [choose(kept, *draw(i)) for i in range(n_draws)]
    return np.bincount(np.searchsorted(IDS, ids), minlength=IDS.size)


@pytest.mark.long
@pytest.mark.parametrize(
    "draw",
    [
        *[lambda i, at=at: (Noise(at[0]), at[1] + i) for at in ((0, 0), (-1, 0), (10**30, 100_000))],
        *[lambda seed, at=at: (Noise(seed), at) for at in (0, 511)],
        *[lambda i, by=by: (Noise(by * i), i) for by in (1, -1)],
    ],
    ids=["0", "-1", "10^30", "position 0", "position 511", "in step", "against each other"],
)  # fmt: skip
def test_choices_follow_the_weights(draw: Callable[[int], tuple[Noise, int]]) -> None:
    assert follows(chosen(draw), WEIGHTS)


@pytest.mark.slow
def test_law_check_catches_a_wrong_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Normal noise, and Gumbel noise that is a tenth too small."""
    gumbel = Noise.gumbel

    def normal(self: Noise, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.random.default_rng(position).normal(0, np.pi / np.sqrt(6), ids.size)

    for wrong in (normal, lambda *args: 0.9 * gumbel(*args)):
        monkeypatch.setattr(Noise, "gumbel", wrong)
        assert not follows(chosen(lambda i: (Noise(0), i), 20_000), WEIGHTS)


def test_a_single_candidate_is_chosen_without_noise_and_leads_by_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only = Chooser(SamplingParams(temperature=0), Noise(0)).propose(np.zeros(1, np.float32), [])
    assert (only[0], only[3]) == (0, ())
    assert 1e3 < only[2] < np.inf
    kept = Candidates(np.array([3, 4, 5]), np.array([-np.inf, 0.0, -np.inf]))
    assert {choose(kept, Noise(seed), 0) for seed in range(200)} == {4}
    monkeypatch.delattr(Noise, "gumbel")
    assert choose(Candidates(np.array([17]), np.zeros(1)), Noise(0), 0) == 17


# The plain reference.

Choice = tuple[int, float, float, tuple[int, ...]]
"""Token, how sure it is, by how much it leads, and the next two."""
params = st.builds(
    SamplingParams,
    temperature=st.sampled_from((0.0, 0.0, 1e-308, 1e-300, 1e-11, 0.25, 0.8, 1.0, 3.0)),
    top_k=st.sampled_from((0, 0, 1, 2, 3, 40, 200)),
    top_p=st.sampled_from((1.0, 1.0, 0.95, 0.3)),
    min_p=st.sampled_from((0.0, 0.05, 0.5, 1.0)),
    repeat_penalty=st.sampled_from((1.0, 1.0, 1.3)),
    logit_bias=st.sampled_from(((), ((0, 4.0),))),
)


def plain_noise(seed: int, position: int, size: int) -> NDArray[np.float64]:
    """The words are made in Python's own integers, for every id."""
    gamma, wrap = 0x9E3779B97F4A7C15, 1 << 64
    key = _mix((_mix((seed + gamma) % wrap) + position * gamma) % wrap)
    words = [_mix((token * gamma + key) % wrap) >> 12 for token in range(size)]
    return np.asarray(-np.log(-np.log((np.array(words, dtype=np.float64) + 0.5) * 2.0**-52)))


def plain_choice(
    row: Row,
    prefix: list[int],
    params: SamplingParams,
    noise: NDArray[np.float64],
) -> Choice:
    scores = penalised(row, prefix, params).astype(np.float64)
    order = best_first(scores)
    best = scores[order[0]]
    if params.temperature == 0:
        order = order[:1]
    elif params.top_k:
        order = order[: params.top_k]
    if params.top_p < 1:
        weights = np.exp(scores[order] - best)
        reached = np.cumsum(weights) >= params.top_p * weights.sum()
        order = order[: reached.argmax() + 1]
    if params.min_p > 0:
        order = order[scores[order] >= best + np.log(params.min_p)]
    kept = np.sort(order)
    if kept.size == 1:
        token = int(kept[0])
        by_logit = best_first(row.astype(np.float64))
        others = [int(each) for each in by_logit if each != token and row[each] > -np.inf][:2]
        gap = float(row[token]) - float(row[others[0]]) if others else 1e6
        return token, 1.0, gap, tuple(others)
    log_weights = (scores[kept] - best) / max(params.temperature, 1e-200)
    perturbed = log_weights + noise[kept]
    ranks = best_first(perturbed)[:3]
    weights = np.exp(log_weights)
    token, *rest = kept[ranks].tolist()
    gap = min(1e6, float(perturbed[ranks[0]] - perturbed[ranks[1]]))
    return token, float(weights[ranks[0]] / weights.sum()), gap, tuple(rest)


def choice(chooser: Chooser, row: Row, prefix: list[int]) -> Choice:
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
    row = shaped_row(seed, size, kind)
    row[seed % size] = 1.0  # something may follow
    expected = plain_choice(row, prefix, params, plain_noise(seed, len(prefix), size))
    assert choice(Chooser(params, Noise(seed)), row, prefix) == expected


@pytest.mark.first(6)
@pytest.mark.parametrize("size", [32_000, 151_936, 262_144])
@pytest.mark.parametrize("kind", KINDS)
def test_choice_from_a_large_row_is_that_of_the_plain_reference(size: int, kind: str) -> None:
    row = shaped_row(size, size, kind)
    numbers = Noise(5).gumbel(3, np.arange(size))
    for one in (
        SamplingParams(temperature=0),
        SamplingParams(),
        SamplingParams(top_p=1, min_p=0),
        SamplingParams(top_k=0, top_p=1, min_p=0.02),
        SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0),
    ):
        expected = plain_choice(row, [1, 2, 3], one, numbers)
        assert choice(Chooser(one, Noise(5)), row, [1, 2, 3]) == expected


# An automaton asked by prefix answers by the prefix alone, whatever it was asked before; planted bugs: `test_planted_bugs`.


FEW = 8
EVERY = np.arange(FEW)


def afresh(automaton: Brackets, answer: list[int]) -> list[bool]:
    state = automaton.start()
    for token in answer:
        if not automaton.allows(state, np.array([token]))[0]:
            return [False] * FEW
        state = automaton.step(state, token)
    return list(automaton.allows(state, EVERY))


@given(st.integers(0, 1 << 30), st.integers(0, 5), st.sampled_from((None, 1, 2, 5)))
@examples(400)
def test_the_prefix_alone_decides(seed: int, begin: int, kept: int | None) -> None:
    """Of a text that grows, is taken back, departs, and starts again."""
    random = Random(seed)
    automaton = Brackets(eog=(FEW - 1,), deepest=4)
    constraint = AnswerConstraint(automaton, begin)
    prompt, answer = [9] * begin, list[int]()
    with pytest.MonkeyPatch.context() as patch:
        if kept is not None:
            patch.setattr(constraint_module, "_MOST_STATES", kept)
        for _ in range(40):
            move = random.random()
            if move < 0.3:
                del answer[random.randrange(len(answer) + 1) :]
            elif move < 0.4:
                answer = []
            allowed = [token for token, may in enumerate(afresh(automaton, answer)) if may]
            if allowed and move > 0.2:
                answer.append(random.choice(allowed if random.random() < 0.9 else range(FEW)))
            assert list(constraint.allows([*prompt, *answer], EVERY)) == afresh(automaton, answer)


def test_forced_tokens_follow_the_state_and_states_are_made_once() -> None:
    class Forcing(Brackets):
        def forced(self, state: tuple[int, bool]) -> tuple[int, ...]:
            return (1,) * state[0]

    constraint = AnswerConstraint(Forcing(eog=(7,), deepest=4), 2)
    for prefix, forced in (([], ()), ([0, 0, 1, 0], (1, 1)), ([0], (1,)), ([0, 7], ())):
        assert constraint.forced([9, 9, *prefix]) == forced
    automaton = Brackets(eog=(7,), deepest=90)
    constraint = AnswerConstraint(automaton, 0)
    for end in (*range(30), 29, 28, 29, 30):
        constraint.allows([0] * end, EVERY)
    assert automaton.steps == [29 + 2]
