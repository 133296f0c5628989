"""Locks on directories and files that end with the process that holds them, however it ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from localspec.errors import LocalspecError


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory; wait for it if need be."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def exclusive(directory: Path, busy: str) -> Iterator[None]:
    """Hold the lock of `try_lock`; raises LocalspecError, with the text `busy`, while another process holds it."""
    if (descriptor := try_lock(directory)) is None:
        raise LocalspecError(busy)
    try:
        yield
    finally:
        os.close(descriptor)


def try_lock(directory: Path) -> int | None:
    """Create a directory that several processes know by name, and return its lock.

    Returns:
        A descriptor to close, or None while another process, or another thread, holds the lock.
        On a file system without locks, an unlocked one.

    Raises:
        OSError: it cannot be created.
    """
    try:
        # Not `exist_ok`: it asks a second time, when an owner may have removed it.
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        if not directory.parent.is_dir():
            raise
        return None  # removed by its owner just now
    with suppress(OSError):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
    try:
        still_there = os.path.samestat(directory.stat(), os.fstat(descriptor))
    except OSError:
        still_there = False
    if not still_there:  # its owner finished, and removed it
        os.close(descriptor)
        return None
    return descriptor


def hold(file: Path) -> int | None:
    """Let other processes see that a file is used; return a descriptor to close, None where the file cannot be locked."""
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def is_held(file: Path) -> bool:
    """Return whether a process holds a file with `hold`."""
    with suppress(OSError), file.open("rb") as stream:  # it is gone, or is where there are no locks
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
