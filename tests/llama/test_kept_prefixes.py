"""What sequences have evaluated outlives their process, within bounds; damaged files change nothing."""

import os
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from localspec.decoding.cancel import CancelFlag
from localspec.decoding.model import Pass, Role
from localspec.launch import kept_prefixes
from localspec.launch.kept_prefixes import KeptPrefixes
from localspec.llama.model import LlamaModel
from localspec.llama.sequences import LlamaSequences
from localspec.llama.state import StateCopy
from tests.waiting import until

Patch = pytest.MonkeyPatch

pytestmark = [pytest.mark.weights, pytest.mark.slow]


class Shelf:
    """A folder, and sequences before and after a restart; two of the former have evaluated something."""

    def __init__(self, folder: Path, model: LlamaModel, tokens: list[int]) -> None:
        self.folder, self.tokens = folder, tokens
        self.before, self.after = (
            LlamaSequences(model, CancelFlag(), model.options, 3, 8) for _ in range(2)
        )
        self.before.views[1].prefill(tokens)
        self.before.views[2].prefill(tokens[10:80])

    def write(self, identity: str = "a") -> None:
        """Leave behind what sequences have evaluated."""
        held = [list(each.cached) for each in self.before.views]
        KeptPrefixes(self.folder, self.before.views, identity).close()
        assert [list(each.cached) for each in self.before.views] == held

    def kept(self, identity: str = "a") -> KeptPrefixes:
        return KeptPrefixes(self.folder, self.after.views, identity)

    def read(self, *texts: list[int], identity: str = "a") -> list[int]:
        """Prepare a sequence for each text and one token more; return how many tokens each holds then."""
        kept = self.kept(identity)
        for slot, text in enumerate(texts):
            kept.ready(slot, [*text, 1])
        return [each.n_cached for each in self.after.views]

    def files(self) -> list[Path]:
        """Return the files of states, and of the shelves that should hold nothing else."""
        return [each for each in self.folder.glob("*/**/*") if each.is_file()]


@pytest.fixture
def shelf(smollm2: LlamaModel, tokens: list[int], tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path / "prefixes", smollm2, tokens)
    yield shelf
    shelf.before.close()
    shelf.after.close()


