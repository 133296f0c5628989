import os
import shutil
from pathlib import Path

from localspec.storage.locks import locked, try_lock


def test_a_lock_is_held_by_one_until_it_is_closed(tmp_path: Path) -> None:
    directory = tmp_path / "name"
    first = try_lock(directory)
    assert first is not None
    assert try_lock(directory) is None
    os.close(first)
    second = try_lock(directory)
    assert second is not None
    os.close(second)


def test_who_holds_a_directory_keeps_others_from_it(tmp_path: Path) -> None:
    with locked(tmp_path):
        assert try_lock(tmp_path) is None


def test_a_directory_that_its_owner_removed_is_not_locked_but_made_anew(tmp_path: Path) -> None:
    directory = tmp_path / "name"
    first = try_lock(directory)
    assert first is not None
    shutil.rmtree(directory)
    second = try_lock(directory)
    assert second is not None
    assert os.fstat(first).st_ino != os.fstat(second).st_ino
    os.close(first)
    os.close(second)
