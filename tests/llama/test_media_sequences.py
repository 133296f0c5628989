"""Sequences with pictures in them, in random worlds over a toy context: right rows, whole chunks, right positions."""

from collections.abc import Generator, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.decoding.cancel import Cancelled
from localspec.decoding.model import Pass, Passed, Role
from localspec.decoding.scheduler import Scheduler
from localspec.errors import PassFailed
from localspec.llama.media_ids import (
    chunk_end,
    chunk_start,
    last_chunk_end,
    media_ids,
    positions,
    text_end,
)
from localspec.llama.sequence import LlamaSequence
from tests.llama.toy_native import ToyNative, toy_sequences
from tests.support.planting import Bug, plant, table_of
from tests.toy import Stopwatch, random_table

Patch = pytest.MonkeyPatch

TABLE = random_table(3, n_vocab=10, window=64)
N_CTX, N_BATCH = 120, 8
WORLDS = 250


class ToyEncoder:
    """Stands in for `Encoder`: a chunk is its ids. Its encoding fails where `failures` has an error."""

    most_at_once = 0

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.chunks = 0

    def chunk(self, ids: Sequence[int]) -> tuple[int, ...]:
        self.chunks += 1
        if self.failures:
            raise self.failures.pop()
        return tuple(ids)


class World:
    """Sequences over a toy, and texts with pictures that begin alike."""

    def __init__(self, random: Random, patch: Patch) -> None:
        self.random, self.count = random, random.choice((1, 1, 2, 3))
        self.native = ToyNative(TABLE, N_CTX, N_BATCH, 8, self.count)
        self.native.encoder = self.encoder = ToyEncoder()
        self.native.chunk = random.choice((3, N_BATCH))
        self.native.most_behind = 0
        if self.count == 1 and random.random() < 0.3:
            self.native.can_truncate, self.native.n_snapshots = False, random.choice((0, 2, 5))
        patch.setattr("localspec.llama.sequences._WORTH_COPYING", 2)
        self.sequences = toy_sequences(self.native, self.count, patch.setattr)
        self.mrope = random.random() < 0.6
        self.pieces = [self._piece(number) for number in range(6)]
        self.chunks = {tuple(each) for each in self.pieces if each[0] < 0}
        self.texts = [self._text()]

    def _piece(self, number: int) -> list[int]:
        random = self.random
        if random.random() < 0.6:
            tokens = random.choice((1, 2, 5, N_BATCH, 19))
            taken = random.randint(1, tokens) if self.mrope else tokens
            return media_ids(str(number), tokens, taken)
        return [random.randrange(10) for _ in range(random.choice((1, 3, N_BATCH, 13)))]

    def _text(self) -> list[list[int]]:
        return [self.random.choice(self.pieces) for _ in range(self.random.randint(0, 4))]

    def prompt(self) -> list[int]:
        """Return a text that begins as another one did, with some tokens of text at its end."""
        known = self.random.choice(self.texts)
        text = [*known[: self.random.randint(0, len(known))], *self._text()]
        self.texts.append(text)
        tokens = [token for piece in text for token in piece][: N_CTX - 20]
        while (
            tokens
            and tokens[-1] < 0
            and not any(tuple(tokens[-len(each) :]) == each for each in self.chunks)
        ):
            tokens.pop()  # of a chunk that is not whole
        return [*tokens, *(self.random.randrange(10) for _ in range(self.random.randint(1, 9)))]

    def step(self) -> None:
        """Do something, which may fail; check what was computed."""
        random = self.random
        slots = random.sample(range(self.count), random.randint(1, self.count))
        trouble = random.random()
        if trouble < 0.1:
            self.encoder.failures.append(random.choice((Cancelled(), PassFailed("no"))))
        elif trouble < 0.25:
            after = random.randint(0, 4)
            self.native.on_pass = lambda: self._ring(after)
        elif trouble < 0.35:
            most = random.randrange(N_CTX)
            self.native.fails = lambda part: part.place + len(part.tokens) > most
        try:
            self._ask(slots)
        except (Cancelled, PassFailed):
            pass
        finally:
            self.encoder.failures.clear()
            self.native.on_pass, self.native.fails = lambda: None, lambda _: False
            self.native.flag.clear()
            self._passes = 0
        self.check()

    _passes = 0

    def _ring(self, after: int) -> None:
        self._passes += 1
        if self._passes > after:
            self.native.flag.set()

    def _ask(self, slots: list[int]) -> None:
        random, views = self.random, self.sequences.views
        tokens, view = self.prompt(), views[slots[0]]
        match random.randrange(5):
            case 0:
                view.truncate(random.randint(0, view.n_cached))
            case 1:
                view.prefill(tokens)
            case 2:
                left = len(tokens) - view.common_prefix(tokens[:-1])
                if left > 1:
                    request = Pass(Role.TARGET, tokens, 1)
                    before = len(tokens) - self.sequences.missing(slots[0], request)
                    count = self.sequences.evaluate(slots[0], request, min(left - 1, N_BATCH))
                    assert view.n_cached >= before
                    assert count > 0
            case _:
                # A prompt goes by itself, and rounds go on together.
                request, slot = Pass(Role.TARGET, tokens, 1), slots[0]
                while (missing := self.sequences.missing(slot, request)) > N_BATCH:
                    self.sequences.evaluate(slot, request, min(N_BATCH, missing - 1))
                (rows,) = self.sequences.together([(slot, request)])
                check_rows(tokens, rows)
                texts = {slot: tokens}
                texts |= {each: list(views[each].cached) for each in slots[1:2]}
                asked = [(slot, self._round(text)) for slot, text in texts.items()]
                for (_, request), rows in zip(asked, self.sequences.together(asked), strict=True):
                    check_rows(request.chain, rows[: request.rows - len(request.branches)])
                    for at, row in zip(
                        request.branches, rows[-len(request.branches) :], strict=False
                    ):
                        branch = request.tokens[len(request.chain) + request.branches.index(at)]
                        assert np.array_equal(row, TABLE.row([*request.tokens[:at], branch]))

    def _round(self, text: list[int]) -> Pass:
        """Return a request for a token that was chosen just now, a draft, and a branch of it."""
        drafted = [self.random.randrange(10) for _ in range(self.random.randint(0, 2))]
        tokens = [*text, 4, *drafted]
        branches = (len(text) + 1,) if self.count == 1 and drafted else ()
        rows = 1 + len(drafted) + len(branches)
        return Pass(Role.TARGET, [*tokens, *[7] * len(branches)], rows, None, branches)

    def check(self) -> None:
        """Check what sequences say that they hold against what the memory holds."""
        for view in self.sequences.views:
            cached = list(view.cached)
            if not self.native.copies_wait:
                assert self.native.content(view.number) == cached
            assert view.skipped == len(cached) - positions(cached)
            place = 0
            while place < len(cached):
                end = place + 1 if cached[place] >= 0 else chunk_end(cached, place)
                assert end == place + 1 or tuple(cached[place:end]) in self.chunks
                assert cached[place] >= 0 or tuple(cached[place:end]) in self.chunks
                place = end
            if not self.native.copies_wait:
                alone = partition(cached)
                passes = self.native.passes[view.number]
                whole = [at for at in range(view.in_chunks) if cached[at] >= 0]
                assert [passes[at] for at in whole] == [alone[at] for at in whole]
                last = view.in_chunks - 1
                assert last < 0 or cached[last] < 0 or sum(alone[last]) == view.in_chunks


