"""Drafting while the target verifies: the same text and the same rounds as in turns, and the arithmetic of what it gains."""

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

import numpy as np
import pytest

from lab.benchmarks.overlap_rounds import Pair
from lab.benchmarks.overlap_worth import Rounds, RoundSeconds, rounds_of, survival_needed
from tests.toy import CachedModel, Table, random_table, related_table

_IDS, _PROMPT, _TOKENS = 9, (1, 2, 3), 40


@pytest.fixture(scope="module")
def beside() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def tables(seed: int, noise: float) -> tuple[Table, Table]:
    target = random_table(seed, _IDS)
    return target, related_table(target, seed, _IDS, noise)


def pair(seed: int, noise: float, eog: tuple[int, ...] = ()) -> Pair:
    target, draft_model = (CachedModel(each, 200) for each in tables(seed, noise))
    return Pair(target, draft_model, _IDS, eog)


def foretold(seed: int, noise: float, said: tuple[int, ...]) -> list[bool]:
    _, draft_model = tables(seed, noise)
    text = (*_PROMPT, *said)
    rows = [draft_model.row(text[:at]) for at in range(len(_PROMPT), len(text))]
    return [int(np.argmax(row)) == token for row, token in zip(rows, said, strict=True)]


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("noise", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(4))
def test_overlapped_rounds_say_what_the_target_says(
    seed: int, noise: float, length: int, beside: Executor
) -> None:
    plain = pair(seed, noise).answer(_PROMPT, 0, 60)
    turns = pair(seed, noise).answer(_PROMPT, length, _TOKENS)
    overlapped = pair(seed, noise).answer(_PROMPT, length, _TOKENS, beside)
    assert overlapped.tokens == turns.tokens == plain.tokens[: len(turns.tokens)]
    both = zip(overlapped.rounds, turns.rounds, strict=True)
    assert all((a.drafted, a.accepted) == (b.drafted, b.accepted) for a, b in both)
    assert not any(each.survived for each in turns.rounds)


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("noise", [0.0, 1.0, 3.0])
def test_drafts_survive_where_the_draft_model_foretells_all_of_a_round(
    noise: float, length: int, beside: Executor
) -> None:
    said = pair(1, noise).answer(_PROMPT, length, _TOKENS, beside)
    counted = rounds_of([foretold(1, noise, said.tokens)], length)
    survived = sum(each.survived for each in said.rounds)
    assert counted == Rounds(len(said.rounds), len(said.tokens), survived)
    assert survived > 0 or noise > 0


def test_nothing_is_said_after_the_end(beside: Executor) -> None:
    plain = pair(2, 0.0).answer(_PROMPT, 0, _TOKENS).tokens
    eog = next(token for token in plain if plain.index(token) > 3)
    for length, executor in ((0, None), (3, None), (3, beside)):
        said = pair(2, 0.0, (eog,)).answer(_PROMPT, length, _TOKENS, executor).tokens
        assert said[: said.index(eog) + 1] == plain[: plain.index(eog) + 1]


def test_rounds_are_counted_as_they_would_be_made() -> None:
    # Drafts of 2: all right, and the bonus; the draft after it wrong at once; one right, and no bonus.
    hits = [True, True, True, False, True, False, True]
    assert rounds_of([hits], 2) == Rounds(rounds=4, confirmed=7, survived=1)
    assert rounds_of([[True] * 9], 2) == Rounds(rounds=3, confirmed=9, survived=2)
    assert rounds_of([[False] * 4, [False]], 8) == Rounds(rounds=5, confirmed=5, survived=0)


def test_gain_is_the_hidden_drafting() -> None:
    even = RoundSeconds(draft_s=0.8, step_s=0.2, verify_s=1.0)
    assert even.gain(0.0) == 1.0
    assert even.gain(1.0) == pytest.approx(1.8)
    slow = RoundSeconds(draft_s=4.0, step_s=1.0, verify_s=1.0)
    assert slow.gain(0.0) == pytest.approx(5 / 5.5), "half a step that nobody wanted"
    assert slow.gain(1.0) == 1.0, "a token more, and nothing left to hide it behind"


@pytest.mark.parametrize("draft_share", [0.2, 0.5, 0.8])
def test_as_many_drafts_as_are_needed_bring_the_gain(draft_share: float) -> None:
    needed = survival_needed(draft_share)
    assert RoundSeconds(draft_share, 0.1, 1.0).gain(needed) == pytest.approx(1.1)
