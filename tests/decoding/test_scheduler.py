"""Scheduler: passes of several made as one, prompts in chunks between them, and everybody's own affairs kept apart."""

import ctypes
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.model import Logits, Pass, Passed, Role
from localspec.decoding.scheduler import Ended, Scheduler
from localspec.errors import ContextOverflow, PassFailed
from tests.toy import CachedModel, Stopwatch, ToySequences, random_table

TABLE = random_table(1, n_vocab=5)
OTHER = random_table(2, n_vocab=5)
N_CTX = 64
Asking = Generator[Pass, Passed, str]


class Bench:
    def __init__(
        self, count: int, *, chunk: int | None = None, step_s: float = 0.0, **how: int
    ) -> None:
        self.flag, self.clock = CancelFlag(), Stopwatch(step_s)
        self.target, self.draft = (
            ToySequences([CachedModel(table, N_CTX) for _ in range(count)], self.flag, **how)  # type: ignore[arg-type]
            for table in (TABLE, OTHER)
        )
        self.chunks: list[tuple[int, int, int]] = []
        self.scheduler = Scheduler[str](
            {Role.TARGET: self.target, Role.DRAFT_MODEL: self.draft},
            self.flag,
            self.clock,
            shared_chunk=chunk,
            on_chunk=lambda *told: self.chunks.append(told),
        )
        self.start = self.scheduler.start

    def step(self) -> dict[int, Ended[str]]:
        return {each.slot: each for each in self.scheduler.step()}

    def steps(self, count: int) -> "Bench":
        for _ in range(count):
            self.step()
        return self

    def until(self, slot: int | None = None) -> dict[int, Ended[str]]:
        """Step until one sequence has ended, or all; return what has."""
        ended: dict[int, Ended[str]] = {}
        while slot not in ended if slot is not None else self.scheduler.running:
            ended |= self.step()
        return ended

    def evaluated(self, role: Role = Role.TARGET) -> list[dict[int, int]]:
        """Return of every pass since the last call what it evaluated by slot."""
        passes = (self.target if role is Role.TARGET else self.draft).passes
        taken = list(passes)
        passes.clear()
        return taken


def writes(prompt: Sequence[int], rounds: int = 4, drafts: int = 0) -> Asking:
    """Ask for a prompt's row and then round by round for that of one token more."""
    tokens = list(prompt)
    for _ in range(rounds):
        for drafted in range(drafts):
            passed = yield Pass(Role.DRAFT_MODEL, [*tokens, *[3] * drafted], 1)
            assert np.array_equal(passed.logits[0], OTHER.row([*tokens, *[3] * drafted]))
        draft = [3] * drafts
        try:
            passed = yield Pass(Role.TARGET, [*tokens, *draft], 1 + drafts)
        except Cancelled:
            return "cancelled"
        for row in range(1 + drafts):
            assert np.array_equal(passed.logits[row], TABLE.row([*tokens, *draft[:row]]))
        tokens.append(2)
    return "done"


def started(count: int, rounds: int = 6, **how: int) -> Bench:
    bench = Bench(count, **how)
    for slot in range(count):
        bench.start(slot, writes([slot], rounds=rounds))
    return bench


Script = tuple[tuple[int, int] | int | str, ...]
"""What happens: a slot gets a prompt of so many tokens, so many steps are made, and what went before is forgotten."""


