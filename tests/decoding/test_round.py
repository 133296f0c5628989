"""Rounds: the verdict on a draft, where its tokens came from, what they cost, and how they are counted."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.decoding.drafters.drafter import PLAIN, Plan
from localspec.decoding.model import Role
from localspec.decoding.round import PROMPT, Draft, Round, Spent, Verdict
from localspec.decoding.speculative import speculative_round, verify
from localspec.decoding.stats import AcceptanceStats, expected_confirmed, expected_speed_up
from tests.toy import GREEDY, ScriptedDrafter

MODEL = Draft((4, 3), (0.9, 0.8), "model", (1.0, 0.5), ((8, 5), (8, 5)))
FORKED = Draft(
    (1, 2, 3), (0.9,) * 3, "model", (1.0,) * 3, ((4, 5), (6, 5), (7, 5)), branches=(2, 0)
)


def rows_choosing(*tokens: int) -> NDArray[np.float32]:
    return 5 * np.eye(10, dtype=np.float32)[list(tokens)]


def draft(*tokens: int) -> Draft:
    return Draft(tokens, (0.5,) * len(tokens), "scripted")


@pytest.mark.parametrize(
    ("drafted", "chosen", "verdict"),
    [
        (draft(), (4,), Verdict(0, 4)),
        (draft(1), (1, 2), Verdict(1, 2)),
        (draft(1), (3, 2), Verdict(0, 3)),
        (draft(1, 1), (1, 1, 7), Verdict(2, 7)),
        (draft(1, 2, 3), (1, 2, 3, 4), Verdict(3, 4)),
        (draft(1, 2, 3), (1, 2, 9, 4), Verdict(2, 9)),
        (draft(1, 2, 3), (9, 2, 3, 4), Verdict(0, 9)),
        # Of the chain four rows; then those after the branches: 7 in the third place, 4 in the first.
        (FORKED, (1, 2, 3, 8, 0, 9), Verdict(3, 8)),
        (FORKED, (1, 2, 7, 8, 0, 9), Verdict(2, 0, branch=7)),
        (FORKED, (4, 2, 3, 8, 0, 9), Verdict(0, 9, branch=4)),
        (FORKED, (1, 6, 3, 8, 0, 9), Verdict(1, 6)),
        (FORKED, (5, 2, 3, 8, 0, 9), Verdict(0, 5)),
    ],
)
def test_verdicts_on_drafts(drafted: Draft, chosen: tuple[int, ...], verdict: Verdict) -> None:
    rows, tokens = rows_choosing(*chosen), [0]
    rows[verdict.accepted + 1 : len(drafted.tokens) + 1] = np.nan
    assert verify(tokens, drafted, rows, GREEDY) == verdict
    assert tokens == [0]


def test_a_round_asks_the_target_once_for_the_chain_and_behind_it_the_branches() -> None:
    class Fork(ScriptedDrafter):
        def propose(self, tokens, plan, chooser):  # type: ignore[no-untyped-def]
            yield from ()
            return FORKED

    passes = speculative_round([8, 9], Plan(ScriptedDrafter((3, 4)), 2), GREEDY)
    request = next(passes)
    assert (request.role, list(request.tokens), request.rows) == (Role.TARGET, [8, 9, 3, 4], 3)
    assert request.chain is request.tokens
    with pytest.raises(StopIteration) as finished:
        passes.send(rows_choosing(3, 4, 5))
    assert finished.value.value == (draft(3, 4), Verdict(2, 5))
    forked = next(speculative_round([8, 9], Plan(Fork(()), 5), GREEDY))
    assert list(forked.tokens) == [8, 9, 1, 2, 3, 7, 4]
    assert (forked.rows, forked.branches, list(forked.chain)) == (6, (4, 2), [8, 9, 1, 2, 3])
    with pytest.raises(StopIteration) as finished:
        next(PLAIN.drafter.propose([1, 2], Plan(PLAIN.drafter, 100), GREEDY))
    assert finished.value.value == Draft((), (), "off")


@pytest.mark.parametrize(
    ("drafted", "verdict", "confirmed", "origins", "rank"),
    [
        (Draft(drafter=PROMPT), Verdict(0, 7), (7,), "first", None),
        (Draft(), Verdict(0, 7), (7,), "plain", None),
        (Draft(drafter="lookup"), Verdict(0, 7), (7,), "plain", None),
        (Draft((4,), (0.5,), "lookup"), Verdict(0, 8), (8,), "correction", None),
        (MODEL, Verdict(0, 7), (7,), "correction", None),
        (MODEL, Verdict(1, 8), (4, 8), "model correction", 2),
        (MODEL, Verdict(1, 5), (4, 5), "model correction", 3),
        (MODEL, Verdict(2, 8), (4, 3, 8), "model model bonus", None),
        (MODEL, Verdict(2, 9), (4,), "model", None),  # the end of a generation cut it
        (FORKED, Verdict(0, 9, branch=4), (4, 9), "model bonus", 2),
        (FORKED, Verdict(2, 9, branch=7), (1, 2, 7, 9), "model model model bonus", 2),
        (FORKED, Verdict(0, 5), (5,), "correction", 3),
    ],
)
def test_origins_of_what_is_confirmed_and_rank_of_a_correction(
    drafted: Draft, verdict: Verdict, confirmed: tuple[int, ...], origins: str, rank: int | None
) -> None:
    done = Round(drafted, verdict, confirmed)
    assert (done.origins, done.correction_rank) == (tuple(origins.split()), rank)
    assert done.is_first is (origins == "first")
    assert done.width == len(drafted.tokens) + len(drafted.branches) + 1
    assert (done.branched, done.caught) == (len(drafted.branches), int(verdict.branch is not None))
    assert done.accepted == min(verdict.accepted, len(confirmed))
    assert verdict.confirmed == len(confirmed) or origins == "model"


def test_what_two_rounds_spent_is_added() -> None:
    spent = Spent(1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
    assert spent + spent == Spent(2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    assert (spent.round_s, spent.wall_s, spent.drafting_s) == (31.0, 63.0, 3.0)
    assert spent.drafting_s + spent.verify_s + spent.aside_s == spent.wall_s


def done(drafter: str, drafted: int, accepted: int, confirmed: int | None = None) -> Round:
    draft = Draft((1,) * drafted, (0.5,) * drafted, drafter)
    tokens = (1,) * (accepted + 1 if confirmed is None else confirmed)
    return Round(draft, Verdict(accepted, 1), tokens)


FORK_ROUNDS = [
    Round(FORKED, Verdict(1, 9), (1, 9)),
    Round(FORKED, Verdict(0, 9, branch=4), (4, 9)),
    Round(FORKED, Verdict(0, 9, branch=4), ()),  # behind the end
]


@pytest.mark.parametrize(
    ("rounds", "counts"),
    [
        ([done(PROMPT, 0, 0)], {}),
        (
            [done(PROMPT, 0, 0), done("model", 3, 2), done("lookup", 5, 5), done("model", 3, 0)],
            {"model": (2, 6, 2, 4, 0, 0), "lookup": (1, 5, 5, 6, 0, 0)},
        ),
        # A lookup that proposes nothing is a plain round; the draft model was asked.
        (
            [done("lookup", 0, 0), done("lookup", 2, 1), done("model", 0, 0)],
            {"off": (1, 0, 0, 1, 0, 0), "lookup": (1, 2, 1, 2, 0, 0), "model": (1, 0, 0, 1, 0, 0)},
        ),
        # What was accepted behind the end is not in the text.
        ([done("lookup", 5, 4, confirmed=2)], {"lookup": (1, 5, 2, 2, 0, 0)}),
        (FORK_ROUNDS, {"model": (3, 9, 1, 4, 6, 1)}),
    ],
)
def test_rounds_are_counted_twice(rounds: list[Round], counts: dict[str, tuple[int, ...]]) -> None:
    def figures(each: AcceptanceStats) -> tuple[int, ...]:
        counted = (each.rounds, each.drafted, each.accepted, each.confirmed)
        return (*counted, each.branched, each.caught)

    stats = AcceptanceStats()
    for each in rounds:
        stats.add(each)
    assert {name: figures(each) for name, each in stats.by_drafter.items()} == counts
    in_all = tuple(map(sum, zip(*counts.values(), strict=True))) or (0,) * 6
    assert figures(stats) == in_all
    rounds_, drafted, accepted, confirmed, *_ = in_all
    assert stats.acceptance_rate == (accepted / drafted if drafted else None)
    assert stats.mean_acceptance_length == (confirmed / rounds_ if rounds_ else None)


# What drafting is worth by the textbook. One machine's measured milliseconds by width of a pass: Qwen2.5-Coder 1.5B,
# Q4_K_M, two CPU cores. A step of the 0.5B draft model cost 14.2 ms there.


def test_speed_up_is_tokens_over_costs() -> None:
    for rate in (0.0, 0.3, 1 - 1e-9, 1.0):
        total = math.fsum(rate**accepted for accepted in range(9))
        assert expected_confirmed(rate, 8) == pytest.approx(total, rel=1e-6)
    took_ms = {1: 22.7, 2: 41.5, 3: 55.8, 4: 68.5, 5: 83.7, 6: 98.4, 8: 114.9}
    costs, free = {each: ms / 22.7 for each, ms in took_ms.items()}, dict.fromkeys(range(1, 9), 1.0)
    for rate, length, ratio, passes, speed_up in (
        (0.8, 4, 0.1, free, expected_confirmed(0.8, 4) / 1.4),
        (1.0, 3, 1.0, free, 1.0),
        (0.9, 0, 14.2 / 22.7, costs, 1.0),
        (0.84, 3, 14.2 / 22.7, costs, 0.64),  # llama-server: 24.5 instead of 45.5 tokens/s
        (0.98, 7, 0.0, costs, 1.47),  # a lookup costs next to nothing
    ):
        found = expected_speed_up(rate, length, ratio, passes)
        assert found == pytest.approx(speed_up, abs=0.011)
