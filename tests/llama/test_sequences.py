"""LlamaSequences over a toy context: every sequence gives what it gives alone; planted bugs are caught."""

from collections.abc import Generator, Sequence
from random import Random
from typing import Any, cast

import numpy as np
import pytest

from localspec.decoding.cancel import CancelFlag
from localspec.decoding.model import Pass, Passed, Role
from localspec.decoding.scheduler import Scheduler
from localspec.llama.batch import Part
from localspec.llama.prompt_reader import PromptReader
from localspec.llama.sequence import LlamaSequence
from localspec.llama.sequences import LlamaSequences, _Slot
from localspec.options import LoadOptions
from tests.decoding.company import Hooks, Shape, check_company
from tests.decoding.worlds import seeds
from tests.llama.toy_native import ToyNative, toy_sequences
from tests.support.planting import Bug, plant, table_of
from tests.toy import Stopwatch, random_table

N_WORLDS = 2000
TABLE = random_table(3, n_vocab=9, window=64)
Asking = Generator[Pass, Passed, int]


_SMALL_LAG = 16
"""Of the scheduler: what a draft model may catch up with in a pass that it shares."""


def add_reader(
    random: Random, made: LlamaSequences, hooks: Hooks, patch: pytest.MonkeyPatch
) -> None:
    """Give sequences a reader, which takes what is long enough, and whose rooms are hardly larger than that."""
    patch.setattr("localspec.llama.prompt_reader._STEP", random.choice((1, 4, 16)))
    least, per_depth = random.choice((1, 2, 5)), random.choice((0.0, 0.3, 9.0))
    made.reader = PromptReader(
        lambda: cast("Any", None),
        lambda depth, count: count >= least + per_depth * depth,
        hooks.flag,
        LoadOptions(max_rows=1),
        made.native,
        made.native.n_ctx,
        keeps=random.random() < 0.5,
    )
    if hooks.may_forget and random.random() < 0.2:  # for want of memory, now and then
        fails = cast("ToyNative", made.native)
        fails.can_copy = random.random() < 0.5


def check_together(random: Random, patch: pytest.MonkeyPatch) -> None:
    """Let a random company write over the real sequences; see that each writes what it writes alone."""
    patch.setattr("localspec.llama.sequences._WORTH_COPYING", random.choice((1, 2, 5)))

    def make(random: Random, role: Role, shape: Shape, hooks: Hooks) -> LlamaSequences:
        rows = min(max(shape.most_rows, shape.count), shape.n_batch)
        native = ToyNative(shape.table, shape.n_ctx, shape.n_batch, rows, shape.count)
        native.chunk = min(random.choice((1, 5, shape.n_batch)), shape.n_batch)
        sharing = random.random() < 0.8
        if random.random() < 0.3:  # a recurrent state, which is rolled back for one sequence alone
            few = random.choice((0, 1, 2, 4, 7)) if shape.count == 1 else 0
            native.n_snapshots = few if hooks.may_forget else shape.n_ctx
            native.can_truncate = not (hooks.may_forget or role is Role.TARGET)
        sequences = toy_sequences(native, shape.count, patch.setattr, sharing=sharing)
        slots = {view: slot for slot, view in enumerate(sequences.views)}

        def fails(part: Part) -> bool:
            slot = next(slots[view] for view in family if view.place == part.sequence)
            return too_long(part, slot)

        def fails_there(part: Part) -> bool:
            return too_long(part, next(slots[view] for view in family if view.is_read))

        def too_long(part: Part, slot: int) -> bool:
            return part.n_past + len(part.tokens) > hooks.poison.get(slot, shape.n_ctx)

        def on_pass() -> None:
            hooks.evaluated = sum(sum(parts) for each in natives for parts in each.asked)
            hooks.on_pass()

        def another(*_: object, **_more: object) -> ToyNative:
            there = ToyNative(shape.table, shape.n_ctx, shape.n_batch, 1, 1)
            there.n_ctx = _[2].n_ctx  # type: ignore[attr-defined]
            there.chunk = native.chunk
            there.flag, there.fails, there.on_pass = hooks.flag, fails_there, on_pass
            natives.append(there)
            return there

        family = [view for view in sequences.views if isinstance(view, _Slot)]
        natives = [native]
        if role is Role.TARGET and native.can_truncate and random.random() < 0.5:
            add_reader(random, sequences, hooks, patch)
            patch.setattr("localspec.llama.prompt_reader.NativeContext", another)
        native.flag, native.fails, native.on_pass = hooks.flag, fails, on_pass
        native.most_behind = 0 if role is Role.TARGET else _SMALL_LAG
        return sequences

    check_company(random, make)


