import os
import stat
from pathlib import Path
from typing import Never

import pytest

from localspec.storage.files import (
    free_bytes,
    private_directory,
    read_bounded,
    size_text,
    write_atomic,
)


def test_a_file_is_replaced_whole_and_is_its_owners(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    before = os.umask(0)
    try:
        write_atomic(file, b"new")
    finally:
        os.umask(before)
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def full(_: int) -> Never:
        raise error

    file = tmp_path / "file"
    file.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(type(error)):
        write_atomic(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_is_read_up_to_a_bound(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 10)
    assert read_bounded(file, 10) == b"x" * 10
    with pytest.raises(OSError, match="it is longer than 0 KB"):
        read_bounded(file, 9)
    with pytest.raises(FileNotFoundError):
        read_bounded(tmp_path / "gone", 9)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(OSError, match="not a regular file"):
            read_bounded(path, 9)


def test_directories_are_made_private_and_those_that_are_there_stay(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    private_directory(tmp_path / "a" / "b")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path, tmp_path / "a" / "b")]
    assert modes == [0o755, 0o700]
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        private_directory(tmp_path / "file")


def test_sizes_are_told_in_decimal_units() -> None:
    assert size_text(98_362_432) == "98 MB"
    assert size_text(1_117_320_768) == "1.1 GB"


def test_a_directory_that_is_not_there_yet_has_the_room_of_its_parent(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "a" / "b") > 0
