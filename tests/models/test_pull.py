import shutil
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants
from msgspec.structs import replace

from localspec.errors import ModelUnavailable
from localspec.models import pull as module
from localspec.models.entries import HubSource, ModelEntry
from localspec.models.pull import MOST_AT_ONCE, bytes_to_fetch, obtain_together, require_room
from localspec.models.store import Store
from localspec.models.transfer import Progress, Report
from tests.models.sources import entry_for
from tests.waiting import PATIENCE_S

ENTRIES = [entry_for(name.encode() * 100, name=name) for name in ("a", "b", "c", "d", "e")]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


class Fetching:
    """Stands in for `obtain`: counts how many are at it."""

    def __init__(self, failing: Sequence[str] = ()) -> None:
        self.failing = failing
        self.lock = threading.Lock()
        self.full = threading.Event()
        self.now = self.most = 0
        self.done: list[str] = []

    def __call__(self, entry: ModelEntry, _: Store, __: bool, report: Report) -> Path:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            if self.now == MOST_AT_ONCE:
                self.full.set()
        assert self.full.wait(PATIENCE_S)  # nobody is done before all are at it
        try:
            for done in range(5):
                time.sleep(0.005)
                report(Progress(entry.name, done, 5, "source"))
            if entry.name in self.failing:
                raise ModelUnavailable(entry.name)
            self.done.append(entry.name)
            return Path(entry.name)
        finally:
            with self.lock:
                self.now -= 1


def use(monkeypatch: pytest.MonkeyPatch, fetching: Fetching) -> Fetching:
    monkeypatch.setattr(module, "obtain", fetching)
    return fetching


def test_several_arrive_side_by_side_and_not_too_many(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetching = use(monkeypatch, Fetching())
    seen: list[Progress] = []
    assert obtain_together(ENTRIES, store, progress=seen.append) == [Path(n) for n in "abcde"]
    assert fetching.most == MOST_AT_ONCE
    assert len(seen) == 25


def test_where_one_fails_the_others_are_brought_to_their_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetching = use(monkeypatch, Fetching(["b", "d"]))
    with pytest.raises(ModelUnavailable, match="b"):
        obtain_together(ENTRIES, store)
    assert sorted(fetching.done) == ["a", "c", "e"]


def test_who_waits_no_longer_stops_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetching = use(monkeypatch, Fetching())

    def interrupt(_: Progress) -> None:
        if not interrupted:
            interrupted.append(1)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupted: list[int] = []
    monkeypatch.setattr(module, "_FAREWELL_S", PATIENCE_S)
    many = [entry_for(f"{number}".encode(), name=f"{number}") for number in range(1000)]
    with pytest.raises(KeyboardInterrupt):
        obtain_together(many, store, progress=interrupt)
    assert fetching.now == 0
    assert len(fetching.done) < len(many)


def test_a_disk_without_room_for_all_is_told_before_any_is_fetched(store: Store) -> None:
    small = [entry_for(b"x", name=name) for name in "ab"]
    large = [small[0], replace(small[1], size_bytes=10**18)]
    with pytest.raises(
        ModelUnavailable, match=r"a and b: needs 1000000000.0 GB free in .*make room"
    ):
        obtain_together(large, store)


def test_what_the_hubs_cache_has_needs_no_room(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    entry = entry_for(b"x" * 1000, HubSource("a/b", "c.gguf", None))
    assert bytes_to_fetch([entry], store) == 1000
    blob = tmp_path / "cache" / "models--a--b" / "blobs" / entry.sha256
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"x" * 999)
    assert bytes_to_fetch([entry], store) == 1000
    blob.write_bytes(b"x" * 1000)
    assert bytes_to_fetch([entry], store) == 0
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    require_room([entry], store)
    with pytest.raises(ModelUnavailable, match="make room"):
        require_room(ENTRIES, store)
