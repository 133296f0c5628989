"""Files and directories of the user alone: replaced whole, read up to a bound, locked, found where the settings say."""

import os
import shutil
import stat
from pathlib import Path
from typing import Never

import platformdirs
import pytest

from localspec.storage.files import (
    free_bytes,
    private_directory,
    read_bounded,
    size_text,
    write_atomic,
)
from localspec.storage.locks import locked, try_lock
from localspec.storage.paths import config_dir, data_dir, first_time, shown
from tests.support.checks import refuses


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
    assert free_bytes(tmp_path / "c" / "d") > 0, "as its parent"


def test_sizes_and_paths_as_they_are_printed() -> None:
    assert [size_text(each) for each in (98_362_432, 1_117_320_768)] == ["98 MB", "1.1 GB"]
    assert shown("a\nb") == r"'a\nb'"
    assert shown(Path("/modèles/a b")) == "/modèles/a b"


def test_a_lock_is_held_by_one_until_it_is_closed(tmp_path: Path) -> None:
    directory = tmp_path / "name"
    first = try_lock(directory)
    assert first is not None
    assert try_lock(directory) is None
    os.close(first)
    second = try_lock(directory)
    assert second is not None
    shutil.rmtree(directory)
    third = try_lock(directory)
    assert third is not None
    assert os.fstat(second).st_ino != os.fstat(third).st_ino
    os.close(second)
    os.close(third)
    with locked(tmp_path):
        assert try_lock(tmp_path) is None


def test_a_removed_directory_is_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exists_and_is_gone(*_: object, **__: object) -> None:
        raise FileExistsError

    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", exists_and_is_gone)
        assert try_lock(tmp_path / "shared") is None
    lock = try_lock(tmp_path / "shared")
    assert lock is not None
    os.close(lock)


def test_data_and_settings_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for value in (str(tmp_path / "a" / "b"), "here"):
        monkeypatch.setenv("LOCALSPEC_DATA_DIR", value)
        assert data_dir() == data_dir() == tmp_path / value
        assert stat.S_IMODE(data_dir().stat().st_mode) == 0o700
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "not-there"))
    assert config_dir() == tmp_path / "not-there"
    assert not config_dir().exists()
    for name in ("data", "config"):
        monkeypatch.delenv(f"LOCALSPEC_{name.upper()}_DIR")
        monkeypatch.setattr(platformdirs, f"user_{name}_path", lambda name: tmp_path / name)
    assert data_dir() == config_dir() == tmp_path / "localspec"


@pytest.mark.parametrize("value", ["file", "file/below", "~nobody-of-this-name/x"])
def test_an_impossible_folder(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", value)
    refuses("set LOCALSPEC_DATA_DIR to a directory", data_dir)
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", "~nobody-of-this-name/x")
    refuses("set LOCALSPEC_CONFIG_DIR to a directory", config_dir)


def test_notices_that_an_earlier_version_noted_are_not_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    assert first_time("one")
    assert not first_time("one")
    (tmp_path / "notices_shown").rename(tmp_path / "told")
    assert not first_time("one")
    assert first_time("two")
    assert not (tmp_path / "told").exists()
