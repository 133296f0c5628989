import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.errors import IntegrityError
from localspec.models import transfer as module
from localspec.models.transfer import Partial
from tests.models.sources import entry_for

DATA = os.urandom(2_000_000)
ENTRY = entry_for(DATA)
SYNC = 64 << 10


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
    partial.fill(lambda: None)
    partial.move_to(directory / "done")
    assert (directory / "done").read_bytes() == DATA


def test_after_a_crash_of_the_machine_only_what_reached_the_disk_counts(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(directory, 0, 1_000_000)
    # The tail of a file may have its length and not its bytes then.
    with (directory / "blob").open("r+b") as file:
        file.seek(-20_000, os.SEEK_END)
        file.write(bytes(20_000))
    monkeypatch.setattr(module, "_boot_id", lambda: "another boot")
    partial = opened(directory)
    assert 980_000 - SYNC <= partial.size_bytes <= 980_000
    partial.fill(lambda: partial.write(DATA, 0))


def test_where_boots_cannot_be_told_apart_it_is_the_same(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_boot_id", lambda: "")
    write(directory, 0, 1_000_000)
    assert 1_000_000 - SYNC - 10_000 <= opened(directory).size_bytes < 1_000_000


def test_bytes_that_changed_on_the_disk_are_found_before_more_is_fetched(directory: Path) -> None:
    write(directory, 0, 1_000_000)
    with (directory / "blob").open("r+b") as file:
        file.write(b"changed")
    assert opened(directory).size_bytes == 0


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"size_bytes": -1}',
        b'{"size_bytes": 1e9}',
        b'{"size_bytes": 99999999999}',
        b'{"size_bytes": "1"}',
        b'{"other": 1}',
        b"\xff\xfe",
    ],
)
def test_a_damaged_note_costs_at_most_the_bytes(directory: Path, state: bytes) -> None:
    write(directory, 0, 1_000_000)
    (directory / "state.json").write_bytes(state)
    assert opened(directory).size_bytes == 0


def test_a_longer_file_than_promised_is_begun_again(directory: Path) -> None:
    write(directory, 0, 1_000_000)
    with (directory / "blob").open("ab") as file:
        file.write(DATA)
    assert opened(directory).size_bytes == 0


def test_whole_parts_are_counted_and_what_came_beyond_them_is_kept(directory: Path) -> None:
    partial = opened(directory)
    partial.write(DATA[:500_000], 0)
    partial.end_part(500_000)
    partial.write(DATA[500_000:900_000], 500_000)
    partial.close()
    partial = opened(directory)
    assert (partial.size_bytes, partial.parts, partial.parts_bytes) == (900_000, 1, 500_000)
    partial.fill(lambda: partial.write(DATA[500_000:], 500_000))


@pytest.mark.parametrize("data", [DATA[:-1] + b"!", DATA[:-1]])
def test_other_bytes_are_refused_and_not_kept(directory: Path, data: bytes) -> None:
    partial = opened(directory)
    with pytest.raises(IntegrityError):
        partial.fill(lambda: partial.write(data, 0))
    assert partial.size_bytes == 0
    assert opened(directory).size_bytes == 0


def test_a_source_that_goes_on_from_the_wrong_bytes_of_another_begins_anew(directory: Path) -> None:
    partial = opened(directory)
    partial.write(b"wrong", 0)
    partial.end_part(5)
    partial.close()
    partial = opened(directory)
    offsets: list[int] = []

    def fetch() -> None:
        offsets.append(partial.size_bytes)
        partial.write(DATA[partial.size_bytes :], partial.size_bytes)

    partial.fill(fetch)
    assert offsets == [5, 0]
    assert (partial.size_bytes, partial.parts) == (len(DATA), 0)


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


def test_the_note_is_readable(directory: Path) -> None:
    write(directory, 0, 1_000_000)
    note = json.loads((directory / "state.json").read_text())
    assert set(note) == {"size_bytes", "sha256", "boot", "parts", "parts_bytes"}
