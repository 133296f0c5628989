"""Spool: what was noted and is not in the database yet, in a file of its own process: lines with checksums.

To append a line takes a third of a transaction, and no lock that others want. A process that is killed leaves its
spool behind; the lock on it ends with the process, and whoever writes to the database next takes it in. This module knows
no database: it is imported while a text is made.
"""

import fcntl
import json
import os
import secrets
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

_ENCODED = json.JSONEncoder(separators=(",", ":")).encode


class Spool:
    """A file that nobody else writes to, as long as it is open.

    Args:
        path: where it is.
        descriptor: of the file, opened to be read and appended to, and locked.

    Attributes:
        size_bytes: how much is in it.
    """

    NAMES = "telemetry.db-*.spool"

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self.size_bytes = os.fstat(descriptor).st_size

    @classmethod
    def made(cls, directory: Path) -> Self:
        """Make a new one, readable by its owner only.

        Raises:
            OSError: the directory does not take it, or has no locks.
        """
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            path = directory / cls.NAMES.replace(
                "*", f"{time.time_ns():016x}{secrets.token_hex(4)}"
            )
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL
            spool = _locked(path, flags)
            if spool is not None:  # else somebody took it for one that was left behind
                return cls(path, spool)

    @classmethod
    def left_behind(cls, directory: Path) -> Iterator[Self]:
        """Yield those of processes that are gone, the oldest first; each is for the caller to close."""
        for path in sorted(directory.glob(cls.NAMES)):
            try:
                descriptor = _locked(path, os.O_RDWR | os.O_APPEND)
            except OSError:
                continue
            if descriptor is not None:
                yield cls(path, descriptor)

    @property
    def is_gone(self) -> bool:
        """Whether somebody removed it, since what is in it is not to be kept."""
        return os.fstat(self._descriptor).st_nlink == 0

    def append(self, document: object) -> None:
        """Add what JSON can hold; a process that is killed afterwards does not lose it.

        Raises:
            OSError: there is no room for it.
        """
        line = _ENCODED(document).encode()
        line = b"%08x %b\n" % (zlib.crc32(line), line)
        if os.write(self._descriptor, line) < len(line):
            raise OSError(0, "the disk is full")
        self.size_bytes += len(line)

    def documents(self) -> Iterator[Any]:
        """Yield what was appended; what is torn or damaged is left out."""
        for line in os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0).split(b"\n"):
            with suppress(ValueError, RecursionError):
                if int(line[:8], 16) == zlib.crc32(line[9:]):
                    yield json.loads(line[9:])

    def clear(self) -> None:
        """Forget what was appended."""
        os.ftruncate(self._descriptor, 0)
        self.size_bytes = 0

    def close(self, *, keep: bool = False) -> None:
        """Remove the file, or leave it to those who come later; closing twice is harmless."""
        if self._descriptor < 0:
            return
        if not keep:
            with suppress(OSError):
                self._path.unlink()
        os.close(self._descriptor)
        self._descriptor = -1


def remove_all(directory: Path) -> bool:
    """Remove the spools of all processes; those that are alive begin new ones. Say whether there were any.

    Raises:
        OSError: one cannot be removed.
    """
    found = list(directory.glob(Spool.NAMES))
    for path in found:
        path.unlink(missing_ok=True)
    return bool(found)


def _locked(path: Path, flags: int) -> int | None:
    """Return a descriptor with the lock; None where another process has it, or has removed the file."""
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink > 0:
            return descriptor
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
