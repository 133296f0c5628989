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

ENTRIES = [entry_for(name.encode() * 100, name=name) for name in "abcde"]


class Fetching:
    """Stands in for `obtain`: counts how many are at it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *failing: str) -> None:
        self.failing, self.lock, self.full = failing, threading.Lock(), threading.Event()
        self.now = self.most = 0
        self.done: list[str] = []
        monkeypatch.setattr(module, "obtain", self)

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


def test_several_arrive_side_by_side(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fetching, moments = Fetching(monkeypatch), list[Progress]()
    assert obtain_together(ENTRIES, store, progress=moments.append) == [*map(Path, "abcde")]
    assert (fetching.most, len(moments)) == (MOST_AT_ONCE, 25)
    fetching = Fetching(monkeypatch, "b", "d")
    with pytest.raises(ModelUnavailable, match="b"):
        obtain_together(ENTRIES, store)
    assert sorted(fetching.done) == ["a", "c", "e"]


def test_an_interruption_stops_the_others(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fetching, moments = Fetching(monkeypatch), list[Progress]()

    def interrupt(moment: Progress) -> None:
        moments.append(moment)
        if len(moments) == 1:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    monkeypatch.setattr(module, "_FAREWELL_S", PATIENCE_S)
    many = [entry_for(f"{number}".encode(), name=f"{number}") for number in range(1000)]
    with pytest.raises(KeyboardInterrupt):
        obtain_together(many, store, progress=interrupt)
    assert fetching.now == 0
    assert len(fetching.done) < len(many)


def has_no_room(entries: Sequence[ModelEntry], store: Store, match: str) -> None:
    with pytest.raises(ModelUnavailable, match=match):
        require_room(entries, store)


def test_room_that_is_needed(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    entry = entry_for(b"x" * 1000, HubSource("a/b", "c.gguf", None))
    blob = tmp_path / "cache" / "models--a--b" / "blobs" / entry.sha256
    blob.parent.mkdir(parents=True)
    for size, rest in ((0, 1000), (999, 1000), (1000, 0)):
        blob.write_bytes(b"x" * size)
        assert bytes_to_fetch([entry], store) == rest
    large = [ENTRIES[0], replace(ENTRIES[1], size_bytes=10**18)]
    has_no_room(large, store, r"a and b: needs 1000000000.0 GB free in .*make room")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    require_room([entry], store)
    has_no_room(ENTRIES, store, "make room")
    with pytest.raises(ModelUnavailable, match="make room"):  # before any is fetched
        obtain_together(ENTRIES, store)
