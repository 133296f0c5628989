import os
import shutil
from pathlib import Path

import pytest

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


def test_a_directory_that_its_owner_removes_meanwhile_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "shared"

    def exists_and_is_gone(*_: object, **__: object) -> None:
        raise FileExistsError(directory)

    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", exists_and_is_gone)
        assert try_lock(directory) is None
    lock = try_lock(directory)
    assert lock is not None
    os.close(lock)