@pytest.mark.parametrize(
    ("how", "script", "passes"),
    [
        # More than a pass may hold makes another pass.
        *(
            ((5, how), (*((at, 1) for at in range(5)), 7, "now", 1), [{0: 1, 1: 1}, {2: 1, 3: 1}, {4: 1}])
            for how in ({"most_rows": 2}, {"n_batch": 2})
        ),
        # A prompt has the chunks that it has alone.
        ((2, {"n_batch": 16}), ((0, 1), 2, "now", (1, 37), 4), [{1: 16}, {0: 1}, {1: 16}, {0: 1}, {1: 5}, {0: 1, 1: 1}]),
        # Where nobody is answered it is cut into whole ones; beside an answer into short ones, if that is asked for,
        ((2, {"chunk": 4, "n_batch": 16}), ((1, 17), 1), [{1: 16}, {1: 1}]),
        ((3, {"chunk": 4, "n_batch": 16}), ((0, 20), (1, 20), (2, 20), 4), [{0: 16}, {0: 4}, {0: 1}, {1: 4}]),
        # and the last chunk takes what would not be worth a pass of its own.
        (
            (2, {"chunk": 4, "n_batch": 16}),
            ((1, 17), 3, "now", (0, 9), 4),
            [{0: 4}, {1: 1}, {0: 5}, *[{0: 1, 1: 1}] * 2],
        ),
        # Short prompts share what a long one may hold up: a third would be more than a chunk.
        (
            (4, {"chunk": 8, "n_batch": 16}),
            ((3, 1), 3, "now", (0, 4), (1, 4), (2, 4), 4),
            [{0: 4}, {1: 4}, {0: 1, 1: 1, 3: 1}, {2: 4}, {0: 1, 1: 1, 2: 1, 3: 1}],
        ),
        # A short prompt goes before the rest of a long one; of those about as long the first.
        ((2, {"n_batch": 4}), ((0, 60), 1, (1, 5), 3), [{0: 4}, {1: 4}, {1: 1}]),
        ((2, {"n_batch": 4}), ((0, 30), (1, 20), 7), [{0: 4}] * 7),
        ((3, {"n_batch": 4}), ((2, 12), (0, 12), (1, 12), 5), [{2: 4}, {2: 4}, {2: 4}, {2: 1}, {0: 4}]),
    ],
)  # fmt: skip
def test_passes_are_made_as_prompts_and_answers_need_them(
    how: tuple[int, dict[str, int]], script: Script, passes: list[dict[int, int]]
) -> None:
    bench = Bench(how[0], **how[1])
    for each in script:
        if isinstance(each, tuple):
            bench.start(each[0], writes([each[0] % 5] * each[1], rounds=9))
        elif isinstance(each, int):
            bench.steps(each)
        else:
            bench.evaluated()
    assert bench.evaluated()[: len(passes)] == passes


def test_a_first_token_is_there_before_the_next_pass_and_holds_nobody_up() -> None:
    bench, came = Bench(2), list[tuple[int, int]]()

    def asking(slot: int) -> Asking:
        for count in range(3):
            yield Pass(Role.TARGET, [1] * (4 + count), 1)
            came.append((slot, count))
        return "done"

    bench.start(0, asking(0))
    bench.step()
    assert came == [(0, 0)], "who waits for it gets it now"
    bench.start(1, asking(1))
    bench.steps(2)
    assert came == [(0, 0), (0, 1), (1, 0)], "a round comes before another prompt"
    bench.until()
    assert bench.evaluated() == [{0: 4}, {0: 1}, {1: 4}, {0: 1, 1: 1}, {1: 1}]


def test_what_is_asked_for_is_made_as_one_pass_of_each_model_and_chunks_are_reported() -> None:
    bench = Bench(3)
    for slot in range(3):
        bench.start(slot, writes([slot, 1], rounds=9, drafts=2))
    bench.steps(7)
    for role in Role:
        bench.evaluated(role)
    bench.step()
    assert bench.evaluated() == [{0: 3, 1: 3, 2: 3}]
    assert bench.evaluated(Role.DRAFT_MODEL) == [{0: 1, 1: 1, 2: 1}] * 2
    bench = Bench(1, n_batch=16, at_once=4)
    bench.start(0, writes([3] * 24))
    bench.step()
    bench.target.at_once = 8  # what the model takes now
    bench.steps(2)
    assert bench.chunks == [(0, 4, 24), (0, 12, 24)]
    assert bench.evaluated()[2] == {0: 12}, "the last one takes what is left"


class SlowToRemove(CachedModel):
    def truncate(self, n_past: int) -> None:
        self.truncate_s += n_past < len(self.cells)
        super().truncate(n_past)


def test_removing_is_charged_to_the_sequence_that_something_is_removed_from() -> None:
    bench = Bench(2, n_batch=4)
    bench.target.views = [SlowToRemove(TABLE, N_CTX) for _ in range(2)]
    removed: dict[int, list[float]] = {0: [], 1: []}

    def asking(slot: int, *prompts: list[int]) -> Asking:
        for prompt in prompts:
            removed[slot].append((yield Pass(Role.TARGET, prompt, 1)).truncate_s)
        return "done"

    bench.start(0, asking(0, *([1] * length for length in range(2, 10))))
    bench.start(1, asking(1, [2, 2, 3], [2, 1], [2, 1, 2], [2, 1, 2, 4], [3] * 9))  # that in chunks
    bench.until()
    assert removed == {0: [0] * 8, 1: [0, 1, 0, 0, 1]}


