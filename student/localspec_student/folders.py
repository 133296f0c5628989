"""Folders of what is collected and trained, one for each target; one process at a time works in one."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.storage.files import private_directory
from localspec.storage.locks import try_lock
from localspec.storage.paths import data_dir

_ROOT = "student"


@contextmanager
def work_folder(pair: str, sha256: str) -> Iterator[Path]:
    """Give the folder for heads of a target.

    Raises:
        LocalspecError: another process has it.
    """
    private_directory(data_dir() / _ROOT)
    folder = data_dir() / _ROOT / f"{pair}@{sha256[:12]}"
    lock = try_lock(folder)
    if lock is None:
        raise LocalspecError(f"another `localspec-student` works for {pair}: wait until it ends")
    try:
        for each in folder.glob(".*"):  # of a process that was killed while it wrote
            each.unlink()
        yield folder
    finally:
        os.close(lock)


def forget(pair: str | None) -> int:
    """Remove what was collected and trained for a pair, or for all; return how many bytes that freed. Heads in use stay.

    Raises:
        LocalspecError: a process is at work there, or there is nothing.
    """
    root, freed = data_dir() / _ROOT, 0
    folders = [*root.glob("*@*" if pair is None else f"{pair}@*")]
    if not folders:
        raise LocalspecError(f"nothing is collected{'' if pair is None else f' for {pair}'}")
    for folder in folders:
        lock = try_lock(folder)
        if lock is None:
            raise LocalspecError(f"`localspec-student make` is at work in {folder}: end it first")
        freed += sum(each.stat().st_size for each in folder.iterdir())
        shutil.rmtree(folder)
        os.close(lock)
    return freed
