from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.errors import IntegrityError, UsageError
from localspec.models.entries import HubSource
from localspec.models.obtain import from_mirror, mirror_label, mirrors
from localspec.models.store import Store
from localspec.models.transfer import SourceFailedError
from tests.models.loopback_hub import Fault, LoopbackHub, loopback_hub
from tests.models.sources import entry_for

DATA = bytes(range(250)) * 4000
ENTRY = entry_for(DATA, HubSource("owner/repo", "file.gguf", None))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with loopback_hub() as server:
        yield server
        assert set(server.authorization) <= {None}


@pytest.mark.parametrize("name", ["file.gguf", "owner/repo/file.gguf", "toy.gguf"])
def test_a_folder_is_copied_from(store: Store, tmp_path: Path, name: str) -> None:
    file = tmp_path / "stick" / name
    file.parent.mkdir(parents=True)
    file.write_bytes(DATA)
    path = from_mirror(str(tmp_path / "stick"), ENTRY, store, True, print)
    file.unlink()
    assert path.read_bytes() == DATA


def test_a_folder_with_other_bytes_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file.gguf").write_bytes(DATA[:-1] + b"x")
    with pytest.raises(IntegrityError):
        from_mirror(str(tmp_path), ENTRY, store, False, print)
    assert store.path_of(ENTRY) is None


@pytest.mark.parametrize(("name", "reason"), [("", "no such file"), ("gone", "no such folder")])
def test_a_folder_without_it_says_so(store: Store, tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(SourceFailedError, match=reason):
        from_mirror(str(tmp_path / name), ENTRY, store, False, print)


@pytest.mark.parametrize("name", ["file.gguf", "owner/repo/file.gguf", "toy.gguf"])
def test_a_web_server_is_read_from_and_sees_no_token(
    store: Store, server: LoopbackHub, name: str
) -> None:
    server.files[f"/models/{name}"] = DATA
    path = from_mirror(f"{server.url}/models/", ENTRY, store, False, print)
    assert path.read_bytes() == DATA
    assert not path.is_symlink()


def test_a_server_without_ranges_is_skipped_through(store: Store, server: LoopbackHub) -> None:
    server.files["/file.gguf"] = DATA
    server.knows_ranges = False
    server.faults.extend([Fault("cut"), Fault("cut", 600_000)])  # the first is the question for it
    assert from_mirror(server.url, ENTRY, store, False, lambda _: None).read_bytes() == DATA


def test_a_server_without_it_says_so(store: Store, server: LoopbackHub) -> None:
    with pytest.raises(SourceFailedError, match="HTTP 404, no such file"):
        from_mirror(server.url, ENTRY, store, False, print)


def test_offline_no_server_is_asked(store: Store, server: LoopbackHub) -> None:
    with pytest.raises(SourceFailedError, match="offline"):
        from_mirror(server.url, ENTRY, store, True, print)
    assert server.requests == []


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("", ()),
        ("/a http://b/c", ("/a", "http://b/c")),
        ("'/with space' ~/x", ("/with space", "~/x")),
    ],
)
def test_the_variable_names_several(
    value: str, named: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_MIRRORS", value)
    assert mirrors() == named


def test_an_open_quote_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_MIRRORS", "'/a")
    with pytest.raises(UsageError, match="close the quote"):
        mirrors()


def test_a_password_in_an_address_is_not_shown() -> None:
    assert (
        mirror_label("https://me:s3cret@mirror.example/gguf")
        == "mirror https://mirror.example/gguf"
    )
