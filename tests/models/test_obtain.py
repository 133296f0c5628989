"""Where a file comes from: one source after the other, several files at a time, and only where there is room."""

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from huggingface_hub import constants
from msgspec.structs import replace

from localspec.errors import IntegrityError, ModelUnavailable, UsageError
from localspec.models import obtain as obtaining
from localspec.models import pull as pulling
from localspec.models.entries import HubSource, ModelEntry, WheelSource
from localspec.models.obtain import from_mirror, mirror_label, mirrors, obtain
from localspec.models.pull import MOST_AT_ONCE, bytes_to_fetch, obtain_together, require_room
from localspec.models.store import Store
from localspec.models.transfer import Progress, Report, SourceFailedError
from tests.models.loopback_hub import Fault, LoopbackHub, loopback_hub
from tests.models.sources import add, entry_for
from tests.waiting import PATIENCE_S

DATA = bytes(range(250)) * 4000
HUB = HubSource("owner/toy-GGUF", "file.gguf", None)
WHEELS = WheelSource("toy-part{part}==1.0", "*/part{part}.bin", 2)
ENTRY = entry_for(DATA, HUB, WHEELS)

Source = Callable[[object, ModelEntry, Store, bool, Callable[[int], None]], Path]
Use = Callable[[Source, Source], None]


def failing(error: Exception) -> Source:
    def source(*_: object) -> Path:
        raise error

    return source


def delivering(
    _: object, entry: ModelEntry, store: Store, __: bool, report: Callable[[int], None]
) -> Path:
    report(len(DATA) + 7)  # packed and unpacked bytes together may be more
    return add(store, entry, DATA)


NEVER = failing(AssertionError("this source is not needed"))


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> Use:
    def use(hub: Source, wheels: Source) -> None:
        monkeypatch.setattr(obtaining, "from_hub", hub)
        monkeypatch.setattr(obtaining, "from_wheels", wheels)

    return use


@pytest.mark.parametrize(
    "error", [SourceFailedError("no connection"), IntegrityError("bad"), OSError(28, "No space")]
)
def test_a_failing_source_is_followed(store: Store, sources: Use, error: Exception) -> None:
    sources(failing(error), delivering)
    moments: list[Progress] = []
    path = obtain(ENTRY, store, progress=moments.append)
    assert path.read_bytes() == DATA
    reason = f"hub owner/toy-GGUF: {getattr(error, 'strerror', None) or error}"
    assert moments == [Progress("toy", len(DATA), len(DATA), "wheels toy-part…==1.0", reason)]
    sources(NEVER, NEVER)
    assert obtain(ENTRY, store, offline=True) == path
    path.unlink()
    sources(delivering, NEVER)
    assert obtain(ENTRY, store) == path


def test_when_all_fail_one_line_says_what_each_answered(store: Store, sources: Use) -> None:
    sources(failing(SourceFailedError("no connection")), failing(OSError(28, "No space left")))
    with pytest.raises(ModelUnavailable) as caught:
        obtain(ENTRY, store)
    line = "(hub owner/toy-GGUF: no connection; wheels toy-part…==1.0: No space left)"
    assert line in str(caught.value)
    assert type(caught.value) is ModelUnavailable
    sources(failing(IntegrityError("toy: the size is 1 bytes")), failing(SourceFailedError("no")))
    with pytest.raises(IntegrityError, match="hub owner/toy-GGUF: the size is 1 bytes"):
        obtain(ENTRY, store)
    source = Mock(side_effect=SourceFailedError("offline"))
    sources(source, source)
    with pytest.raises(ModelUnavailable, match="once online, run `localspec pull toy`"):
        obtain(ENTRY, store, offline=True)
    assert [call.args[3] for call in source.call_args_list] == [True, True]
    damaged = add(store, ENTRY, DATA)
    damaged.chmod(0o600)
    damaged.write_bytes(DATA[:9])
    with pytest.raises(ModelUnavailable, match=r"downloaded \(its file here is damaged; hub"):
        obtain(ENTRY, store, offline=True)
    sources(delivering, NEVER)
    for error in (OSError("closed pipe"), RuntimeError("cancelled")):
        with pytest.raises(type(error), match=str(error)):
            obtain(ENTRY, store, progress=Mock(side_effect=error))
        assert store.path_of(ENTRY) is None


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with loopback_hub() as server:
        yield server
        assert set(server.authorization) <= {None}, "no token is for a mirror"


def mirrored(mirror: Path | str, store: Store, *, offline: bool = False) -> Path:
    return from_mirror(str(mirror), ENTRY, store, offline, lambda _: None)


@pytest.mark.parametrize("name", ["file.gguf", "owner/toy-GGUF/file.gguf", "toy.gguf"])
def test_a_mirror_has_a_file(store: Store, server: LoopbackHub, tmp_path: Path, name: str) -> None:
    file = tmp_path / "stick" / name
    file.parent.mkdir(parents=True)
    file.write_bytes(DATA)
    path = mirrored(tmp_path / "stick", store, offline=True)
    file.unlink()
    assert path.read_bytes() == DATA
    server.files[f"/models/{name}"] = DATA
    path = mirrored(f"{server.url}/models/", Store(tmp_path / "other"))
    assert path.read_bytes() == DATA
    assert not path.is_symlink()


def test_mirrors_without_file_or_ranges(store: Store, server: LoopbackHub, tmp_path: Path) -> None:
    for mirror, offline, reason in (
        (str(tmp_path), False, "no such file"),
        (str(tmp_path / "gone"), False, "no such folder"),
        (server.url, True, "offline"),
    ):
        with pytest.raises(SourceFailedError, match=reason):
            mirrored(mirror, store, offline=offline)
    assert server.requests == []
    with pytest.raises(SourceFailedError, match="HTTP 404, no such file"):
        mirrored(server.url, store)
    (tmp_path / "file.gguf").write_bytes(DATA[:-1] + b"x")
    with pytest.raises(IntegrityError):
        mirrored(tmp_path, store)
    assert store.path_of(ENTRY) is None
    server.files["/file.gguf"] = DATA
    server.knows_ranges = False
    server.faults.extend([Fault("cut"), Fault("cut", 600_000)])  # the first is the question for it
    assert mirrored(server.url, store).read_bytes() == DATA


def test_the_variable_names_mirrors_as_a_shell_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, names in [
        ("", ()),
        ("/a http://b/c", ("/a", "http://b/c")),
        ("'/with space' ~/x", ("/with space", "~/x")),
    ]:
        monkeypatch.setenv("LOCALSPEC_MIRRORS", value)
        assert mirrors() == names
    monkeypatch.setenv("LOCALSPEC_MIRRORS", "'/a")
    with pytest.raises(UsageError, match="close the quote"):
        mirrors()
    assert mirror_label("https://me:s3cret@a.example/x") == "mirror https://a.example/x"


ENTRIES = [entry_for(name.encode() * 100, name=name) for name in "abcde"]


class Fetching:
    """Stands in for `obtain`: counts how many are at it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *failing: str) -> None:
        self.failing, self.lock, self.full = failing, threading.Lock(), threading.Event()
        self.now = self.most = 0
        self.done: list[str] = []
        monkeypatch.setattr(pulling, "obtain", self)

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

    monkeypatch.setattr(pulling, "_FAREWELL_S", PATIENCE_S)
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
