"""The store: verified bytes alone, whole or as a beginning that the next run takes up; and what goes with a name."""

import errno
import hashlib
import multiprocessing
import os
import signal
import stat
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from localspec.errors import IntegrityError, ModelUnavailable
from localspec.models.entries import PairEntry
from localspec.models.gguf import model_files
from localspec.models.inventory import inventory, plan_removal, remove
from localspec.models.names import import_file
from localspec.models.registry import Registry
from localspec.models.store import Store, model_sha256, sha256_of
from localspec.models.transfer import Partial, SourceFailedError
from tests.models.gguf_builder import model_file
from tests.models.sources import add, begin, entry_for

DATA = bytes(range(256)) * 40
ENTRY = entry_for(DATA)
SHA256 = hashlib.sha256(model_file()).hexdigest()


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
    assert [path.name for path in store.root.glob("*/*")] == [ENTRY.sha256]


def test_a_copy_is_whole(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, name, moments = tmp_path / "file", tmp_path / "model.gguf", list[int]()
    file.write_bytes(DATA)
    path = store.copy(ENTRY, file, moments.append)
    file.unlink()
    assert (path.read_bytes(), moments) == (DATA, [0, len(DATA)])
    path.unlink()
    begin(store, ENTRY, DATA[:5000])
    file.write_bytes(b"?" * 5000 + DATA[5000:])
    assert store.copy(ENTRY, file).read_bytes() == DATA, "it goes on from what was fetched"
    path.unlink()
    file.write_bytes(DATA)
    name.symlink_to(file)
    assert store.adopt(ENTRY, name) == store.path_of(ENTRY) == path
    assert path.readlink() == file
    assert [each.name for each in store.root.glob("*/*")] == [ENTRY.sha256]
    file.unlink()
    assert store.path_of(ENTRY) is None
    add(store, ENTRY, DATA)
    assert not path.is_symlink()
    path.unlink()
    file.write_bytes(DATA)
    monkeypatch.setattr(Path, "symlink_to", Mock(side_effect=OSError(errno.EPERM, "No")))
    assert not store.adopt(ENTRY, file).samefile(file)
    assert path.read_bytes() == DATA


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


def test_other_bytes_do_not_enter(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "file"
    for data in (DATA[:-1], DATA + b"x", DATA[:-1] + b"x", b""):
        with pytest.raises(IntegrityError, match=r"the (size|sha256) is .*, not "):
            add(store, ENTRY, data)
        file.write_bytes(data)
        with pytest.raises(IntegrityError):
            store.copy(ENTRY, file)
        with pytest.raises(IntegrityError):
            store.adopt(ENTRY, file)
        assert store.path_of(ENTRY) is None
        assert unfinished(store) == []


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, OSError, RuntimeError])
def test_an_interrupted_beginning_stays(store: Store, raised: type[BaseException]) -> None:
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


def test_nothing_enters_a_full_disk(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, "No space")))
    with pytest.raises(OSError, match="No space"):
        add(store, ENTRY, DATA)
    assert store.path_of(ENTRY) is None


def build_until_killed(root: Path, ready: Path) -> None:
    def build(partial: Partial) -> None:
        partial.write(DATA[:5000], 0)
        ready.touch()
        signal.pause()

    Store(root).receive(ENTRY, lambda _: None, build)


def test_what_a_killed_process_left_is_taken_up(store: Store, tmp_path: Path) -> None:
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


def test_a_tail_that_did_not_reach_the_disk_costs_one_more_fetch(store: Store) -> None:
    begin(store, ENTRY, DATA[:5000])
    (blob,) = (store.root / "partial").glob("*/blob")
    # After a crash of the machine a file may have its length and not its bytes.
    with blob.open("r+b") as file:
        file.seek(-2000, os.SEEK_END)
        file.write(bytes(2000))
    offsets: list[int] = []

    def fetch(partial: Partial) -> None:
        offsets.append(partial.size_bytes)
        partial.write(DATA[partial.size_bytes :], partial.size_bytes)

    assert store.receive(ENTRY, lambda _: None, fetch).read_bytes() == DATA
    assert offsets == [5000, 0]


def test_a_disk_may_take_only_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with closing(Partial(ENTRY, tmp_path)) as opened:
        written = opened._file.write(DATA[:1000])
        monkeypatch.setattr(opened, "_file", Mock(write=Mock(side_effect=[written, full])))
        with pytest.raises(OSError, match="No space"):
            opened.write(DATA[:5000], 0)
        monkeypatch.undo()
    for size in (1000, 0):
        with closing(Partial(ENTRY, tmp_path)) as opened:
            assert opened.size_bytes == size
        (tmp_path / "blob").write_bytes(DATA + b"x")


def hashed(file: Path, root: Path) -> tuple[str, bool]:
    """Return the hash, and whether the file was read for it."""
    shares: list[float] = []
    return model_sha256(model_files(file), root, shares.append), shares != []


