"""Bytes on their way into the store, and the sha256 of a file that is here."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from localspec.errors import IntegrityError
from localspec.models.gguf import model_files
from localspec.models.store import model_sha256, sha256_of
from localspec.models.transfer import Partial
from tests.models.gguf_builder import model_file
from tests.models.sources import entry_for

DATA = os.urandom(2_000_000)
ENTRY = entry_for(DATA)
SHA256 = hashlib.sha256(model_file()).hexdigest()


@contextmanager
def partial(folder: Path, size: int) -> Iterator[Partial]:
    """Open a partial file of such a size."""
    with closing(Partial(ENTRY, folder)) as opened:
        assert opened.size_bytes == size
        yield opened


def write(folder: Path, start: int, end: int) -> None:
    with partial(folder, start) as opened:
        for at in range(start, end, 10_000):
            opened.write(DATA[at : min(at + 10_000, end)], at)


def test_what_was_written_is_there_the_next_time(tmp_path: Path) -> None:
    write(tmp_path, 0, 1_000_000)
    write(tmp_path, 1_000_000, len(DATA))
    with partial(tmp_path, len(DATA)) as opened:
        opened.fill(lambda _: None)
        opened.move_to(tmp_path / "done")
    assert (tmp_path / "done").read_bytes() == DATA


def test_a_tail_that_did_not_reach_the_disk_costs_one_more_fetch(tmp_path: Path) -> None:
    write(tmp_path, 0, 1_000_000)
    # After a crash of the machine a file may have its length and not its bytes.
    with (tmp_path / "blob").open("r+b") as file:
        file.seek(-20_000, os.SEEK_END)
        file.write(bytes(20_000))
    offsets: list[int] = []

    def fetch(opened: Partial) -> None:
        offsets.append(opened.size_bytes)
        opened.write(DATA[opened.size_bytes :], opened.size_bytes)

    with partial(tmp_path, 1_000_000) as opened:
        opened.fill(fetch)
    assert offsets == [1_000_000, 0]
    assert (tmp_path / "blob").read_bytes() == DATA


def test_a_longer_file_than_promised_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(DATA + b"x")
    with partial(tmp_path, 0):
        pass


@pytest.mark.parametrize("data", [DATA[:-1] + bytes([DATA[-1] ^ 1]), DATA[:-1], DATA + b"x"])
def test_other_bytes_are_refused_and_dropped(tmp_path: Path, data: bytes) -> None:
    with partial(tmp_path, 0) as opened, pytest.raises(IntegrityError):
        opened.fill(lambda each: each.write(data, 0))
    with partial(tmp_path, 0):
        assert (tmp_path / "blob").stat().st_size == 0


def test_a_disk_that_takes_only_half_has_that_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Short:
        calls = 0

        def write(self, view: memoryview) -> int:
            self.calls += 1
            if self.calls > 1:
                raise OSError(28, "No space left on device")
            return raw.write(view[:1000]) or 0

    with partial(tmp_path, 0) as opened:
        raw = opened._file
        monkeypatch.setattr(opened, "_file", Short())
        with pytest.raises(OSError, match="No space"):
            opened.write(DATA[:5000], 0)
        monkeypatch.undo()
        assert opened.size_bytes == 1000
    with partial(tmp_path, 1000):
        pass


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    path = tmp_path / "mine" / "model.gguf"
    path.parent.mkdir()
    path.write_bytes(model_file())
    return path


def hashed(file: Path, root: Path) -> tuple[str, bool]:
    """Return the hash, and whether the file was read for it."""
    shares: list[float] = []
    return model_sha256(model_files(file), root, shares.append), shares != []


def test_a_file_is_read_once_until_it_changes(file: Path, tmp_path: Path) -> None:
    index = tmp_path / "data" / "hashes.json"
    assert hashed(file, index.parent) == (SHA256, True)
    assert hashed(file, index.parent) == (SHA256, False)
    assert str(file) not in index.read_text()
    os.utime(file, ns=(1, 1))
    assert hashed(file, index.parent) == (SHA256, True)
    for damaged in ("{", "[]", '{"a": 5}'):
        index.write_text(damaged)
        assert hashed(file, index.parent) == (SHA256, True)
        assert hashed(file, index.parent) == (SHA256, False)
    assert hashed(file, tmp_path / "no place for it") == (SHA256, True)
    file.write_bytes(DATA)
    shares: list[float] = []
    assert sha256_of(file, shares.append) == ENTRY.sha256
    assert shares == [pytest.approx((1 << 20) / len(DATA)), 1.0]


@pytest.mark.parametrize("folder", ["data/blobs", "hub/models--a--b/blobs"])
def test_what_a_store_calls_by_its_sha256_is_not_read(
    file: Path, tmp_path: Path, folder: str
) -> None:
    # As imported files lie there: a link to the user's own, which has another name.
    blob = tmp_path / folder / SHA256
    blob.parent.mkdir(parents=True)
    blob.symlink_to(file)
    (tmp_path / "snapshot.gguf").symlink_to(blob)
    assert hashed(blob, tmp_path / "data") == (SHA256, False)
    assert hashed(tmp_path / "snapshot.gguf", tmp_path / "data") == (SHA256, False)