def partition(tokens: Sequence[int]) -> list[tuple[int, int]]:
    """Return of each token of text the pass that evaluates it where a text is evaluated alone: where it begins, its length."""
    passes = [(0, 0)] * len(tokens)
    run = 0
    for at, token in enumerate(tokens):
        if token < 0:
            run = at + 1
            continue
        end = next((i for i in range(at, len(tokens)) if tokens[i] < 0), len(tokens))
        begin = run + (at - run) // N_BATCH * N_BATCH
        passes[at] = begin, min(N_BATCH, end - begin)
    return passes


def check_rows(tokens: Sequence[int], rows: Any) -> None:
    """Check rows that end with the one behind a text."""
    for at, row in enumerate(rows):
        assert np.array_equal(row, TABLE.row(tokens[: len(tokens) - len(rows) + 1 + at]))


def check_world(seed: int, patch: Patch) -> None:
    world = World(Random(seed), patch)
    for _ in range(12):
        world.step()


def test_sequences_hold_whole_pictures_at_their_positions(monkeypatch: Patch) -> None:
    for seed in range(WORLDS):
        check_world(seed, monkeypatch)


BUGS = table_of(
    __file__, "pictures",
    LlamaSequence._reusable, LlamaSequence.truncate, LlamaSequence._take_in, LlamaSequence.part,
    LlamaSequence.evaluate_media,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_caught(bug: Bug, monkeypatch: Patch) -> None:
    plant(monkeypatch, bug)
    with pytest.raises((AssertionError, IndexError, ValueError)):  # noqa: PT012
        for seed in range(WORLDS):
            check_world(seed, monkeypatch)


def writing(tokens: Sequence[int], rounds: int) -> Generator[Pass, Passed, int]:
    """Ask for the row of a prompt, and then of one token more each round; return the last choice."""
    for extra in range(rounds):
        passed = yield Pass(Role.TARGET, [*tokens, *[5] * extra], 1)
        check_rows([*tokens, *[5] * extra], passed.logits)
    return int(passed.logits[0].argmax())


@pytest.mark.parametrize("shared_chunk", [None, 2, 64])
def test_a_scheduler_goes_chunk_by_chunk(shared_chunk: int | None, monkeypatch: Patch) -> None:
    for seed in range(40):
        world = World(Random(seed), monkeypatch)
        progress: dict[int, list[int]] = {slot: [0] for slot in range(world.count)}
        schedule = Scheduler[int](
            {Role.TARGET: world.sequences},
            world.native.flag,
            Stopwatch(),
            shared_chunk,
            lambda slot, done, _: progress[slot].append(done),  # noqa: B023 - used at once
        )
        world.native.most_behind = 0
        ended = list[Any]()
        for slot in range(world.count):
            ended += schedule.start(slot, writing(world.prompt(), 4))
        while schedule.running:
            before = world.encoder.chunks
            ended += schedule.step()
            assert world.encoder.chunks <= before + 1, "others are answered between two pictures"
        assert [each.error for each in ended] == [None] * world.count
        for done in progress.values():
            assert done == sorted(set(done)), "every chunk is progress"


@pytest.mark.parametrize(("cancelled", "chunks"), [(0, 1), (1, 2)])
def test_a_cancel_stops_no_other_picture(cancelled: int, chunks: int, monkeypatch: Patch) -> None:
    seed = next(each for each in range(99) if World(Random(each), monkeypatch).count == 2)
    world = World(Random(seed), monkeypatch)
    encoder = world.encoder
    schedule = Scheduler[int]({Role.TARGET: world.sequences}, world.native.flag, Stopwatch(), 8)

    def chunk(ids: Sequence[int]) -> tuple[int, ...]:
        encoder.chunks += 1
        if encoder.chunks == 1:
            schedule.cancel(cancelled)
        if world.native.flag.is_set:
            raise Cancelled
        return tuple(ids)

    monkeypatch.setattr(encoder, "chunk", chunk)
    ended = schedule.start(1, writing([1, 2, 3], 40))
    ended += schedule.start(0, writing([*media_ids("a", 5, 5), *media_ids("b", 5, 5), 1, 2], 3))
    while schedule.running:
        ended += schedule.step()
    errors = {each.slot: type(each.error) for each in ended}
    assert errors == {cancelled: Cancelled, 1 - cancelled: type(None)}
    assert encoder.chunks == chunks, "none is encoded twice"


def test_a_prompt_that_ends_in_a_picture_fails_and_nothing_is_lost(monkeypatch: Patch) -> None:
    world = World(Random(1), monkeypatch)
    world.native.can_truncate = True
    view, picture = world.sequences.views[0], media_ids("x", 4, 2)
    world.chunks.add(tuple(picture))
    with pytest.raises(PassFailed, match="let text follow"):
        view.logits([1, 2, 3, *picture], 1)
    view.prefill([1, 2, 3, *picture])
    assert view.n_cached == 7
    check_rows([1, 2, 3, *picture, 4], view.logits([1, 2, 3, *picture, 4], 1))
    world.native.fails = lambda _: True
    with pytest.raises(PassFailed, match="poisoned"):
        view.prefill([1, 2, 3, *picture, 5, 6])
    assert view.n_cached == 7, "in M-RoPE, too, where all of it is at one position"


sizes = st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))
pieces = st.lists(st.one_of(sizes, st.lists(st.integers(0, 1 << 30), max_size=5)), max_size=6)


