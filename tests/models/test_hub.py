import re
import time
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants
from msgspec.structs import replace

from localspec.errors import IntegrityError
from localspec.models import hub as module
from localspec.models import transfer
from localspec.models.entries import HubSource
from localspec.models.hub import HubFile, from_hub
from localspec.models.store import Store
from localspec.models.transfer import SourceFailedError
from tests.models.loopback_hub import COMMIT, Fault, LoopbackHub, loopback_hub
from tests.models.sources import begin, entry_for

DATA = bytes(range(250)) * 8000  # 2 MB
SOURCE = HubSource("owner/toy-GGUF", "toy.gguf", COMMIT)
URL = f"/owner/toy-GGUF/resolve/{COMMIT}/toy.gguf"
ENTRY = entry_for(DATA, SOURCE)
CACHE = Path("cache", "models--owner--toy-GGUF")
Patch = pytest.MonkeyPatch


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: Patch) -> Iterator[LoopbackHub]:
    """A hub on the loopback; huggingface_hub read its settings when it was imported."""
    with loopback_hub() as hub:
        hub.files[URL] = DATA
        monkeypatch.setattr(transfer, "PAUSES_S", (0.0, 0.0, 0.0))
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
        yield hub
        huggingface_hub.close_session()


@pytest.fixture
def storage(hub: LoopbackHub) -> LoopbackHub:
    """The hub, redirecting to its storage under another name of this machine."""
    hub.storage = hub.url.replace("127.0.0.1", "localhost")
    return hub


def fetch(store: Store, *, offline: bool = False, moments: list[int] | None = None) -> Path:
    report = [] if moments is None else moments
    return from_hub(SOURCE, ENTRY, store, offline, report.append)


def fails(store: Store, reason: str, *, offline: bool = False) -> None:
    with pytest.raises(SourceFailedError, match=reason):
        fetch(store, offline=offline)


def test_the_next_run_goes_on_where_the_last_one_was_left(hub: LoopbackHub, store: Store) -> None:
    hub.faults.extend([Fault("cut", 200_000), Fault("status", status=403)])
    fails(store, "access refused")
    assert store.partial_bytes(ENTRY) == 200_000
    assert fetch(store).read_bytes() == DATA
    assert hub.offsets == [0, 200_000, 200_000]
    assert store.partial_bytes(ENTRY) == 0
    # What was whole when it was killed is verified, and not fetched.
    (store.root / "blobs" / ENTRY.sha256).unlink()
    hub.sent_bytes = 0
    begin(store, ENTRY, DATA)
    assert fetch(store).read_bytes() == DATA
    assert hub.sent_bytes == 0


