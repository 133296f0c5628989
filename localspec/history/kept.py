"""KeptChanges: what a database did not take, in a directory beside it, until a program that starts later takes it in.

The directory is locked while its writer lives. Its name goes into the database with its rows, so that none is taken in twice.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import msgspec

from localspec.storage.files import private_directory, write_atomic
from localspec.storage.locks import try_lock

_FILE = "changes.json"


class KeptRow(msgspec.Struct, frozen=True):
    """Values of a row by column; of a new row with its id among them, which only rows of the same file know."""

    table: Literal["conversation", "message"]
    id: int
    values: dict[str, Any]


class KeptFile(msgspec.Struct, frozen=True):
    """All that one program could not write: its rows, and pictures and sounds by their hashes."""

    rows: list[KeptRow]
    media: dict[str, bytes] = {}


class KeptChanges:
    """What this program keeps beside a database.

    Args:
        directory: of all that is kept; made with the first.

    Attributes:
        name: what it is called, as long as something is kept; empty without.
    """

    def __init__(self, directory: Path) -> None:
        self._directory, self._lock, self.name = directory, -1, ""

    def write(self, rows: list[KeptRow], media: Mapping[str, bytes]) -> None:
        """Keep these, in place of what is kept already.

        Raises:
            OSError: they cannot be written.
        """
        name = self.name or uuid4().hex
        place = self._directory / name
        private_directory(self._directory)
        if not self.name:
            lock = try_lock(place)
            if lock is None:
                raise OSError(f"{place} is locked")
            self._lock = lock
        try:
            write_atomic(place / _FILE, msgspec.json.encode(KeptFile(rows, dict(media))))
        except OSError:
            if not self.name:
                self._remove(place)
            raise
        self.name = name

    def forget(self) -> None:
        """Remove what is kept: it is written, or is not wanted any more."""
        if self.name:
            self._remove(self._directory / self.name)
            self.name = ""

    def release(self) -> None:
        """Leave what is kept to the next program that starts."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock, self.name = -1, ""

    def _remove(self, place: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


def others(directory: Path) -> list[Path]:
    """Return where programs have kept something; some may still run."""
    with suppress(OSError):
        return [each for each in directory.iterdir() if (each / _FILE).is_file()]
    return []


@contextmanager
def taken(place: Path) -> Iterator[KeptFile | None]:
    """Have what a program has kept, which is removed unless something is raised inside; None while that program runs.

    Raises:
        OSError: it cannot be read.
        msgspec.DecodeError: it is damaged.
    """
    lock = try_lock(place)
    if lock is None:
        yield None
        return
    try:
        content = (place / _FILE).read_bytes() if (place / _FILE).is_file() else b""
        yield msgspec.json.decode(content, type=KeptFile) if content else None
        shutil.rmtree(place, ignore_errors=True)
    finally:
        os.close(lock)
