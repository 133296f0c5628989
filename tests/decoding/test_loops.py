"""A text that goes round in circles is ended at the same token, however it was drafted."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.generation import Limits, LoopGuard
from localspec.decoding.model import Role
from localspec.decoding.noise import Noise
from localspec.decoding.policy import FixedPolicy, plain_policy
from localspec.decoding.round import StopReason
from localspec.options import SamplingParams
from tests.examples import examples
from tests.toy import CachedModel, random_table, run_to_end


def first_loop(tokens: Sequence[int]) -> int | None:
    guard = LoopGuard()
    return next((count for count, token in enumerate(tokens, 1) if guard.feed(token)), None)


@pytest.mark.parametrize(
    ("cycle", "tokens"), [(1, 49), (2, 50), (12, 60), (16, 64), (20, 80), (128, 512)]
)
def test_a_cycle_is_a_loop_when_it_came_four_times(cycle: int, tokens: int) -> None:
    assert first_loop([0, 1, 2, *(list(range(10, 10 + cycle)) * 60)]) == 3 + tokens


@pytest.mark.parametrize(
    "tokens",
    [
        list(range(1000)),
        [7] * 48,
        [*range(30), *range(30), *range(30), 99] * 2,
        [each for row in range(200) for each in (1, 2, 3, 100 + row, 4)],
        list(range(129)) * 9,
    ],
)
def test_what_is_no_loop(tokens: Sequence[int]) -> None:
    assert first_loop(tokens) is None


@given(st.integers(0, 200), st.integers(1, 6))
@examples(50)
def test_drafting_does_not_move_the_end(seed: int, length: int) -> None:
    table = random_table(seed, 6, window=2)
    chooser = Chooser(SamplingParams(temperature=0), Noise(0))
    limits = Limits(400, (), stop_loops=True)
    replies = [
        run_to_end([1, 2], {Role.TARGET: CachedModel(table, 600)}, policy, chooser, limits)
        for policy in (plain_policy(), FixedPolicy(LookupDrafter(()), length))
    ]
    plain, drafted = replies
    assert plain.stop_reason is StopReason.LOOP  # greedy and of a short memory: it must
    assert drafted.stop_reason is StopReason.LOOP
    assert drafted.tokens == plain.tokens
    assert first_loop(plain.tokens) == len(plain.tokens)
    free = run_to_end(
        [1, 2],
        {Role.TARGET: CachedModel(table, 600)},
        plain_policy(),
        chooser,
        Limits(len(plain.tokens) + 20, ()),
    )
    assert free.stop_reason is StopReason.LENGTH
    assert free.tokens[: len(plain.tokens)] == plain.tokens
