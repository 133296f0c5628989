"""A model file on its way into the store, in one go: what is not committed leaves nothing behind."""

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Self

from localspec.errors import IntegrityError
from localspec.models.private import private_opener
from localspec.models.registry import ModelEntry


class Staging:
    """A model file on its way into the store.

    Args:
        entry: what the bytes have to be.
        directory: a directory of this process's own, on the store's file system.
        destination: the name that the verified file gets.
    """

    def __init__(self, entry: ModelEntry, directory: Path, destination: Path) -> None:
        self.entry = entry
        self.directory = directory
        self.size_bytes = 0
        self._destination = destination
        self._hash = hashlib.sha256()
        self._path = directory / "blob"
        self._file = open(self._path, "xb", opener=private_opener)  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, chunk: bytes) -> None:
        """Append bytes; more than were promised are refused before they fill the disk."""
        self.size_bytes += len(chunk)
        if self.size_bytes > self.entry.size_bytes:
            require(self.entry, "size", "more bytes", f"{self.entry.size_bytes} bytes")
        self._hash.update(chunk)
        self._file.write(chunk)

    def commit(self) -> Path:
        """Verify what was written and give it its name in the store.

        Raises:
            IntegrityError: the bytes are not the promised ones.
        """
        size = self.size_bytes
        require(self.entry, "size", f"{size} bytes", f"{self.entry.size_bytes} bytes")
        require(self.entry, "sha256", self._hash.hexdigest(), self.entry.sha256)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._publish(self._path)
        return self._destination

    def link(self, file: Path) -> None:
        """Point the store's name at a verified file: a symbolic link, a hard link, or a copy."""
        link = self.directory / "link"
        for make in (link.symlink_to, link.hardlink_to):
            with suppress(OSError):
                make(file)
                break
        else:
            shutil.copyfile(file, link)
        self._publish(link)

    def _publish(self, path: Path) -> None:
        path.replace(self._destination)
        sync(self._destination.parent)


def sync(directory: Path) -> None:
    """Make sure that the names in a directory survive a crash, too."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require(entry: ModelEntry, what: str, found: str, promised: str) -> None:
    """Raise IntegrityError unless what was found is what the registry promises."""
    if found != promised:
        raise IntegrityError(
            f"{entry.name}: the {what} is {found}, not {promised}: the file was not kept"
        )
