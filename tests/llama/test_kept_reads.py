"""What sequences have read outlives their process, within bounds; damaged files change nothing."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from localspec.chat.request import Request
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.model import Pass, Role
from localspec.errors import ModelChanged
from localspec.llama import kept_reads
from localspec.llama.kept_reads import KeptReads
from localspec.llama.model import LlamaModel
from localspec.llama.sequences import LlamaSequences
from localspec.storage import read_store
from localspec.storage.read_store import Shelf, held
from tests.llama.conftest import OPTIONS as REAL
from tests.llama.test_cells import OPTIONS, WRITERS

Patch = pytest.MonkeyPatch

pytestmark = [pytest.mark.weights, pytest.mark.slow]

ASKED = Request(0)


class Store:
    """A folder, and sequences before and after a restart; two of the former have evaluated something."""

    def __init__(self, folder: Path, model: LlamaModel, tokens: list[int]) -> None:
        self.folder, self.tokens, self.more = folder, tokens, tokens * 3
        self.before = LlamaSequences(model, CancelFlag(), model.options, 3, 8)
        self.after = LlamaSequences(model, CancelFlag(), model.options, 2, 8)
        self.before.views[1].prefill(self.more)
        self.before.views[2].prefill(tokens[10:80])

    def kept(self, identity: str = "a", sequences: Any = None, **how: Any) -> KeptReads:
        return KeptReads(self.folder, (sequences or self.after).views, identity, **how)

    def write(self, identity: str = "a", **how: Any) -> None:
        """Leave behind what sequences have evaluated."""
        held = [list(each.cached) for each in self.before.views]
        self.kept(identity, self.before, **how).close()
        assert [list(each.cached) for each in self.before.views] == held

    def read(self, *texts: list[int], identity: str = "a", **how: Any) -> list[int]:
        """Prepare a sequence for each text and one token more; return how many tokens each holds then."""
        kept = self.kept(identity, **how)
        for slot, text in enumerate(texts):
            kept.ready(slot, [*text, 1], ASKED)
        return [each.n_cached for each in self.after.views]

    def files(self) -> dict[Path, int]:
        """Return the files of blocks, and when they were made."""
        return {each: each.stat().st_ino for each in self.folder.glob("*/*.*")}


@pytest.fixture(scope="module")
def model(six_layers_path: Path) -> Iterator[LlamaModel]:
    with closing(LlamaModel(six_layers_path, REAL)) as model:
        yield model


@pytest.fixture
def store(model: LlamaModel, tmp_path: Path, monkeypatch: Patch) -> Iterator[Store]:
    monkeypatch.setattr(kept_reads, "LEAST_S", 0.0)
    monkeypatch.setattr(kept_reads, "TIMES", 0)
    monkeypatch.setattr(kept_reads, "DISK_BYTES_S", 1e12)
    store = Store(tmp_path / "data" / "reads", model, [31 * at % 40_000 for at in range(90)])
    yield store
    store.before.close()
    store.after.close()


def test_what_was_read_is_there_again_to_the_bit_in_a_context_of_other_sequences(
    store: Store,
) -> None:
    store.write()
    tokens, before, after = store.tokens, store.before, store.after
    assert store.read(store.more, tokens[10:80]) == [270, 70]
    assert after.views[0].cached == tuple(store.more)
    for slot, (old, text) in enumerate(((1, store.more), (2, tokens[10:80]))):
        more = Pass(Role.TARGET, [*text, *tokens[:3]], 3)
        expected = before.together([(old, more)])[0].copy()
        assert np.array_equal(after.together([(slot, more)])[0], expected)


def test_a_prompt_that_is_asked_again_after_a_restart_goes_on_with_the_same_bits(
    store: Store,
) -> None:
    prompt = [*store.more, *store.tokens[:30]]
    asked = [Pass(Role.TARGET, [*prompt, *store.tokens[:each]], 1) for each in range(3)]
    evaluated = [store.before.together([(0, each)])[0].copy() for each in asked]
    store.write()
    kept = store.kept()
    kept.ready(0, prompt, ASKED)
    assert store.after.views[0].n_cached == len(prompt)
    for each, expected in zip(asked, evaluated, strict=True):
        assert np.array_equal(store.after.together([(0, each)])[0], expected)
    kept.close()


def test_another_question_gets_what_both_begin_with(store: Store) -> None:
    store.write()
    asked = [*store.more[:200], *store.tokens[:60]]
    assert store.read(asked) == [200, 0]
    files = store.files()
    more = Pass(Role.TARGET, [*asked, 1], 1)
    expected = store.before.together([(0, more)])[0].copy()
    kept = store.kept()
    kept.ready(0, [*asked, 1], ASKED)
    assert np.array_equal(store.after.together([(0, more)])[0], expected)
    kept.close()
    assert len(store.files()) == len(files) + 3, "only what is new of it, and the row behind it"
    assert files.items() <= store.files().items()


def test_what_is_damaged_or_of_another_model_is_left_alone(store: Store) -> None:
    texts = (store.more, store.tokens[10:80])
    store.write()
    assert store.read(*texts, identity="b") == [0, 0]
    chain = Shelf(store.folder, store.kept()._shelf._identity, 128).chain(store.more, "")
    (path,) = store.folder.rglob(chain[1].file)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    (store.folder / "nonsense").write_text("?")
    assert store.read(*texts) == [128, 70]
    assert not path.exists()


def test_what_is_cheap_to_read_again_or_slow_to_write_at_the_end_or_of_a_changed_file_is_not_kept(
    store: Store, monkeypatch: Patch
) -> None:
    for limits in ({"TIMES": 1e12}, {"LEAST_S": 1e6}, {"CLOSING_S": 0.0, "CLOSING_SHARE": 0.0}):
        with monkeypatch.context() as patch:
            for name, value in limits.items():
                patch.setattr(kept_reads, name, value)
            store.write()
        assert not store.files(), limits
    check = Mock(side_effect=ModelChanged("changed"))
    store.write(check=check)
    assert check.called
    assert not store.files()


def test_each_text_is_written_once_and_what_goes_on_replaces_its_beginning(store: Store) -> None:
    longer = [*store.more, *store.tokens[:80]]
    store.before.views[0].prefill(store.tokens[:80])
    store.write()
    before = store.files()
    assert len(before) == 4, "of two texts, and not of three"
    kept = store.kept()
    kept.ready(0, [*store.more, 1], ASKED)
    kept.close()
    assert store.files() == before
    kept = store.kept()
    kept.ready(0, longer, ASKED)
    store.after.views[0].prefill(longer)
    kept.close()
    assert len(store.files()) == 4
    store.after.views[0].truncate(0)
    assert store.read(longer)[0] == 350


def test_a_lost_text_comes_back(store: Store) -> None:
    kept, evaluated = store.kept(), []
    for more in ([], [7]):
        for talk in (store.more, [5, *store.more], [6, *store.more]):
            kept.keep(0, [*talk, *more])
            kept.ready(0, [*talk, *more], ASKED)
            evaluated.append(store.after.views[0].prefill([*talk, *more]))
    assert evaluated[3:] == [1, 1, 1]


def test_single_questions_leave_only_their_prompt_and_only_the_last(store: Store) -> None:
    kept, single = store.kept(), Request(0, ephemeral=True)
    for text in (store.more[5:], store.more):
        kept.keep(0, [*text, 1])
        kept.ready(0, [*text, 1], single)
        store.after.views[0].prefill([*text, 1, *store.tokens])
    assert not store.files(), "of those before, nothing comes again"
    kept.close()
    store.after.views[0].truncate(0)
    assert store.read([*store.more, 1, *store.tokens]) == [271, 0]
    assert store.read([*store.more[5:], 1])[1] == 0


def test_what_is_masked_is_not_kept(store: Store) -> None:
    kept = store.kept()
    kept.ready(0, store.more, ASKED)
    store.after.views[0].prefill([*store.more, *store.tokens])
    kept.withhold(0)
    kept.close()
    store.after.views[0].truncate(0)
    assert store.read([*store.more, *store.tokens])[0] == 270


@pytest.mark.parametrize("ephemeral", [False, True])
def test_nor_is_it_for_a_next_request_that_is_stopped_before_its_first_pass(
    store: Store, *, ephemeral: bool
) -> None:
    kept = store.kept()
    kept.ready(0, store.more, Request(0, ephemeral=ephemeral))
    store.after.views[0].prefill([*store.more, *store.tokens])
    if not ephemeral:
        kept.withhold(0)
    kept.ready(0, [*store.more[:200], 1], ASKED)
    kept.close()
    store.after.views[0].truncate(0)
    assert store.read([*store.more, *store.tokens])[0] == 200


def test_a_request_that_may_use_nothing_cached_gets_nothing(store: Store) -> None:
    store.write()
    kept = store.kept()
    kept.ready(0, [*store.more, 1], Request(0, most_cached=0))
    assert store.after.views[0].n_cached == 0
    kept.close()


def test_no_answer_waits_for_the_disk(store: Store, monkeypatch: Patch) -> None:
    write, may_write, after = Shelf.write, threading.Event(), store.after

    def slow(*given: Any) -> None:
        may_write.wait()
        write(*given)

    monkeypatch.setattr(Shelf, "write", slow)
    more, other = Pass(Role.TARGET, [*store.more, 7], 1), store.more[::-1]
    after.views[0].prefill(store.more)
    expected = after.together([(0, more)])[0].copy()
    kept = store.kept()
    kept.ready(0, more.tokens, ASKED)
    kept.keep(0, other)
    kept.ready(0, other, ASKED)
    after.views[0].prefill(other)
    assert not store.files()
    may_write.set()
    kept.keep(0, more.tokens)
    kept.ready(0, more.tokens, ASKED)  # this one waits: it is what it wants
    assert after.views[0].n_cached == 270
    assert np.array_equal(after.together([(0, more)])[0], expected)
    kept.close()


def test_a_program_that_goes_on_keeps_no_more_than_the_bound(
    store: Store, monkeypatch: Patch
) -> None:
    store.write()
    most, _ = held(store.folder)
    monkeypatch.setattr(read_store, "MOST_BYTES", most)
    (store.folder / "written").unlink()  # as when an hour has passed
    kept = store.kept()
    store.after.views[0].prefill(store.tokens[20:])
    kept.keep(0)
    kept._disk.submit(int).result()  # behind all that was written
    assert len(kept._pending) == 1
    assert held(store.folder)[0] <= most
    kept.close()


def test_a_full_disk_fails_nothing(store: Store, monkeypatch: Patch) -> None:
    calls, write = itertools.count(1), Shelf.write

    def some(shelf: Shelf, *given: Any) -> None:
        if next(calls) > 2:
            raise OSError(28, "No space left on device")
        write(shelf, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Shelf, "write", some)
        store.write()
    assert store.read(store.more)[0] in {0, 128}
    monkeypatch.setattr(read_store, "free_bytes", lambda _: 0)
    files = store.files()
    store.write()
    assert store.files() == files


def test_what_is_still_to_be_copied_is_neither_kept_nor_written_over(store: Store) -> None:
    tokens, before = store.tokens, store.before
    store.write()
    before.views[0].prefill(tokens[5:85])
    before.compact([0, 2])  # llama.cpp copies with the next pass
    kept, files = store.kept(sequences=before), store.files()
    kept.keep(0, store.more)
    kept.ready(0, store.more, ASKED)
    assert before.views[0].cached == tuple(tokens[5:85])
    assert store.files() == files
    kept.close()


def test_what_was_kept_of_one_owner_is_read_for_no_other(store: Store) -> None:
    for view in store.before.views:
        view.owner = "ann"
    store.write()
    for owner in ("bob", "", "ann "):
        for view in store.after.views:
            view.owner = owner
        assert store.read(store.more) == [0, 0]
    for view in store.after.views:
        view.owner = "ann"
    assert store.read(store.more)[0] == len(store.more)


def test_under_exact_whole_chunks_from_the_beginning_on_are_kept(store: Store) -> None:
    before = store.before.views[1]
    before.truncate(200)
    before.prefill([*before.cached, *store.more])  # from here on, in chunks that begin elsewhere
    store.write(exact=True)
    assert store.read(list(before.cached), exact=True) == [128, 0]
    assert store.after.views[0].in_chunks == 128
    assert store.read(store.more) == [128, 0], "what is exact is apart"


def test_two_programs_share_one_store(store: Store) -> None:
    one, other = store.kept(sequences=store.before), store.kept()
    other.ready(0, [*store.more, 1], ASKED)
    assert store.after.views[0].n_cached == 0
    one.close()
    other.ready(0, [*store.more, 1], ASKED)
    assert store.after.views[0].n_cached == 270
    other.close()
    assert len(store.files()) == 4


def test_what_was_said_in_a_conversation_of_the_history_is_noted(store: Store) -> None:
    kept = store.kept(sequences=store.before)
    kept._slots[1].request = Request(0, conversation=7)
    kept.close()
    read_store.forget_conversation(store.folder, 7)
    assert store.read(store.more, store.tokens[10:80]) == [0, 70]


@pytest.mark.parametrize("exact", [False, True], ids=["usual", "exact"])
@pytest.mark.parametrize("name", ["windowed", "gemma4", "qwen35", "lfm2"])
def test_of_what_cannot_be_cut_questions_branch_behind_points(
    name: str, exact: bool, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Of hybrids and windows a state is kept where questions usually branch; what goes on from there is the same to the bit."""
    for cheap, value in (("LEAST_S", 0.0), ("TIMES", 0), ("DISK_BYTES_S", 1e12)):
        monkeypatch.setattr(kept_reads, cheap, value)
    options = OPTIONS.exact() if exact else OPTIONS
    model = LlamaModel(WRITERS[name](tmp_path / "model.gguf"), options)
    random = Random(1)
    text = [random.randrange(3, 250) for _ in range(400)]
    size = options.chunk(on_gpu=False)
    point = next(each for each in range(size, 400, size) if each >= 128)
    texts = []
    for turn in range(2):
        sequences = LlamaSequences(model, CancelFlag(), options, turn + 1, 8)
        kept, view = KeptReads(tmp_path / "reads", sequences.views, "a", exact=exact), sequences.views[turn]  # fmt: skip
        asked = [*text[: point + 7], *text[turn : turn + 20]]
        kept.ready(turn, [*asked, 1], ASKED, points=(point,))
        assert view.n_cached == (point if turn else 0)
        for end in (*range(size, point + 1, size), len(asked)):
            if end > view.n_cached:
                view.prefill(asked[:end])
                kept.passed(turn)
        if turn:  # what the first one would say to this
            texts.append(sequences.together([(turn, Pass(Role.TARGET, [*asked, 5], 1))])[0].copy())
            fresh = LlamaSequences(model, CancelFlag(), options, 1, 8)
            for end in (*range(size, point + 1, size), len(asked)):
                fresh.views[0].prefill(asked[:end])
            texts.append(fresh.together([(0, Pass(Role.TARGET, [*asked, 5], 1))])[0].copy())
            fresh.close()
        kept.close()
        sequences.close()
    model.close()
    np.testing.assert_array_equal(texts[0], texts[1])
