"""Gumbel numbers: keyed, of the right law, and unrelated to their neighbours.

All draws are fixed; see `law` for the false-alarm rate of a check, one in a thousand.
"""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.decoding import noise as noise_module
from localspec.decoding.noise import Noise
from tests.decoding.law import are_independent, are_uniform
from tests.examples import LONG, examples

N_DRAWS = 20_000 if LONG else 5_000
SEEDS = (0, 1, 2, 12345, -1, -(2**63), 2**63, 2**64 - 1, 10**30)
WRAP = 1 << 64


def uniform(gumbel: NDArray[np.float64] | list[float]) -> NDArray[np.float64]:
    """Undo the transform: Gumbel numbers become uniform on 0 to 1."""
    return np.asarray(np.exp(-np.exp(-np.asarray(gumbel))))


@cache
def sampled(over: str, *at: int) -> NDArray[np.float64]:
    """Return numbers over ids, positions or seeds, at two of the others and, of positions, from one on."""
    match over, at:
        case "ids", (seed, position):
            return uniform(Noise(seed).gumbel(position, np.arange(N_DRAWS)))
        case "positions", (token, start):
            places = range(start, start + N_DRAWS)
            return uniform([Noise(0).gumbel(each, ids(token))[0] for each in places])
        case _:
            return uniform([Noise(seed).gumbel(at[0], ids(at[1]))[0] for seed in range(N_DRAWS)])


def ids(*values: int) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


@given(
    seed=st.integers(),
    position=st.integers(0, 1 << 20),
    token_ids=st.lists(st.integers(0, 262_143), min_size=1, max_size=30, unique=True),
    data=st.data(),
)
@examples(300)
def test_any_order_and_any_subset_of_ids_get_the_same_numbers(
    seed: int, position: int, token_ids: list[int], data: st.DataObject
) -> None:
    numbers = Noise(seed).gumbel(position, ids(*token_ids))
    by_id = dict(zip(token_ids, numbers, strict=True))
    some = data.draw(st.lists(st.sampled_from(token_ids), min_size=1))
    again = Noise(seed).gumbel(position, ids(*some))
    assert again.tolist() == [by_id[token] for token in some]


def test_numbers_of_seed_position_and_id_stay_what_they_are() -> None:
    # The published generator's first three words from the seed 0.
    words = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    states = [noise_module._GAMMA * n & (WRAP - 1) for n in (1, 2, 3)]
    assert [noise_module._mix(state) for state in states] == words
    assert noise_module._mix_each(np.array(states, dtype=np.uint64)).tolist() == words
    # A seed is a promise to users: the same text from one release to the next.
    numbers = Noise(42).gumbel(7, ids(0, 1, 262_143))
    assert numbers == pytest.approx(
        [0.259814903098283, 0.20434126558249785, -0.016927354471562194], abs=1e-12
    )
    keys = ((1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4), (2, 1, 3), (3, 2, 1), (1 + (1 << 63), 2, 3))
    drawn = [Noise(seed).gumbel(position, ids(token))[0] for seed, position, token in keys]
    assert len(set(drawn)) == len(keys)
    for seed in (1 + WRAP, 1 - WRAP):
        assert Noise(seed).gumbel(2, ids(3))[0] == drawn[0]


@pytest.mark.parametrize("word", [0, (1 << 64) - 1])
def test_extreme_words_give_finite_numbers(word: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        noise_module, "_mix_each", lambda words: np.full_like(words, np.uint64(word))
    )
    assert np.isfinite(Noise(0).gumbel(0, ids(1))).all()


@pytest.mark.long
@pytest.mark.parametrize(
    "at",
    [
        *[("ids", seed, at) for seed in SEEDS for at in (0, 100_000)],
        *[("positions", token, at) for token in (0, 262_143) for at in (0, 100_000)],
        *[("seeds", *each) for each in ((0, 0), (100_000, 262_143))],
    ],
    ids=str,
)
def test_numbers_are_gumbel(at: tuple[str, int, int]) -> None:
    assert are_uniform(sampled(*at))


@pytest.mark.long
@pytest.mark.first(8)
@pytest.mark.parametrize("over", ["ids", "positions", "seeds"])
@pytest.mark.parametrize("step", [1, 2, 3, 8, 256, 4096])
def test_neighbours_are_independent(over: str, step: int) -> None:
    numbers = sampled(over, 3, 11)
    assert are_independent(numbers[:-step], numbers[step:])


def test_swapping_position_and_id_or_seed_and_position_is_independent() -> None:
    grid = np.stack([uniform(Noise(0).gumbel(position, np.arange(200))) for position in range(200)])
    upper = np.triu_indices(200, 1)
    assert are_independent(grid[upper], grid.T[upper])
    swapped = np.stack([uniform(Noise(seed).gumbel(0, np.arange(200))) for seed in range(200)])
    assert are_independent(grid.ravel(), swapped.ravel())