def test_a_file_is_read_once_until_it_changes(tmp_path: Path) -> None:
    root, file = tmp_path / "data", tmp_path / "model.gguf"
    root.mkdir()
    file.write_bytes(model_file())
    for read in (True, False):
        assert hashed(file, root) == (SHA256, read)
    assert str(file) not in (root / "hashes.json").read_text()
    os.utime(file, ns=(1, 1))
    for damaged in (None, "{", "[]", '{"a": 5}'):
        if damaged is not None:
            (root / "hashes.json").write_text(damaged)
        for read in (True, False):
            assert hashed(file, root) == (SHA256, read)
    assert hashed(file, tmp_path / "no place for it") == (SHA256, True)
    for folder in ("data/blobs", "hub/models--a--b/blobs"):
        # As imported files lie there: a link to the user's own, which has another name.
        blob = tmp_path / folder / SHA256
        blob.parent.mkdir(parents=True)
        blob.symlink_to(file)
        (tmp_path / folder / "snapshot.gguf").symlink_to(blob)
        assert hashed(blob, root) == (SHA256, False)
        assert hashed(tmp_path / folder / "snapshot.gguf", root) == (SHA256, False)
    file.write_bytes(DATA * 200)
    shares: list[float] = []
    assert sha256_of(file, shares.append) == hashlib.sha256(DATA * 200).hexdigest()
    assert shares == [pytest.approx((1 << 20) / len(DATA * 200)), 1.0]


SOME = {name: name.encode() * 100 for name in ("large", "other", "small")}
MODELS = {name: entry_for(data, name=name) for name, data in SOME.items()}
PAIRS = {
    "large": PairEntry("large", "large", "model", "small", "x"),
    "other-pair": PairEntry("other-pair", "other", "model", "small", "x"),
}
REGISTRY, EMPTY = Registry(MODELS, PAIRS, "large"), Registry({}, {}, "")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.gguf"
    path.write_bytes(model_file())
    return path


def add_all(store: Store, *names: str) -> None:
    for name in names:
        add(store, MODELS[name], SOME[name])


def names(store: Store, registry: Registry = REGISTRY) -> list[str]:
    return [item.name for item in inventory(registry, store)]


def rm(store: Store, *wanted: str, registry: Registry = REGISTRY) -> tuple[int, list[str]]:
    removal = plan_removal(wanted, registry, store)
    planned = removal.frees_bytes
    assert remove(removal, store) == planned
    return planned, [f"{item.name}: {why}" for item, why in removal.stays]


def places(store: Store) -> list[tuple[str, int]]:
    return [(item.where, item.here_bytes) for item in inventory(REGISTRY, store)]


def test_a_pair_goes_with_all_its_models_and_what_another_uses_stays(store: Store) -> None:
    assert rm(store, "large") == (0, []), "nothing is here"
    add_all(store, "large", "small")
    assert rm(store, "large") == (1000, [])
    assert names(store) == []
    add_all(store, "large", "other", "small")
    assert rm(store, "large") == (500, ["small: pair other-pair uses it"])
    assert names(store) == ["other", "small"]
    assert rm(store, "other") == (0, ["other: pair other-pair uses it"])
    assert rm(store, "small", "other-pair") == (1000, [])
    add_all(store, "small")
    assert rm(store, "small") == (500, []), "a pair that is not here uses nothing"


def test_a_draft_model_that_is_named_itself_goes(store: Store) -> None:
    add_all(store, "large", "small")
    assert plan_removal(["small"], REGISTRY, store).lacking == ("large",)
    assert plan_removal(["large"], REGISTRY, store).lacking == ()
    assert rm(store, "small") == (500, [])
    assert names(store) == ["large"]


def test_a_name_that_shares_its_file_goes_alone(store: Store, mine: Path) -> None:
    entry = entry_for(model_file(), name="known")
    registry = Registry({"known": entry}, {}, "")
    add(store, entry, model_file())
    import_file(mine, "mine", registry, store)
    assert rm(store, "known", registry=registry) == (0, ["known: mine is the same file"])
    assert rm(store, "mine", registry=registry) == (0, [])
    assert names(store, registry) == ["known"]
    assert rm(store, "known", registry=registry) == (entry.size_bytes, [])


def test_a_file_of_others_stays(store: Store, tmp_path: Path, mine: Path) -> None:
    import_file(mine, "mine", REGISTRY, store)
    assert places(store) == [("link", len(model_file()))]
    assert rm(store, "mine") == (0, [])
    blob = tmp_path / "hub" / "models--a--b" / "blobs" / MODELS["large"].sha256
    blob.parent.mkdir(parents=True)
    blob.write_bytes(SOME["large"])
    store.adopt(MODELS["large"], blob)
    assert places(store) == [("hub cache", 500)]
    assert rm(store, "large") == (0, [])
    assert store.path_of(MODELS["large"]) is None
    path = add(store, MODELS["large"], SOME["large"])
    (tmp_path / "theirs").hardlink_to(path)
    assert rm(store, "large") == (0, [])
    assert mine.exists()
    assert blob.exists()


def test_a_damaged_file_is_listed_as_one_and_goes(store: Store) -> None:
    path = add(store, MODELS["large"], SOME["large"])
    path.chmod(0o600)
    path.write_bytes(SOME["large"][:300])
    assert places(store) == [("damaged", 300)]
    assert rm(store, "large") == (300, [])
    assert places(store) == []


def test_what_was_begun_or_forgotten_goes_too(store: Store) -> None:
    begin(store, MODELS["large"], SOME["large"][:300])
    assert places(store) == [("unfinished", 300)]
    assert rm(store, "large") == (300, [])
    assert names(store) == []
    add_all(store, "large")
    (name,) = names(store, EMPTY)
    assert name == f"sha256:{MODELS['large'].sha256[:12]}"
    for unknown in ("nobody", "", "../..", "sha256:", "/"):
        with pytest.raises(ModelUnavailable, match=f"here are {name}"):
            rm(store, name, unknown, registry=EMPTY)
    assert rm(store, name, registry=EMPTY) == (500, [])