def test_a_file_of_the_hub_arrives_in_the_store(
    hub: LoopbackHub, store: Store, capfd: pytest.CaptureFixture[str], monkeypatch: Patch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    moments: list[int] = []
    path = fetch(store, moments=moments)
    assert (path, path.is_symlink()) == (store.path_of(ENTRY), False)
    assert (path.read_bytes(), moments[-1]) == (DATA, len(DATA))
    assert (hub.requests, hub.authorization) == ([f"GET {URL}"], ["Bearer hf_secret"])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", [f"blobs/{ENTRY.sha256}", f"snapshots/{COMMIT}/toy.gguf"])
def test_what_the_cache_holds_is_not_fetched_unless_it_is_damaged(
    hub: LoopbackHub, store: Store, tmp_path: Path, monkeypatch: Patch, name: str
) -> None:
    fails(store, "not in the hub's cache, offline", offline=True)
    with pytest.raises(SourceFailedError, match=r"needs 1000000000.0 GB free"):
        from_hub(SOURCE, replace(ENTRY, size_bytes=10**18), store, False, print)
    with monkeypatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        fails(store, "HF_HUB_OFFLINE is set")
    path = tmp_path / CACHE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(DATA[:-1] + b"x")
    if "blobs" in name:
        fails(store, "copy in the hub's cache is damaged, offline", offline=True)
    path.write_bytes(DATA)
    for offline in (True, False):
        assert fetch(store, offline=offline).readlink() == path
    assert hub.requests == []
    path.write_bytes(DATA[:-1] + b"x")
    (store.root / "blobs" / ENTRY.sha256).unlink()
    assert fetch(store).read_bytes() == DATA
    assert not store.path_of(ENTRY).is_symlink()  # type: ignore[union-attr]


def test_another_file_is_refused(hub: LoopbackHub, store: Store) -> None:
    hub.files[URL] = DATA[:-1] + b"x"
    for storage in ("", hub.url.replace("127.0.0.1", "localhost")):
        hub.storage = storage
        moments: list[int] = []
        with pytest.raises(IntegrityError, match=f"the sha256 is .*, not {ENTRY.sha256}"):
            fetch(store, moments=moments)
        assert set(moments) == {0}


TRIES = 4
PAGE = "a web page came instead of the file"


@pytest.mark.parametrize(
    ("faults", "word"),
    [
        ([Fault("cut", 5000)] * TRIES, "the connection broke"),
        ([Fault("cut", 1_200_000), *[Fault("cut")] * 3], "broke (1 MB of 2 MB are kept: the next"),
        ([Fault("status", status=503)] * TRIES, "HTTP 503"),
        ([Fault("status", status=418)], "HTTP 418"),
        ([Fault("longer")], "the size is 2000001 bytes, not 2000000 bytes"),
        ([Fault("shorter")], "the size is 1999999 bytes, not 2000000 bytes"),
        ([Fault("cut", 900_000), Fault("wrong_bytes")], "the sha256 is "),
        ([Fault("cut", 1_200_000), Fault("html")], "a proxy's (1 MB of 2 MB are kept"),
    ],
)
def test_a_fault_of_the_storage_is_named_and_the_next_try_completes(
    storage: LoopbackHub, store: Store, monkeypatch: Patch, faults: list[Fault], word: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    storage.faults.extend(faults)
    with pytest.raises((SourceFailedError, IntegrityError), match=re.escape(word)):
        fetch(store)
    assert not storage.faults
    assert store.path_of(ENTRY) is None
    assert fetch(store).read_bytes() == DATA
    assert list((store.root / "partial").glob("*")) == []
    assert storage.leaked == []


def test_a_refusal_is_a_few_words(hub: LoopbackHub, store: Store, monkeypatch: Patch) -> None:
    hub.status = 401
    fails(store, "set HF_TOKEN")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    for status, code, reason, tries in (
        (404, "EntryNotFound", "HTTP 404, no such file", 1),
        (401, None, r"HTTP 401\): the token has expired", 1),
        (401, "RepoNotFound", r"access refused \(HTTP 401\)", 1),
        (403, "GatedRepo", r"HTTP 403\), it is gated: accept its terms", 1),
        (500, None, "HTTP 500", 4),  # only what may pass is tried again
    ):
        hub.requests.clear()
        hub.status, hub.error_code = status, code
        fails(store, reason)
        assert len(hub.requests) == tries
    hub.status, hub.portal = 200, True
    fails(store, PAGE)
    hub.portal = False
    assert fetch(store).read_bytes() == DATA


def test_a_cut_line_is_taken_up_again(hub: LoopbackHub, store: Store, monkeypatch: Patch) -> None:
    monkeypatch.setattr(transfer, "SILENCE_S", 0.2)
    hub.faults.extend([Fault("cut", 100_000), Fault("cut", 50_000), Fault("silent", 50_000)])
    moments: list[int] = []
    assert fetch(store, moments=moments).read_bytes() == DATA
    assert hub.offsets == [0, 100_000, 150_000, 200_000]
    assert hub.sent_bytes == len(DATA)
    assert moments == sorted(moments)
    (store.root / "blobs" / ENTRY.sha256).unlink()
    hub.silent.set()
    monkeypatch.setattr(module, "ANSWER_S", 0.2)
    fails(store, "the server fell silent")
    template = "http://127.0.0.1:9/{repo_id}/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    fails(store, r"^no connection$")
    assert sum(slept) < 1.0  # huggingface_hub's own retries wait for 23 s


def test_the_token_and_its_host(storage: LoopbackHub, store: Store, monkeypatch: Patch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with HubFile(SOURCE).open(1000, 1999) as answer:
        assert (answer.start, answer.total_bytes) == (1000, len(DATA))
        assert b"".join(answer.chunks) == DATA[1000:2000]
    assert storage.sent_bytes == 1000

    class Renewed(list[int]):
        """Lets the address expire when the first bytes arrive."""

        def append(self, done: int) -> None:
            if done:
                storage.signature = 2

    storage.faults.append(Fault("cut", 100_000))
    assert fetch(store, moments=Renewed()).read_bytes() == DATA
    assert any("signature=2" in request for request in storage.requests)
    assert storage.offsets == [1000, 0, 100_000]
    assert storage.leaked == []
    for path, token in zip(storage.requests, storage.authorization, strict=True):
        assert token == (None if "storage" in path else "Bearer hf_secret")
    storage.storage = "file://localhost"
    (store.root / "blobs" / ENTRY.sha256).unlink()
    fails(store, "redirects to something that is not a web address")