@given(
    chunk=st.integers(2, 8),
    shared=st.booleans(),
    answered=st.booleans(),
    short=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8)), max_size=3),
)
def test_short_prompts_begin_within_two_chunks_and_a_long_one_loses_a_tenth(
    chunk: int, shared: bool, answered: bool, short: list[tuple[int, int]]
) -> None:
    length = 240
    coming = [(at, min(tokens, chunk)) for at, tokens in sorted(short)]
    alone, beside = (Bench(5, n_batch=chunk, chunk=chunk if shared else None) for _ in range(2))
    for bench in (alone, beside):
        bench.target.views = [CachedModel(TABLE, length + 8) for _ in range(5)]
        if answered:
            bench.start(4, writes([4], rounds=length))
            bench.step()
        bench.start(0, writes([1] * length, rounds=1))
    waited, ended = dict[int, int](), dict[int, Any]()
    while 0 not in ended:
        ended = alone.step()
    cut, fed, step, ended = alone.chunks, 0, 0, {}
    beside.evaluated()
    while 0 not in ended:
        while coming and coming[0][0] <= step:
            slot = next(each for each in range(1, 4) if each in beside.scheduler.free)
            beside.start(slot, writes([2 + slot % 3] * coming.pop(0)[1], rounds=1))
            waited[slot] = 0
        ended = beside.step()
        step += 1
        for each in beside.evaluated():
            fed += sum(count for slot, count in each.items() if slot != 4)
            for slot in waited.keys() - each.keys():
                waited[slot] += 0 in each
        for slot in ended.keys() & waited.keys():
            assert ended[slot].value == "done"
            assert waited.pop(slot) <= 2
    assert ended[0].value == "done"
    assert [each for each in beside.chunks if each[0] == 0] == cut
    assert all(chunks <= 2 for chunks in waited.values())
    assert fed <= 1.1 * length


def test_a_stream_of_short_prompts_starves_no_long_one() -> None:
    bench = Bench(3, n_batch=4)
    bench.start(0, writes([1] * 60, rounds=1))
    ended: dict[int, Any] = {}
    begun = short = 0
    while 0 not in ended:
        for slot in bench.scheduler.free:
            bench.start(slot, writes([begun % 5, 2, 2, 2], rounds=1))
            begun += 1
        ended = bench.step()
        short += len(ended)
    assert ended[0].value == "done"
    assert 8 <= short <= 20, "about every second chunk is of a short one"


def draws_once(length: int) -> Asking:
    yield Pass(Role.DRAFT_MODEL, [4] * length, 1)
    return "done"


@pytest.mark.parametrize(
    ("length", "n_batch", "parts", "shares"),
    [
        (17, 1 << 16, [17], True),  # a little behind
        (18, 1 << 16, [18], False),
        (12, 8, [8, 4], False),  # by more than a pass holds
    ],
)
def test_a_draft_model_that_is_a_little_behind_catches_up_beside_the_others(
    length: int, n_batch: int, parts: list[int], *, shares: bool
) -> None:
    bench = Bench(2, n_batch=n_batch)
    bench.start(0, writes([1, 2], drafts=1))
    bench.start(1, draws_once(length))
    assert bench.until(1)[1].value == "done"
    passes = [each for each in bench.evaluated(Role.DRAFT_MODEL) if 1 in each]
    assert [each[1] for each in passes] == parts
    assert (0 in passes[0]) is shares


class Refusing(ToySequences):
    __slots__ = ()
    refused = ContextOverflow("4 tokens do not fit")

    def together(self, asked: Sequence[tuple[int, Pass]]) -> list[Logits]:
        if any((len(request.tokens) > 3 and slot == 1) for slot, request in asked):
            raise self.refused
        return super().together(asked)


def broken() -> Asking:
    yield Pass(Role.TARGET, [1], 1)
    raise ZeroDivisionError


def wide() -> Asking:
    yield Pass(Role.TARGET, [1], 1)
    yield Pass(Role.TARGET, [1] * 7, 6)
    return "done"


@pytest.mark.parametrize(
    ("guilty", "poison", "refusing", "error"),
    [
        (writes([1]), 3, False, PassFailed),  # a shared pass is made again for each alone
        (writes([3] * 30), 10, False, PassFailed),  # a chunk of a prompt
        (writes([1]), None, True, ContextOverflow),
        (wide(), None, True, ContextOverflow),  # more rows than a pass gives
        (broken(), None, False, ZeroDivisionError),
    ],
    ids=["pass", "chunk", "refused", "wide", "broken"],
)
def test_what_goes_wrong_of_a_sequence_is_its_own_affair(
    guilty: Asking, poison: int | None, refusing: bool, error: type[Exception]
) -> None:
    bench = Bench(3, n_batch=4)
    if refusing:
        bench.target.__class__ = Refusing
    for slot in range(3):
        bench.start(slot, guilty if slot == 1 else writes([slot]))
    if poison is not None:
        bench.target.poison[1] = poison
    ended = bench.until()
    assert isinstance(ended[1].error, error)
    assert ended[1].value is None
    assert (ended[0].value, ended[2].value) == ("done", "done")


