"""The models on this machine: `blobs/<sha256>`, filled only with bytes that were verified.

A file is built in a directory of its own under `partial/`, and renamed into `blobs/` when size and
sha256 are those of the registry. So whatever fails, is killed or runs twice at once, a name in
`blobs/` is a whole file. Knows no network.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from localspec.errors import IntegrityError
from localspec.models.registry import ModelEntry


class Store:
    """Model files by content.

    Args:
        root: the data directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._blobs = root / "blobs"
        self._partial = root / "partial"

    def path_of(self, entry: ModelEntry) -> Path | None:
        """Return where a model's file is, or None when it is not here.

        Only the size is looked at: the content was verified when the file came in.
        """
        path = self._blobs / entry.sha256
        try:
            return path if path.stat().st_size == entry.size_bytes else None
        except OSError:  # not there, or a link into a cache that was emptied
            return None

    @contextmanager
    def stage(self, entry: ModelEntry) -> Iterator["Staging"]:
        """Open a place to build a model's file in; what is not committed is removed on the way out.

        Whatever dead processes left in `partial/` is removed on the way in.
        """
        self._blobs.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._partial.mkdir(mode=0o700, exist_ok=True)
        with _locked(self._partial):
            self._remove_abandoned()
            directory = Path(tempfile.mkdtemp(prefix=f"{entry.sha256[:12]}-", dir=self._partial))
            lock = _try_lock(directory)
        try:
            with Staging(entry, directory, self._blobs / entry.sha256) as staging:
                yield staging
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            if lock is not None:
                os.close(lock)

    def adopt(self, entry: ModelEntry, file: Path) -> Path:
        """Take in a file that another program's cache holds, without a second copy if possible.

        Raises:
            IntegrityError: the file is not the promised one.
            OSError: the file cannot be read.
        """
        file = file.resolve(strict=True)
        size = file.stat().st_size
        _check(entry, "size", f"{size} bytes", f"{entry.size_bytes} bytes")
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        _check(entry, "sha256", digest, entry.sha256)
        with self.stage(entry) as staging:
            staging.link(file)
        return self._blobs / entry.sha256

    def _remove_abandoned(self) -> None:
        for directory in self._partial.iterdir():
            lock = _try_lock(directory)
            if lock is not None:  # nobody holds it, so whoever made it is dead
                shutil.rmtree(directory, ignore_errors=True)
                os.close(lock)


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
        self._file = self._path.open("xb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, chunk: bytes) -> None:
        """Append bytes; more than were promised are refused before they fill the disk."""
        self.size_bytes += len(chunk)
        if self.size_bytes > self.entry.size_bytes:
            _check(self.entry, "size", "more bytes", f"{self.entry.size_bytes} bytes")
        self._hash.update(chunk)
        self._file.write(chunk)

    def commit(self) -> Path:
        """Verify what was written and give it its name in the store.

        Raises:
            IntegrityError: the bytes are not the promised ones.
        """
        size = self.size_bytes
        _check(self.entry, "size", f"{size} bytes", f"{self.entry.size_bytes} bytes")
        _check(self.entry, "sha256", self._hash.hexdigest(), self.entry.sha256)
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
        parent = os.open(self._destination.parent, os.O_RDONLY)
        try:
            os.fsync(parent)  # the name itself must survive a crash, too
        finally:
            os.close(parent)


def _check(entry: ModelEntry, what: str, found: str, promised: str) -> None:
    if found != promised:
        raise IntegrityError(
            f"{entry.name}: the {what} is {found}, not {promised}: the file was not kept"
        )


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks: unique names still keep us apart
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _try_lock(path: Path) -> int | None:
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