@given(pieces)
def test_ids_say_where_chunks_are(pieces: list[tuple[int, int] | list[int]]) -> None:
    tokens, expected, within = list[int](), 0, dict[int, int]()
    for number, each in enumerate(pieces):
        start = len(tokens)
        if isinstance(each, list):
            tokens += each
            expected += len(each)
            continue
        count, taken = each
        ids = media_ids(f"file {number}", count, taken)
        assert all(-(1 << 31) <= token < 0 for token in ids)
        assert len(ids) == count
        assert positions(ids) == taken
        assert chunk_end([*tokens, *ids, 5], start) == start + count
        tokens += ids
        expected += taken
        within |= {start + at: start for at in range(1, count)}
    assert positions(tokens) == expected
    for place in range(len(tokens) + 1):
        assert chunk_start(tokens, place) == within.get(place, place)
    behind = [at + 1 for at, token in enumerate(tokens) if token < 0]
    assert last_chunk_end(tokens) == max(behind, default=0)
    first = min((at - 1 for at in behind), default=len(tokens))
    assert text_end(tokens, 0, len(tokens)) == first


def test_ids_of_two_chunks_differ_in_the_first_and_are_the_same_after_a_restart() -> None:
    assert media_ids("one", 3, 3) == media_ids("one", 3, 3)
    assert media_ids("one", 3, 3)[0] != media_ids("two", 3, 3)[0]
    assert media_ids("one", 2, 1) == [-114619144, -1746247265]
