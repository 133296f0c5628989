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


@pytest.fixture
def after(smollm2: LlamaModel) -> Iterator[LlamaSequences]:
    sequences = LlamaSequences(smollm2, CancelFlag(), smollm2.options, 3, 8)
    yield sequences
    sequences.close()


@pytest.fixture
def before(smollm2: LlamaModel, tokens: list[int]) -> Iterator[LlamaSequences]:
    """Sequences of which two have evaluated something."""
    sequences = LlamaSequences(smollm2, CancelFlag(), smollm2.options, 3, 8)
    sequences.views[1].prefill(tokens)
    sequences.views[2].prefill(tokens[10:80])
    yield sequences
    sequences.close()


def write(directory: Path, sequences: LlamaSequences, identity: str = "a") -> None:
    """Leave behind what sequences have evaluated."""
    held = [list(each.cached) for each in sequences.views]
    KeptPrefixes(directory, sequences.views, identity).close()
    assert [list(each.cached) for each in sequences.views] == held


def read(
    directory: Path, sequences: LlamaSequences, *texts: list[int], identity: str = "a"
) -> list[int]:
    """Prepare a sequence for each text and one token more; return how many tokens each holds then."""
    kept = KeptPrefixes(directory, sequences.views, identity)
    for slot, text in enumerate(texts):
        kept.ready(slot, [*text, 1])
    return [each.n_cached for each in sequences.views]


def files(directory: Path) -> list[Path]:
    """Return the files of states, and of the shelves that should hold nothing else."""
    return [each for each in directory.glob("*/**/*") if each.is_file()]


def test_what_was_evaluated_is_there_again_to_the_bit(
    before: LlamaSequences, after: LlamaSequences, tokens: list[int], tmp_path: Path
) -> None:
    write(tmp_path / "prefixes", before)
    modes = {stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "prefixes").rglob("*")}
    assert modes == {0o700, 0o600}
    assert read(tmp_path / "prefixes", after, tokens, tokens[10:80]) == [90, 70, 0]
    assert after.views[0].cached == tuple(tokens)
    for slot, (old, text) in enumerate(((1, tokens), (2, tokens[10:80]))):
        more = Pass(Role.TARGET, [*text, *tokens[:3]], 3)
        expected = before.together([(old, more)])[0].copy()
        assert np.array_equal(after.together([(slot, more)])[0], expected)


