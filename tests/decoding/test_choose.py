"""`choose` draws from exactly its candidates' law, and independently where it ought to.

All draws are fixed; see `law` for the false-alarm rate of a check, one in a thousand.
"""

import os
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.decoding.choose import Chooser, choose, choose_with_gap
from localspec.decoding.noise import Noise
from localspec.decoding.sampling import Candidates, candidates
from localspec.options import SamplingParams
from tests.decoding.law import follows
from tests.decoding.worlds import SomeResidues
from tests.examples import LONG

# More make a sharper test.
N_DRAWS = int(os.environ.get("LOCALSPEC_DRAWS", "5000" if LONG else "2400"))
SEEDS = (0, 1, 12345, -1, 2**64 - 1, 10**30)
WEIGHTS = np.array([0.4, 0.25, 0.2, 0.1, 0.05])
IDS = (0, 1, 2, 151_935, 262_143)

Draw = Callable[[int], int]


def weighted(ids: Sequence[int], weights: NDArray[np.float64], shift: float = 0.0) -> Candidates:
    """Return candidates; their log weights need not be normalised, hence `shift`."""
    return Candidates(np.array(ids, dtype=np.int64), np.log(weights) + shift)


def counted(draw: Draw, ids: Sequence[int], n_draws: int = N_DRAWS) -> NDArray[np.int64]:
    index = {token: i for i, token in enumerate(ids)}
    drawn = [index[draw(i)] for i in range(n_draws)]
    return np.bincount(drawn, minlength=len(ids))


def counted_pairs(left: Draw, right: Draw, ids: Sequence[int]) -> NDArray[np.int64]:
    index = {token: i for i, token in enumerate(ids)}
    counts = np.zeros((len(ids), len(ids)), dtype=np.int64)
    for i in range(N_DRAWS):
        counts[index[left(i)], index[right(i)]] += 1
    return counts


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("start", [0, 100_000])
def test_choices_over_positions_follow_the_weights(seed: int, start: int) -> None:
    kept, noise = weighted(IDS, WEIGHTS), Noise(seed)
    assert follows(counted(lambda i: choose(kept, noise, start + i), IDS), WEIGHTS)


@pytest.mark.long
@pytest.mark.parametrize("position", [0, 1, 511, 100_000])
def test_choices_over_seeds_follow_the_weights(position: int) -> None:
    kept = weighted(IDS, WEIGHTS, shift=-7.5)
    assert follows(counted(lambda seed: choose(kept, Noise(seed), position), IDS), WEIGHTS)


@pytest.mark.long
def test_choices_with_seed_and_position_in_step_follow_the_weights() -> None:
    kept = weighted(IDS, WEIGHTS)
    assert follows(counted(lambda i: choose(kept, Noise(i), i), IDS), WEIGHTS)
    assert follows(counted(lambda i: choose(kept, Noise(-i), i), IDS), WEIGHTS)


@pytest.mark.long
def test_choices_follow_the_weights_whatever_the_ids_are() -> None:
    for start in (0, 1000, 151_000, 262_143 - 4):
        ids = range(start, start + 5)
        kept, noise = weighted(ids, WEIGHTS), Noise(4)
        assert follows(counted(lambda i, k=kept, n=noise: choose(k, n, i), ids), WEIGHTS)  # type: ignore[misc]


@pytest.mark.long
def test_choices_among_forty_follow_the_weights() -> None:
    weights = 1 / np.arange(1.0, 41.0)
    weights /= weights.sum()
    kept, noise = weighted(range(40), weights), Noise(9)
    assert follows(counted(lambda i: choose(kept, noise, i), range(40)), weights)


