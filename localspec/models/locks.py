"""Locks on directories that end with the process that holds them, however it ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory; wait for it if need be."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks: unique names still keep us apart
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def try_lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock until it is closed, or None if that is impossible."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def lock_shared_name(directory: Path) -> int | None:
    """Create a directory that several processes know by name, and return its lock.

    Returns:
        A descriptor to close, or None while another process, or another thread, holds the lock.
        On a file system without locks, an unlocked one: what is built there is verified anyway.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except FileNotFoundError:  # removed by its owner just now
        return None
    with suppress(OSError):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
    if not _is_still(directory, descriptor):  # its owner finished, and removed it
        os.close(descriptor)
        return None
    return descriptor


def _is_still(directory: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(directory.stat(), os.fstat(descriptor))
    except OSError:
        return False