def test_what_is_damaged_or_of_another_model_is_left_alone(
    before: LlamaSequences, after: LlamaSequences, tokens: list[int], tmp_path: Path
) -> None:
    texts = (tokens, tokens[10:80])
    write(tmp_path, before)
    assert read(tmp_path, after, *texts, identity="b") == [0, 0, 0]
    longest = max(tmp_path.rglob("target.kv"), key=lambda each: each.stat().st_size)
    content = bytearray(longest.read_bytes())
    content[len(content) // 2] ^= 1
    longest.write_bytes(content)
    (tmp_path / "nonsense").write_text("?")
    (longest.parents[1] / "7").mkdir()
    (longest.parents[1] / ".left-by-a-crash").mkdir()
    assert read(tmp_path, after, *texts) == [0, 70, 0]
    # A thread removes what is of no use.
    assert until(lambda: len(list(longest.parents[1].iterdir())) == 1)


def test_no_more_is_kept(before: LlamaSequences, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(kept_prefixes, "_HOUR_S", 0.001)  # what may be written is another matter
    monkeypatch.setattr(kept_prefixes, "MOST_STATES", 1)
    write(tmp_path, before)
    assert len(files(tmp_path)) == 2, "a header and a state"
    size = sum(each.stat().st_size for each in files(tmp_path))
    monkeypatch.setattr(kept_prefixes, "MOST_STATES", 8)
    monkeypatch.setattr(kept_prefixes, "MOST_BYTES", size + size // 2)
    write(tmp_path, before)
    assert len(files(tmp_path)) == 2
    # Two models do not fit: the older one goes.
    (shelf,) = (each for each in tmp_path.iterdir() if each.is_dir())
    os.utime(shelf, (1, 1))
    write(tmp_path, before, "b")
    assert len(files(tmp_path)) == 2
    assert not shelf.exists()


def test_each_text_is_written_once_and_one_that_goes_on_takes_the_place_of_its_beginning(
    before: LlamaSequences, after: LlamaSequences, tokens: list[int], tmp_path: Path
) -> None:
    folder, longer = tmp_path / "prefixes", [*tokens, *tokens[:80]]
    before.views[0].prefill(tokens[:80])
    write(folder, before)
    times = {each: each.stat().st_mtime_ns for each in files(folder)}
    assert len(times) == 4, "of two texts, and not of three"
    kept = KeptPrefixes(folder, after.views, "a")
    kept.ready(0, [*tokens, 1])
    kept.close()
    assert {each: each.stat().st_mtime_ns for each in files(folder)} == times
    kept = KeptPrefixes(folder, after.views, "a")
    kept.ready(0, longer)
    after.views[0].prefill(longer)
    kept.close()
    assert len(files(folder)) == 4
    before.views[0].truncate(0)
    assert read(folder, before, longer) == [170, 90, 70]


def test_a_lost_prefix_comes_back(after: LlamaSequences, tokens: list[int], tmp_path: Path) -> None:
    kept, evaluated = KeptPrefixes(tmp_path, after.views, "a"), []
    for more in ([], [7]):
        for talk in (tokens, [5, *tokens], [6, *tokens]):
            kept.ready(0, [*talk, *more])
            evaluated.append(after.views[0].prefill([*talk, *more]))
    assert evaluated[3:] == [1, 1, 1]


def test_no_answer_waits_for_the_disk(
    after: LlamaSequences, tokens: list[int], tmp_path: Path, monkeypatch: Patch
) -> None:
    save, may_write = StateCopy.save, threading.Event()

    def slow(copy: StateCopy, directory: Path) -> int:
        may_write.wait()
        return save(copy, directory)

    monkeypatch.setattr(StateCopy, "save", slow)
    more = Pass(Role.TARGET, [*tokens, 7], 1)
    expected = after.together([(0, more)])[0].copy()
    kept = KeptPrefixes(tmp_path, after.views, "a")
    kept.ready(0, tokens[::-1])
    after.views[0].prefill(tokens[::-1])
    assert not files(tmp_path)
    may_write.set()
    kept.ready(0, more.tokens)  # this one waits: it is what it wants
    assert after.views[0].cached == (*tokens, 7)
    assert np.array_equal(after.together([(0, more)])[0], expected)
    kept.close()
    assert len(files(tmp_path)) == 4


def test_what_is_still_to_be_copied_is_neither_stored_nor_written_over(
    before: LlamaSequences, after: LlamaSequences, tokens: list[int], tmp_path: Path
) -> None:
    write(tmp_path, before)
    after.views[2].prefill(tokens[5:85])
    after.close_ranks([0, 2])  # llama.cpp copies with the next pass
    kept = KeptPrefixes(tmp_path, after.views, "a")
    kept.ready(2, tokens)
    assert after.views[2].cached == tuple(tokens[5:85])
    assert len(files(tmp_path)) == 4
    after.views[2].prefill(tokens[5:86])
    kept.ready(2, tokens)
    assert after.views[2].cached == tuple(tokens)
    kept.close()
    assert len(files(tmp_path)) == 6


def test_no_more_is_written_in_an_hour_than_may_be_kept(
    before: LlamaSequences, tokens: list[int], tmp_path: Path, monkeypatch: Patch
) -> None:
    write(tmp_path, before)
    sizes = sorted(each.stat().st_size for each in tmp_path.rglob("target.kv"))
    # After all of it, there is room for the smallest once and a half: time goes by, which pays off some.
    most = sum(sizes) + sizes[0] + sizes[0] // 2
    monkeypatch.setattr(kept_prefixes, "MOST_BYTES", most)
    shutil.rmtree(next(each for each in tmp_path.iterdir() if each.is_dir()))
    write(tmp_path, before)
    assert len(files(tmp_path)) == 2, "the shortest first, and the other one not"
    # Also by another process, or for another model.
    write(tmp_path, before, "b")
    assert len(files(tmp_path)) == 2
    ledger = tmp_path / "written"
    os.utime(ledger, (ledger.stat().st_mtime - 3600,) * 2)
    write(tmp_path, before)
    assert len(files(tmp_path)) == 4
    ledger.write_text("?")
    known = {*files(tmp_path)}
    write(tmp_path, before, "b")
    assert {*files(tmp_path)} - known, "a damaged account forbids nothing"
