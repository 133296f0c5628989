"""LlamaSequences over a toy context: every sequence says what it says alone; planted bugs are caught."""

from collections.abc import Generator, Sequence
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

from localspec.decoding.cancel import CancelFlag
from localspec.decoding.model import Pass, Passed, Role
from localspec.decoding.scheduler import Scheduler
from localspec.llama.sequence import LlamaSequence
from localspec.llama.sequences import LlamaSequences, _Sibling
from tests.decoding.planting import plant
from tests.decoding.worlds import seeds
from tests.llama.together import check_together
from tests.llama.toy_native import ToyNative, toy_sequences
from tests.toy import Stopwatch, Table, random_table

N_WORLDS = 2000
TABLE = random_table(3, n_vocab=9, window=64)
Asking = Generator[Pass, Passed, int]


def first_failing_world(monkeypatch: pytest.MonkeyPatch) -> int | None:
    """Return the seed of the first world in which a neighbour changes a text, or breaks something."""
    for seed in range(N_WORLDS):
        try:
            check_together(Random(seed), monkeypatch)
        except (AssertionError, ValueError, IndexError, KeyError):
            return seed
    return None


@pytest.mark.first(1)
@pytest.mark.parametrize("some", seeds(800), ids=str)
def test_every_sequence_says_what_it_says_alone(
    some: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in some:
        check_together(Random(seed), monkeypatch)


class Bug(NamedTuple):
    name: str
    function: object
    right: str
    wrong: str


BUGS = (
    Bug(
        "what a neighbour has counts as cached here",
        LlamaSequences.missing,
        "LlamaSequence.common_prefix(self._family[slot], requests)",
        "self._family[slot].common_prefix(requests)",
    ),
    Bug(
        "rows handed to the wrong sequence",
        LlamaSequences.together,
        "answers[i] = all_rows[start : start + part.rows]",
        "answers[len(requests) - 1 - i] = all_rows[start : start + part.rows]",
    ),
    Bug(
        "rows of a drafting neighbour are counted as one",
        LlamaSequences.together,
        "start += part.rows",
        "start += 1",
    ),
    Bug(
        "rows in the order of places, passes in that of numbers",
        LlamaSequences.together,
        "return [answers[i] for i in range(len(requests))]",
        "return [answers[i] for i in order]",
    ),
    Bug(
        "a cancelled pass counts as evaluated",
        LlamaSequence.resync,
        "self.native.held(self.number)",
        "None",
    ),
    Bug(
        "a stale cell after a sequence is used again: compared by length",
        LlamaSequence.common_prefix,
        "if cached[start:end] != tokens[start:end]",
        "if False",
    ),
    Bug(
        "a stale cell after a sequence is used again: only the list is cut",
        LlamaSequence.truncate,
        "native.remove(self.number, n_past)",
        "True",
    ),
    Bug(
        "snapshots are taken to be of the last pass",
        LlamaSequence._reusable,
        "removed <= self._snapshots",
        "removed <= self.native.n_snapshots",
    ),
    Bug(
        "a recurrent state is rolled back as a cache is",
        LlamaSequence._reusable,
        "if self.native.can_truncate or removed <= self._snapshots else 0",
        "",
    ),
    Bug(
        "a prefix counts as copied that was not",
        _Sibling.reuse,
        "self.native.copy(donor.number, self.number)",
        "pass",
    ),
    Bug(
        "the whole prompt counts as copied",
        _Sibling.reuse,
        "self._cached = list(donor.cached)",
        "self._cached = list(tokens)",
    ),
    Bug(
        "copied from here to there",
        _Sibling.reuse,
        "self.native.copy(donor.number, self.number)",
        "self.native.copy(self.number, donor.number)",
    ),
    Bug(
        "moved without what it holds",
        LlamaSequences._move,
        "self.native.copy(sequence.number, idle.number)",
        "pass",
    ),
    Bug(
        "an idle sequence keeps what it held when its cells are given away",
        LlamaSequences._move,
        "idle.forget()",
        "idle.truncate(0)",
    ),
    Bug(
        "moved onto one that runs",
        LlamaSequences.close_ranks,
        "if each.number in window and each.number in idle",
        "if each.number in window",
    ),
    Bug(
        "copied to nobody: what another one has is evaluated again, and more than a pass holds",
        LlamaSequences._part,
        "sequence.reuse(",
        "LlamaSequence.reuse(sequence, ",
    ),
    Bug(
        "branches are evaluated as if they went on",
        LlamaSequences._part,
        "request.rows, request.branches)",
        "request.rows)",
    ),
    Bug(
        "a request that shares a pass is evaluated from the start of its chunk",
        LlamaSequence.evaluate,
        "start = len(self._cached)",
        "start = max(0, len(self._cached) - 1)",
    ),
    Bug(
        "a chunk keeps what it evaluated before, whatever it was",
        LlamaSequence.evaluate,
        "self.reuse(tokens, rows)",
        "pass",
    ),
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, bug.function, bug.right, bug.wrong, {"np": np})
    assert first_failing_world(monkeypatch) is not None


def asked(place: int, tokens: Sequence[int], rows: int = 1) -> tuple[int, Pass]:
    return place, Pass(Role.TARGET, tokens, rows)


def made(
    monkeypatch: pytest.MonkeyPatch, count: int, *, table: Table = TABLE, sharing: bool = True
) -> tuple[ToyNative, LlamaSequences]:
    native = ToyNative(table, n_ctx=80, n_batch=16, max_rows=16, count=count)
    return native, toy_sequences(native, count, monkeypatch.setattr, sharing=sharing)


def scheduler(native: ToyNative, sequences: LlamaSequences) -> Scheduler[int]:
    native.flag = CancelFlag()
    return Scheduler[int]({Role.TARGET: sequences}, native.flag, Stopwatch())


def writing(tokens: Sequence[int], rounds: int = 4) -> Asking:
    """Ask for the row of a prompt, and then of one token more each round; return the last choice."""
    for extra in range(rounds):
        passed = yield Pass(Role.TARGET, [*tokens, *[5] * extra], 1)
    return int(passed.logits[0].argmax())


def test_a_prefix_that_a_neighbour_has_is_copied_and_not_evaluated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    native, sequences = made(monkeypatch, 2)
    shared = [1, 2, 3, 4] * 12
    sequences.views[0].logits([*shared, 5], rows=1)
    native.asked.clear()
    assert sequences.views[1].common_prefix([*shared, 6, 7]) == len(shared)
    row = sequences.views[1].logits([*shared, 6, 7], rows=1)[0]
    assert np.array_equal(row, TABLE.row([*shared, 6, 7]))
    assert native.asked == [[2]]
    assert sequences.views[0].common_prefix([*shared, 5]) == len(shared) + 1, "it keeps its own"


def test_a_short_prefix_is_not_worth_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    native, sequences = made(monkeypatch, 2)
    sequences.views[0].logits([1] * 20, rows=1)
    native.asked.clear()
    sequences.views[1].logits([*[1] * 20, 2], rows=1)
    assert native.asked == [[16], [5]]


def test_without_sharing_every_prompt_is_evaluated_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    native, sequences = made(monkeypatch, 2, sharing=False)
    sequences.views[0].logits([1] * 60, rows=1)
    native.asked.clear()
    sequences.views[1].logits([1] * 60, rows=1)
    assert sum(sum(parts) for parts in native.asked) == 60


def test_neighbours_that_run_get_numbers_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    native, sequences = made(monkeypatch, 5)
    texts = {place: [place, 1, 2] for place in range(5)}
    for place, text in texts.items():
        sequences.views[place].logits(text, rows=1)
    sequences.close_ranks([1, 2, 4])
    together = [asked(place, [*texts[place], 3]) for place in (1, 2, 4)]
    for (_, request), rows in zip(together, sequences.together(together), strict=True):
        assert np.array_equal(rows[0], TABLE.row(request.tokens))
    assert native.splits[-1] == 1
    assert native.asked[-1] == [1, 1, 1], "nothing was evaluated again"
    native.asked.clear()
    for place in (0, 3):  # the first one has made room
        row = sequences.views[place].logits([*texts[place], 4], rows=1)[0]
        assert np.array_equal(row, TABLE.row([*texts[place], 4]))
    assert native.asked == [[4], [1]]


def test_who_has_to_make_room_forgets_what_it_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, sequences = made(monkeypatch, 3)
    for place in range(3):
        sequences.views[place].logits([place, 1], rows=1)
    sequences.close_ranks([0, 2])
    sequences.together([asked(0, [0, 1, 3]), asked(2, [2, 1, 3])])
    assert sequences.views[1].n_cached == 0
    assert np.array_equal(sequences.views[1].logits([1, 1], rows=1)[0], TABLE.row([1, 1]))


def test_the_emptier_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    _, sequences = made(monkeypatch, 4)
    sequences.views[1].logits([1] * 9, rows=1)
    numbers = [each.number for each in sequences.views]
    sequences.close_ranks([0, 3])
    assert sequences.views[1].number == numbers[1]
    assert sequences.views[1].n_cached == 9


def check_nothing_is_evaluated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one be at its prompt between two that write, whose passes would go around it."""
    native, sequences = made(monkeypatch, 3)
    native.can_copy = False
    schedule = scheduler(native, sequences)
    for place in range(3):
        schedule.start(place, writing([place], rounds=1 if place == 1 else 9))
    schedule.step()
    schedule.start(1, writing([1] * 60, rounds=1))
    native.asked.clear()
    while 1 not in schedule.free:
        schedule.step()
    chunks = [parts[0] for parts in native.asked if parts[0] > 1]
    assert chunks == [16, 16, 16, 11], "all but the first token, which it had"


def test_whoever_runs_keeps_what_it_has_though_it_takes_no_part_in_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_nothing_is_evaluated_again(monkeypatch)
    plant(
        monkeypatch,
        Scheduler._passes,
        "model.close_ranks(sorted(self._running))",
        "model.close_ranks(slots)",
    )
    with pytest.raises(AssertionError):
        check_nothing_is_evaluated_again(monkeypatch)


def test_a_prefix_that_a_neighbour_has_is_copied_under_the_scheduler_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    native, sequences = made(monkeypatch, 2)
    schedule, shared = scheduler(native, sequences), [1, 2, 3, 4] * 12
    schedule.start(0, writing([*shared, 5], rounds=9))
    for _ in range(5):
        schedule.step()
    native.asked.clear()
    schedule.start(1, writing([*shared, 6, 7], rounds=1))
    (ended,) = schedule.step()
    assert ended.value == TABLE.row([*shared, 6, 7]).argmax()
    assert native.asked == [[2], [1]]


def test_a_pass_that_fails_is_made_again_for_each_alone_and_only_the_guilty_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    native, sequences = made(monkeypatch, 3)
    schedule = scheduler(native, sequences)
    native.fails = lambda part: 8 in part.tokens

    def asking(tokens: list[int]) -> Asking:
        yield Pass(Role.TARGET, tokens, 1)
        passed = yield Pass(Role.TARGET, [*tokens, 8 if tokens[0] == 1 else 2], 1)
        return int(passed.logits[0].argmax())

    for place in range(3):
        assert schedule.start(place, asking([place])) == []
    ended: dict[int, Any] = {}
    while schedule.running:
        ended |= {each.slot: each for each in schedule.step()}
    assert "poisoned" in str(ended[1].error)
    for place in (0, 2):
        assert ended[place].value == TABLE.row([place, 2]).argmax()


def test_a_prompt_is_evaluated_in_the_chunks_that_it_has_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Even while others run, and whatever they ask for."""
    native, sequences = made(monkeypatch, 2)
    schedule = scheduler(native, sequences)
    schedule.start(0, writing([1], rounds=9))
    schedule.step()
    native.asked.clear()
    schedule.start(1, writing([3] * 37))
    for _ in range(3):
        schedule.step()
    assert native.asked == [[16], [1], [16], [1], [5], [1, 1]]


def test_more_rows_than_a_pass_has_make_another_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    native = ToyNative(TABLE, n_ctx=80, n_batch=16, max_rows=2, count=4)
    schedule = scheduler(native, toy_sequences(native, 4, monkeypatch.setattr))
    for place in range(4):
        schedule.start(place, writing([place], rounds=9))
    schedule.step()
    native.asked.clear()
    schedule.step()
    assert native.asked == [[1, 1], [1, 1]]
