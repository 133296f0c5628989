"""Speculative output equals plain output: the same text and stop reason, in every world and company."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.decoding.cancel import Cancelled
from tests.decoding.company import check_company
from tests.decoding.worlds import OTHER, RENAMED, World, check_same_text, random_world, seeds
from tests.examples import examples
from tests.toy import CachedModel, Countdown, UncachedModel, random_table

N_CTX = 24


@given(st.randoms(use_true_random=False).map(random_world))
@examples(150)
def test_drafting_changes_neither_text_nor_stop_reason(world: World) -> None:
    check_same_text(world)


@pytest.mark.first(1)
@pytest.mark.parametrize("some", seeds(800, parts=8), ids=str)
def test_drafting_changes_neither_text_nor_stop_reason_in_seeded_worlds(some: range) -> None:
    """Hypothesis likes small worlds; these are drawn evenly, the same ones every time."""
    for seed in some:
        check_same_text(random_world(Random(seed)))


@pytest.mark.first(1)
@pytest.mark.parametrize("some", seeds(1200, parts=12), ids=str)
def test_whatever_runs_beside_it_each_says_what_it_says_alone(some: range) -> None:
    for seed in some:
        check_company(Random(seed))


@pytest.mark.first(2)
@pytest.mark.parametrize("some", seeds(480, parts=8), ids=str)
@pytest.mark.parametrize("beside", [False, True])
def test_another_vocabulary_changes_nothing_either(some: range, *, beside: bool) -> None:
    for seed in some:
        for vocabulary in (RENAMED, OTHER):
            if beside:
                check_company(Random(seed), vocabulary=vocabulary)
            else:
                check_same_text(replace(random_world(Random(seed)), vocabulary=vocabulary))


requests = st.lists(
    st.tuples(
        st.lists(st.integers(0, 2), min_size=1, max_size=N_CTX),
        st.integers(0, 4),  # rows; 0 is prefill
        st.one_of(st.none(), st.integers(0, N_CTX)),  # truncate first
    ),
    min_size=2,
    max_size=8,
)


@given(requests, st.integers(0, 1000), st.sampled_from((1, 2, 64)), st.integers(0, 8))
@examples(200)
def test_cached_model_returns_what_an_uncached_one_does(
    asked: list[tuple[list[int], int, int | None]], seed: int, window: int, cancel_after: int
) -> None:
    """Any sequence of requests: sharing a prefix, diverging, shorter, repeated, cancelled."""
    table = random_table(seed, n_vocab=3, window=window)
    uncached = UncachedModel(table, N_CTX)
    cached = CachedModel(table, N_CTX, Countdown(cancel_after))
    for tokens, rows, truncated in asked:
        if truncated is not None:
            cached.truncate(truncated)
        try:
            if rows == 0:
                cached.prefill(tokens)
                continue
            logits = cached.logits(tokens, min(rows, len(tokens)))
        except Cancelled:
            continue
        assert np.array_equal(logits, uncached.logits(tokens, min(rows, len(tokens))))
        assert cached.cells == tokens