@pytest.mark.long
@pytest.mark.first(1)
@pytest.mark.parametrize("step", [1, 2, 64])
def test_choices_at_neighbouring_positions_are_independent(step: int) -> None:
    kept, noise = weighted(IDS, WEIGHTS), Noise(2)
    # Pairs do not overlap: each position is in one of them.
    starts = [i for i in range(2 * step * (N_DRAWS // step + 1)) if i // step % 2 == 0]
    pairs = counted_pairs(
        lambda i: choose(kept, noise, starts[i]),
        lambda i: choose(kept, noise, starts[i] + step),
        IDS,
    )
    assert follows(pairs, np.outer(WEIGHTS, WEIGHTS))


@pytest.mark.long
def test_choices_of_neighbouring_seeds_are_independent() -> None:
    kept = weighted(IDS, WEIGHTS)
    for seed in (0, 2**64 - 1):
        one, other = Noise(seed), Noise(seed + 1)
        pairs = counted_pairs(
            lambda i, n=one: choose(kept, n, i),  # type: ignore[misc]
            lambda i, n=other: choose(kept, n, i),  # type: ignore[misc]
            IDS,
        )
        assert follows(pairs, np.outer(WEIGHTS, WEIGHTS))


@pytest.mark.long
def test_choices_with_seed_and_position_swapped_are_independent() -> None:
    kept = weighted(IDS, WEIGHTS)
    pairs = counted_pairs(
        lambda i: choose(kept, Noise(i % 141), 141 + i // 141),
        lambda i: choose(kept, Noise(141 + i // 141), i % 141),
        IDS,
    )
    assert follows(pairs, np.outer(WEIGHTS, WEIGHTS))


@pytest.mark.long
def test_choices_among_neighbouring_ids_are_independent() -> None:
    """Disjoint candidates at one position share a seed and nothing else."""
    even, odd = weighted((0, 2, 4, 6, 8), WEIGHTS), weighted((1, 3, 5, 7, 9), WEIGHTS)
    noise = Noise(8)
    pairs = counted_pairs(
        lambda i: choose(even, noise, i), lambda i: choose(odd, noise, i) - 1, (0, 2, 4, 6, 8)
    )
    assert follows(pairs, np.outer(WEIGHTS, WEIGHTS))


@pytest.mark.slow
def test_law_check_catches_a_wrong_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Normal noise, Gumbel noise a tenth too small, positions that share theirs in twos."""
    kept, noise = weighted(IDS, WEIGHTS), Noise(0)
    gumbel = Noise.gumbel

    def normal(self: Noise, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.random.default_rng(position).normal(0, np.pi / np.sqrt(6), ids.size)

    def small(self: Noise, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        return 0.9 * gumbel(self, position, ids)

    def shared(self: Noise, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        return gumbel(self, position // 2, ids)

    for wrong in (normal, small):
        monkeypatch.setattr(Noise, "gumbel", wrong)
        drawn = counted(lambda i: choose(kept, noise, i), IDS, n_draws=20_000)
        assert not follows(drawn, WEIGHTS)
    monkeypatch.setattr(Noise, "gumbel", shared)
    pairs = counted_pairs(
        lambda i: choose(kept, noise, 2 * i), lambda i: choose(kept, noise, 2 * i + 1), IDS
    )
    assert not follows(pairs, np.outer(WEIGHTS, WEIGHTS))


@pytest.mark.long
def test_choices_from_a_row_follow_what_sampling_kept_of_it() -> None:
    row = np.array([2.0, 1.5, 1.5, 0.0, -1.0, -np.inf, 1.0, 3.0], dtype=np.float32)
    params = SamplingParams(temperature=0.7, top_k=6, top_p=0.97, min_p=0.01, repeat_penalty=1.3)
    history = [7, 7, 3]
    kept, noise = candidates(row, history, params), Noise(21)
    drawn = counted(lambda i: choose(kept, noise, i), kept.ids.tolist())
    assert kept.ids.size > 3
    assert follows(drawn, kept.probabilities())


def test_single_candidate_is_chosen_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Noise, "gumbel")
    assert choose(weighted([17], np.ones(1)), Noise(0), 0) == 17


def test_id_of_no_weight_is_never_chosen() -> None:
    kept = Candidates(np.array([3, 4, 5]), np.array([-np.inf, 0.0, -np.inf]))
    assert {choose(kept, Noise(seed), 0) for seed in range(200)} == {4}


@given(
    seed=st.integers(),
    prefix=st.lists(st.integers(0, 8), max_size=20),
    logits=st.lists(st.integers(-4, 4), min_size=9, max_size=9),
    temperature=st.sampled_from((0.0, 0.5, 1.0)),
)
@settings(max_examples=100, deadline=None)
def test_chooser_takes_the_position_from_the_prefix(
    seed: int, prefix: list[int], logits: list[int], temperature: float
) -> None:
    row = np.array(logits, dtype=np.float32)
    params = SamplingParams(temperature=temperature, repeat_penalty=1.2)
    chosen = Chooser(params, Noise(seed)).choose(row, prefix)
    assert chosen == choose(candidates(row, prefix, params), Noise(seed), len(prefix))


@given(
    prefix=st.lists(st.integers(0, 8), max_size=8),
    salt=st.integers(0, 6),
    temperature=st.sampled_from((0.0, 1.0)),
)
@settings(max_examples=100, deadline=None)
def test_constraint_decides_before_anything_else(
    prefix: list[int], salt: int, temperature: float
) -> None:
    """What is forbidden takes no place among the top k and no share of the top p."""
    constraint = SomeResidues(salt, last=8)
    row = np.arange(9, 0, -1).astype(np.float32)
    params = SamplingParams(temperature=temperature, top_k=2, top_p=0.9, min_p=0.0)
    kept = Chooser(params, Noise(0), constraint).candidates(row, prefix)
    allowed = constraint.allows(prefix, np.arange(9))
    masked = np.where(allowed, row, -np.inf).astype(np.float32)
    expected = candidates(masked, prefix, params)
    assert np.array_equal(kept.ids, expected.ids)
    assert allowed[kept.ids][np.isfinite(kept.log_weights)].all()
    assert row.tolist() == list(range(9, 0, -1)), "the row was changed"


def test_gap_is_between_the_two_best_perturbed_scores() -> None:
    kept = Candidates(np.array([2, 5, 7]), np.array([0.0, -0.5, -3.0]))
    perturbed = sorted(kept.log_weights + Noise(4).gumbel(9, kept.ids))
    token, gap, _ = choose_with_gap(kept, np.zeros(8, dtype=np.float32), Noise(4), 9)
    assert token == choose(kept, Noise(4), 9)
    assert gap == pytest.approx(perturbed[-1] - perturbed[-2])


@pytest.mark.parametrize(("best", "gap"), [(0, 2.5), (1, 2.0), (2, 2.0)])
def test_gap_of_a_lone_candidate_is_between_the_two_best_logits(best: int, gap: float) -> None:
    row = np.array([1.0, -0.5, 0.5], dtype=np.float32)
    row[best] = 3.0
    lone = Candidates(np.array([best]), np.zeros(1))
    assert choose_with_gap(lone, row, Noise(0), 0)[:2] == (best, gap)


def test_alternatives_are_the_next_two_by_the_score_that_decided() -> None:
    kept = Candidates(np.array([2, 5, 7, 8]), np.array([0.0, -0.5, -3.0, -0.2]))
    perturbed = kept.log_weights + Noise(4).gumbel(9, kept.ids)
    order = tuple(int(each) for each in kept.ids[np.argsort(-perturbed)])
    token, _, others = choose_with_gap(kept, np.zeros(9, dtype=np.float32), Noise(4), 9)
    assert (token, *others) == order[:3]


def test_alternatives_of_a_greedy_choice_are_the_next_two_logits() -> None:
    lone = Candidates(np.array([1]), np.zeros(1))
    row = np.array([0.0, 9.0, 7.5, 8.0, 2.0, -np.inf], dtype=np.float32)
    assert choose_with_gap(lone, row, Noise(0), 0)[2] == (3, 2)
    row[[0, 3, 4]] = -np.inf
    assert choose_with_gap(lone, row, Noise(0), 0)[2] == (2,)


def test_only_id_that_may_follow_has_no_rival_and_a_finite_gap_beyond_any_other() -> None:
    row = np.array([0.0], dtype=np.float32)
    token, gap, others = choose_with_gap(Candidates(np.array([0]), np.zeros(1)), row, Noise(0), 0)
    assert (token, others) == (0, ())
    assert 1e3 < gap < np.inf


def test_gap_is_finite_where_no_temperature_to_speak_of_leaves_rivals_no_weight() -> None:
    row = np.array([5.0, 3.0, 1.0], dtype=np.float32)
    kept = candidates(row, [], SamplingParams(temperature=1e-308, top_k=0, top_p=1, min_p=0))
    token, gap, others = choose_with_gap(kept, row, Noise(0), 0)
    assert (token, others) == (0, (1, 2))
    assert 1e3 < gap < np.inf
