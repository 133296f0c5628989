"""Speculative output equals plain output: the same text and stop reason, in every world and company."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.decoding.company import check_company
from tests.decoding.worlds import OTHER, RENAMED, World, check_same_text, random_world, seeds
from tests.examples import examples


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