# Cancelling: `test_planted_bugs` shows that companies catch the rest.


def test_one_that_is_cancelled_ends_at_the_next_step_and_the_flag_ends_all() -> None:
    bench = started(4, 30).steps(6)
    bench.scheduler.cancel(1)
    assert bench.step()[1].value == "cancelled"
    assert not bench.flag.is_set
    # What was evaluated of an interrupted pass counts for the others.
    passes = iter(range(100))
    bench.target.on_pass = lambda: bench.scheduler.cancel(3) if next(passes) == 0 else None
    bench.evaluated()
    bench.steps(2)
    assert bench.evaluated() == [{0: 1, 2: 1, 3: 1}, {0: 1, 2: 1}]
    bench.start(3, writes([3] * 6, rounds=6))
    bench.step()
    bench.flag.set()
    ended: dict[int, Any] = {}
    for _ in range(4):
        ended |= bench.step()
    assert {slot: each.value for slot, each in ended.items()} == dict.fromkeys(
        (0, 2, 3), "cancelled"
    )
    assert (bench.scheduler.running, bench.flag.is_set) == (0, True)


def test_what_is_dropped_is_closed_and_leaves_its_slot() -> None:
    bench, said = Bench(2), []

    def closing() -> Asking:
        try:
            yield Pass(Role.TARGET, [1], 1)
        finally:
            said.append("closed")
        return "done"

    bench.start(0, closing())
    bench.start(1, writes([2]))
    bench.scheduler.drop(0)
    assert said == ["closed"]
    assert bench.scheduler.free == [0]
    bench.scheduler.drop(0)
    assert bench.scheduler.running == 1


# What they took.


class Slow(ToySequences):
    clock: Stopwatch

    def _evaluate(self, asked):  # type: ignore[no-untyped-def]
        answers = super()._evaluate(asked)
        self.clock.now_s += sum(self.passes[-1].values())
        return answers


def test_of_a_shared_pass_each_is_charged_its_share() -> None:
    clock, flag = Stopwatch(0.0), CancelFlag()
    target = Slow([CachedModel(TABLE, N_CTX) for _ in range(2)], flag)
    target.clock = clock
    scheduler = Scheduler[str]({Role.TARGET: target}, flag, clock)
    told: dict[int, list[Passed]] = {0: [], 1: []}

    def asking(slot: int, prompt: list[int], rows: int) -> Asking:
        for _ in range(3):
            told[slot].append((yield Pass(Role.TARGET, prompt, rows)))
            prompt = [*prompt, *[2] * rows]
        return "done"

    scheduler.start(0, asking(0, [1], 1))
    scheduler.step()
    scheduler.start(1, asking(1, [3] * 8, 3))
    while scheduler.running:
        scheduler.step()
    assert [each.seconds for each in told[0]] == [1.0, 1.0, 1.0]
    assert [each.waited_s for each in told[0]] == [0.0, 11.0, 3.0]
    assert [each.seconds for each in told[1]] == [8.0, 3.0, 3.0]
    assert [each.waited_s for each in told[1]] == [0.0, 1.0, 1.0]


# The flag.


@pytest.mark.parametrize(
    ("calls", "is_set", "stops_all"),
    [
        ((), False, False),
        (("set", "set"), True, True),
        (("set", "clear"), False, False),
        (("interrupt",), True, False),
        (("interrupt", "resume"), False, False),
        (("interrupt", "set", "resume"), True, True),
        (("set", "interrupt", "resume"), True, True),
        (("set", "interrupt", "resume", "clear"), False, False),
    ],
)
def test_native_code_reads_a_flag(calls: tuple[str, ...], is_set: bool, stops_all: bool) -> None:
    flag, other = CancelFlag(), CancelFlag()
    for name in calls:
        getattr(flag, name)()
    assert (flag.is_set, flag.stops_all, other.is_set) == (is_set, stops_all, False)
    assert len(ctypes.string_at(flag.address)) == is_set