@pytest.mark.first(1)
@pytest.mark.parametrize("some", seeds(800), ids=str)
def test_sequences_write_what_they_do_alone(some: range, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in some:
        check_together(Random(seed), monkeypatch)


BUGS = table_of(
    __file__, "sequences",
    LlamaSequences.missing, LlamaSequences.together, LlamaSequences._part, LlamaSequences._move, LlamaSequences.compact,
    LlamaSequence.resync, LlamaSequence.common_prefix, LlamaSequence.truncate, LlamaSequence._reusable, LlamaSequence.evaluate,
    LlamaSequence.known_row, _Slot._copy, _Slot.enter, _Slot.is_handed_over,
)  # fmt: skip


# Bugs that few worlds show, and the first one that does: it is tried before the others.
SHOWN_BY = {
    "what a neighbour has counts as cached here": 987,
    "an idle sequence keeps what it held when its cells are given away": 90,
    "the whole prompt counts as copied": 214,
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, bug)
    with pytest.raises((AssertionError, ValueError, IndexError, KeyError)):  # noqa: PT012
        for seed in (SHOWN_BY.get(bug.name, 0), *range(N_WORLDS)):
            check_together(Random(seed), monkeypatch)


class Made:
    """Real sequences over a toy context, and a scheduler over them."""

    def __init__(self, patch: pytest.MonkeyPatch, count: int, *, sharing: bool = True) -> None:
        self.native = ToyNative(TABLE, n_ctx=80, n_batch=16, max_rows=16, count=count)
        self.sequences = toy_sequences(self.native, count, patch.setattr, sharing=sharing)
        self.views, self.native.flag = self.sequences.views, CancelFlag()
        models = {Role.TARGET: self.sequences}
        self.schedule = Scheduler[int](models, self.native.flag, Stopwatch())

    def row(self, place: int, tokens: Sequence[int]) -> list[list[int]]:
        """Check the row of a text; return the tokens of the parts of every pass that it took."""
        self.native.asked.clear()
        (row,) = self.views[place].logits(tokens, rows=1)
        assert np.array_equal(row, TABLE.row(tokens))
        return list(self.native.asked)


def writing(tokens: Sequence[int], rounds: int = 4) -> Asking:
    """Ask for the row of a prompt, and then of one token more each round; return the last choice."""
    for extra in range(rounds):
        passed = yield Pass(Role.TARGET, [*tokens, *[5] * extra], 1)
    return int(passed.logits[0].argmax())


def test_a_prefix_is_copied_and_the_emptier_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    made, shared = Made(monkeypatch, 2), [1, 2, 3, 4] * 12
    made.row(0, [*shared, 5])
    assert made.views[1].common_prefix([*shared, 6, 7]) == len(shared)
    assert made.row(1, [*shared, 6, 7]) == [[2]]
    assert made.views[0].common_prefix([*shared, 5]) == len(shared) + 1, "it keeps its own"
    for length, sharing in ((20, True), (60, False)):
        made = Made(monkeypatch, 2, sharing=sharing)
        made.row(0, [1] * length)
        assert sum(map(sum, made.row(1, [1] * length))) == length
    made = Made(monkeypatch, 2)
    made.row(0, [1] * 60)
    made.views[1].copies = False
    assert made.views[1].common_prefix([1] * 60) == 0
    assert sum(map(sum, made.row(1, [1] * 60))) == 60
    made = Made(monkeypatch, 4)
    made.row(1, [1] * 9)
    numbers = [each.number for each in made.views]
    made.sequences.compact([0, 3])
    assert (made.views[1].number, made.views[1].n_cached) == (numbers[1], 9)


def test_running_neighbours_keep_what_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(monkeypatch, 5)
    texts = {place: [place, 1, 2] for place in range(5)}
    for place, text in texts.items():
        made.row(place, text)
    made.sequences.compact([1, 2, 4])
    together = [(place, Pass(Role.TARGET, [*texts[place], 3], 1)) for place in (1, 2, 4)]
    for (_, each), rows in zip(together, made.sequences.together(together), strict=True):
        assert np.array_equal(rows[0], TABLE.row(each.tokens))
    assert made.native.splits[-1] == 1
    assert made.native.asked[-1] == [1, 1, 1], "nothing was evaluated again"
    assert made.row(0, [*texts[0], 4]) == [[4]], "it has made room, and forgot"
    assert made.row(3, [*texts[3], 4]) == [[1]]
    check_nothing_is_evaluated_again(monkeypatch)
    plant(monkeypatch, Bug("", Scheduler._passes, "call sorted", "slots"))
    with pytest.raises(AssertionError):
        check_nothing_is_evaluated_again(monkeypatch)


def check_nothing_is_evaluated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one be at its prompt between two that write, whose passes would go around it."""
    made = Made(monkeypatch, 3)
    made.native.can_copy = False
    for place in range(3):
        made.schedule.start(place, writing([place], rounds=1 if place == 1 else 9))
    made.schedule.step()
    made.schedule.start(1, writing([1] * 60, rounds=1))
    made.native.asked.clear()
    while 1 not in made.schedule.free:
        made.schedule.step()
    chunks = [parts[0] for parts in made.native.asked if parts[0] > 1]
    assert chunks == [16, 16, 16, 11], "all but the first token, which it had"