def test_what_was_evaluated_is_there_again_to_the_bit(shelf: Shelf) -> None:
    shelf.write()
    for path in (shelf.folder, *shelf.folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    tokens, before, after = shelf.tokens, shelf.before, shelf.after
    assert shelf.read(tokens, tokens[10:80]) == [90, 70, 0]
    assert after.views[0].cached == tuple(tokens)
    for slot, (old, text) in enumerate(((1, tokens), (2, tokens[10:80]))):
        more = Pass(Role.TARGET, [*text, *tokens[:3]], 3)
        expected = before.together([(old, more)])[0].copy()
        assert np.array_equal(after.together([(slot, more)])[0], expected)


def test_what_is_damaged_or_of_another_model_is_left_alone(shelf: Shelf) -> None:
    texts = (shelf.tokens, shelf.tokens[10:80])
    shelf.write()
    assert shelf.read(*texts, identity="b") == [0, 0, 0]
    longest = max(shelf.folder.rglob("target.kv"), key=lambda each: each.stat().st_size)
    content = bytearray(longest.read_bytes())
    content[len(content) // 2] ^= 1
    longest.write_bytes(content)
    (shelf.folder / "nonsense").write_text("?")
    (longest.parents[1] / "7").mkdir()
    (longest.parents[1] / ".left-by-a-crash").mkdir()
    assert shelf.read(*texts) == [0, 70, 0]
    # A thread removes what is of no use.
    assert until(lambda: len(list(longest.parents[1].iterdir())) == 1)


def test_no_more_is_kept_than_may_be(shelf: Shelf, monkeypatch: Patch) -> None:
    monkeypatch.setattr(kept_prefixes, "_HOUR_S", 0.001)  # what may be written is another matter
    monkeypatch.setattr(kept_prefixes, "MOST_STATES", 1)
    shelf.write()
    assert len(shelf.files()) == 2, "a header and a state"
    size = sum(each.stat().st_size for each in shelf.files())
    monkeypatch.setattr(kept_prefixes, "MOST_STATES", 8)
    monkeypatch.setattr(kept_prefixes, "MOST_BYTES", size + size // 2)
    shelf.write()
    assert len(shelf.files()) == 2
    # Two models do not fit: the older one goes.
    (older,) = (each for each in shelf.folder.iterdir() if each.is_dir())
    os.utime(older, (1, 1))
    shelf.write("b")
    assert len(shelf.files()) == 2
    assert not older.exists()


def test_each_text_is_written_once_and_what_goes_on_replaces_its_beginning(shelf: Shelf) -> None:
    tokens, longer = shelf.tokens, [*shelf.tokens, *shelf.tokens[:80]]
    shelf.before.views[0].prefill(tokens[:80])
    shelf.write()
    times = {each: each.stat().st_mtime_ns for each in shelf.files()}
    assert len(times) == 4, "of two texts, and not of three"
    kept = shelf.kept()
    kept.ready(0, [*tokens, 1])
    kept.close()
    assert {each: each.stat().st_mtime_ns for each in shelf.files()} == times
    kept = shelf.kept()
    kept.ready(0, longer)
    shelf.after.views[0].prefill(longer)
    kept.close()
    assert len(shelf.files()) == 4
    shelf.after.views[0].truncate(0)
    assert shelf.read(longer) == [170, 0, 0]


def test_a_lost_prefix_comes_back(shelf: Shelf) -> None:
    kept, evaluated = shelf.kept(), []
    for more in ([], [7]):
        for talk in (shelf.tokens, [5, *shelf.tokens], [6, *shelf.tokens]):
            kept.ready(0, [*talk, *more])
            evaluated.append(shelf.after.views[0].prefill([*talk, *more]))
    assert evaluated[3:] == [1, 1, 1]


def test_no_answer_waits_for_the_disk(shelf: Shelf, monkeypatch: Patch) -> None:
    save, may_write, after = StateCopy.save, threading.Event(), shelf.after

    def slow(copy: StateCopy, directory: Path) -> int:
        may_write.wait()
        return save(copy, directory)

    monkeypatch.setattr(StateCopy, "save", slow)
    more, other = Pass(Role.TARGET, [*shelf.tokens, 7], 1), shelf.tokens[::-1]
    expected = after.together([(0, more)])[0].copy()
    kept = shelf.kept()
    kept.ready(0, other)
    after.views[0].prefill(other)
    assert not shelf.files()
    may_write.set()
    kept.ready(0, more.tokens)  # this one waits: it is what it wants
    assert after.views[0].cached == (*shelf.tokens, 7)
    assert np.array_equal(after.together([(0, more)])[0], expected)
    kept.close()
    assert len(shelf.files()) == 4


def test_what_is_still_to_be_copied_is_neither_stored_nor_written_over(shelf: Shelf) -> None:
    tokens, after = shelf.tokens, shelf.after
    shelf.write()
    after.views[2].prefill(tokens[5:85])
    after.close_ranks([0, 2])  # llama.cpp copies with the next pass
    kept = shelf.kept()
    kept.ready(2, tokens)
    assert after.views[2].cached == tuple(tokens[5:85])
    assert len(shelf.files()) == 4
    after.views[2].prefill(tokens[5:86])
    kept.ready(2, tokens)
    assert after.views[2].cached == tuple(tokens)
    kept.close()
    assert len(shelf.files()) == 6


def test_no_more_is_written_in_an_hour_than_may_be_kept(shelf: Shelf, monkeypatch: Patch) -> None:
    shelf.write()
    sizes = sorted(each.stat().st_size for each in shelf.folder.rglob("target.kv"))
    # After all of it, there is room for the smallest once and a half: time goes by, which pays off some.
    monkeypatch.setattr(kept_prefixes, "MOST_BYTES", sum(sizes) + sizes[0] + sizes[0] // 2)
    shutil.rmtree(next(each for each in shelf.folder.iterdir() if each.is_dir()))
    shelf.write()
    assert len(shelf.files()) == 2, "the shortest first, and the other one not"
    # Also by another process, or for another model.
    shelf.write("b")
    assert len(shelf.files()) == 2
    ledger = shelf.folder / "written"
    os.utime(ledger, (ledger.stat().st_mtime - 3600,) * 2)
    shelf.write()
    assert len(shelf.files()) == 4
    ledger.write_text("?")
    known = {*shelf.files()}
    shelf.write("b")
    assert {*shelf.files()} - known, "a damaged account forbids nothing"


def test_what_was_kept_of_one_owner_is_read_for_no_other(shelf: Shelf) -> None:
    for view in shelf.before.views:
        view.owner = "ann"
    shelf.write()
    for owner in ("bob", "", "ann "):
        for view in shelf.after.views:
            view.owner = owner
        assert shelf.read(shelf.tokens) == [0, 0, 0]
    for view in shelf.after.views:
        view.owner = "ann"
    assert shelf.read(shelf.tokens)[0] == len(shelf.tokens)


def test_another_owner_takes_over_nothing_and_loses_nothing(shelf: Shelf) -> None:
    kept = KeptPrefixes(shelf.folder, shelf.before.views, "a")
    ann, bob = shelf.before.views[1], shelf.before.views[0]
    ann.owner, bob.owner = "ann", "bob"
    assert bob.common_prefix(shelf.tokens) < len(shelf.tokens), "it copies from no other owner"
    kept.keep(1)
    ann.truncate(0)
    ann.owner = "bob"
    kept.ready(1, [*shelf.tokens, 1])
    assert ann.n_cached == 0
    ann.owner = "ann"
    kept.ready(1, [*shelf.tokens, 1])
    assert ann.n_cached == len(shelf.tokens)
    kept.close()
