import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.errors import IntegrityError
from localspec.models.transfer import Partial
from tests.models.sources import entry_for

DATA = os.urandom(2_000_000)
ENTRY = entry_for(DATA)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


_OPEN: list[Partial] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while _OPEN:
        _OPEN.pop().close()


def opened(directory: Path) -> Partial:
    _OPEN.append(Partial(ENTRY, directory))
    return _OPEN[-1]


def write(directory: Path, start: int, end: int, step: int = 10_000) -> None:
    partial = opened(directory)
    assert partial.size_bytes == start
    for at in range(start, end, step):
        partial.write(DATA[at : min(at + step, end)], at)
    partial.close()


def test_what_was_written_is_there_the_next_time(directory: Path) -> None:
    write(directory, 0, 1_000_000)
    write(directory, 1_000_000, len(DATA))
    partial = opened(directory)
    partial.fill(lambda _: None)
    partial.move_to(directory / "done")
    assert (directory / "done").read_bytes() == DATA


def test_a_tail_that_did_not_reach_the_disk_costs_one_more_fetch(directory: Path) -> None:
    write(directory, 0, 1_000_000)
    # After a crash of the machine a file may have its length and not its bytes.
    with (directory / "blob").open("r+b") as file:
        file.seek(-20_000, os.SEEK_END)
        file.write(bytes(20_000))
    partial = opened(directory)
    offsets: list[int] = []

    def fetch(partial: Partial) -> None:
        offsets.append(partial.size_bytes)
        partial.write(DATA[partial.size_bytes :], partial.size_bytes)

    partial.fill(fetch)
    assert offsets == [1_000_000, 0]
    assert (directory / "blob").read_bytes() == DATA


def test_a_longer_file_than_promised_is_begun_again(directory: Path) -> None:
    write(directory, 0, 1_000_000)
    with (directory / "blob").open("ab") as file:
        file.write(DATA)
    assert opened(directory).size_bytes == 0


@pytest.mark.parametrize("data", [DATA[:-1] + b"!", DATA[:-1]])
def test_other_bytes_are_refused_and_not_kept(directory: Path, data: bytes) -> None:
    partial = opened(directory)
    with pytest.raises(IntegrityError):
        partial.fill(lambda partial: partial.write(data, 0))
    assert partial.size_bytes == 0
    assert opened(directory).size_bytes == 0


def test_excess_bytes_are_refused(directory: Path) -> None:
    partial = opened(directory)
    with pytest.raises(IntegrityError, match="more bytes"):
        partial.write(DATA + b"x", 0)
    assert (directory / "blob").stat().st_size == 0


def test_a_disk_that_takes_only_half_keeps_that_half(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = opened(directory)

    class Short:
        def __init__(self) -> None:
            self.file = partial._file
            self.calls = 0

        def write(self, view: memoryview) -> int:
            self.calls += 1
            if self.calls > 1:
                raise OSError(28, "No space left on device")
            return self.file.write(view[:1000]) or 0

    with monkeypatch.context() as patch:
        patch.setattr(partial, "_file", Short())
        with pytest.raises(OSError, match="No space"):
            partial.write(DATA[:5000], 0)
    assert partial.size_bytes == 1000
    assert opened(directory).size_bytes == 1000
