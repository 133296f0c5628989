import errno
import multiprocessing
import os
import signal
import stat
from pathlib import Path
from typing import Never

import pytest

from localspec.errors import IntegrityError
from localspec.models.store import Store
from localspec.models.transfer import Partial, SourceFailedError
from tests.models.sources import add, begin, entry_for

DATA = bytes(range(256)) * 40
ENTRY = entry_for(DATA)


def is_clean(store: Store) -> bool:
    """Return whether the store has nothing but its directories and verified files."""
    return [path for path in store.root.glob("*/*") if path.name != ENTRY.sha256] == []


def unfinished(store: Store) -> list[Path]:
    return list((store.root / "partial").glob("*"))


def test_verified_bytes_enter_under_their_sha256(store: Store) -> None:
    assert store.path_of(ENTRY) is None
    path = add(store, ENTRY, DATA)
    assert path == store.path_of(ENTRY) == store.root / "blobs" / ENTRY.sha256
    assert path.read_bytes() == DATA
    assert unfinished(store) == []
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)]
    assert modes == [0o600, 0o700]
    path.write_bytes(DATA[:100])  # a file of the wrong size counts as absent
    assert store.path_of(ENTRY) is None
    assert add(store, ENTRY, DATA).read_bytes() == DATA


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (DATA[:-1], "the size is 10239 bytes, not 10240 bytes"),
        (DATA + b"x", "the size is more bytes, not 10240 bytes"),
        (DATA[:-1] + b"x", "the sha256 is .*, not "),
        (b"", "the size is 0 bytes"),
    ],
    ids=["short", "long", "other", "none"],
)
def test_other_bytes_do_not_enter(store: Store, tmp_path: Path, data: bytes, match: str) -> None:
    with pytest.raises(IntegrityError, match=match):
        add(store, ENTRY, data)
    file = tmp_path / "file"
    file.write_bytes(data)
    with pytest.raises(IntegrityError):
        store.copy(ENTRY, file)
    with pytest.raises(IntegrityError):
        store.adopt(ENTRY, file)
    assert store.path_of(ENTRY) is None
    assert unfinished(store) == []


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, OSError, RuntimeError])
def test_what_came_before_an_interruption_stays_for_the_next_run(
    store: Store, raised: type[BaseException]
) -> None:
    def build(partial: Partial) -> None:
        partial.write(DATA[:5000], 0)
        raise raised

    with pytest.raises(raised):
        store.receive(ENTRY, lambda _: None, build)
    assert store.path_of(ENTRY) is None
    assert store.partial_bytes(ENTRY) == 5000
    assert store.beginning(ENTRY, 100) == DATA[:100]
    add(store, ENTRY, DATA)
    assert unfinished(store) == []


def test_nothing_enters_when_the_disk_does_not_take_the_bytes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> Never:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        add(store, ENTRY, DATA)
    assert store.path_of(ENTRY) is None


def test_a_copy_is_whole_and_goes_on_from_what_was_fetched(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(DATA)
    moments: list[int] = []
    path = store.copy(ENTRY, file, moments.append)
    file.unlink()
    assert path.read_bytes() == DATA
    assert moments == [0, len(DATA)]
    path.unlink()
    begin(store, ENTRY, DATA[:5000])
    file.write_bytes(b"?" * 5000 + DATA[5000:])
    assert store.copy(ENTRY, file).read_bytes() == DATA


def build_until_killed(root: Path, ready: Path) -> None:
    def build(partial: Partial) -> None:
        partial.write(DATA[:5000], 0)
        ready.touch()
        signal.pause()

    Store(root).receive(ENTRY, lambda _: None, build)


def test_what_a_live_process_builds_is_waited_for_and_what_a_killed_one_left_is_taken_up(
    store: Store, tmp_path: Path
) -> None:
    ready, context = tmp_path / "ready", multiprocessing.get_context("spawn")
    process = context.Process(target=build_until_killed, args=(store.root, ready))
    process.start()
    try:
        while not ready.exists():
            assert process.is_alive()
            process.join(0.01)
        assert store.forget_partial(ENTRY) == 0
        moments: list[int] = []

        def report(done: int) -> None:
            moments.append(done)
            process.kill()

        def break_off(partial: Partial) -> None:
            assert partial.size_bytes == 5000
            raise SourceFailedError

        with pytest.raises(SourceFailedError):
            store.receive(ENTRY, report, break_off)
    finally:
        process.kill()
        process.join()
    assert set(moments) == {5000}
    assert store.forget_partial(ENTRY) == 5000
    assert unfinished(store) == []


def add_many_times(root: Path) -> None:
    store = Store(root)
    for _ in range(30):
        path = add(store, ENTRY, DATA)
        # Another process may be between any two of its steps here: the file is always whole.
        assert path.read_bytes() == DATA


def test_processes_that_add_the_same_file_do_not_disturb_each_other(store: Store) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=add_many_times, args=(store.root,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert is_clean(store)


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    blob = tmp_path / "cache" / "blob"
    blob.parent.mkdir()
    blob.write_bytes(DATA)
    name = blob.with_name("model.gguf")
    name.symlink_to(blob)
    return name


def test_a_file_of_a_cache_is_pointed_at_until_that_is_emptied(store: Store, cached: Path) -> None:
    path = store.adopt(ENTRY, cached)
    assert path == store.path_of(ENTRY)
    assert path.readlink() == cached.resolve()
    assert is_clean(store)
    cached.resolve().unlink()
    assert store.path_of(ENTRY) is None
    add(store, ENTRY, DATA)
    assert not path.is_symlink()
    assert path.read_bytes() == DATA


def test_without_any_links_there_is_a_copy(
    store: Store, cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> Never:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", no_links)
    path = store.adopt(ENTRY, cached)
    assert not path.samefile(cached)
    assert path.read_bytes() == DATA
