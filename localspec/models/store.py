"""The models on this machine: `blobs/<sha256>`, filled only with bytes that were verified.

A file is built in a directory of its own under `partial/`, and renamed into `blobs/` when size and
sha256 are those of the registry. So whatever fails, is killed or runs twice at once, a name in
`blobs/` is a whole file. A download that can go on later is built in a directory that is named after
what it will be, `partial/<sha256>.<kind>`, and stays there. Knows no network.
"""

import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from localspec.models.locks import lock_shared_name, locked, try_lock
from localspec.models.partial import Partial, kept_bytes
from localspec.models.private import private_directory
from localspec.models.registry import ModelEntry
from localspec.models.shard_set import is_set, set_path, shards_of
from localspec.models.staging import Staging, require, sync

# What fills a partial file: bytes from any offset, or whole parts.
Kind = Literal["http", "wheels"]
KINDS: tuple[Kind, ...] = ("http", "wheels")
_WAIT_S = 0.1


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
        if not entry.is_known:
            return None
        if is_set(entry):
            whole = all(self.path_of(shard) is not None for shard in shards_of(entry))
            return set_path(self.root, entry) if whole else None
        path = self._blobs / entry.sha256
        try:
            return path if path.stat().st_size == entry.size_bytes else None
        except OSError:  # not there, or a link into a cache that was emptied
            return None

    @contextmanager
    def stage(self, entry: ModelEntry) -> Iterator[Staging]:
        """Open a place to build a model's file in; what is not committed is removed on the way out.

        Whatever dead processes left in `partial/` is removed on the way in.
        """
        private_directory(self._blobs)
        private_directory(self._partial)
        with locked(self._partial):
            self._remove_abandoned()
            directory = Path(tempfile.mkdtemp(prefix=f"{entry.sha256[:12]}-", dir=self._partial))
            lock = try_lock(directory)
        try:
            with Staging(entry, directory, self._blobs / entry.sha256) as staging:
                yield staging
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            if lock is not None:
                os.close(lock)

    @contextmanager
    def resume(
        self, entry: ModelEntry, kind: Kind, report: Callable[[int], None]
    ) -> Iterator[Partial]:
        """Open what earlier runs fetched of a model's file, alone; what is not published stays.

        While another process is at it, wait; it may have finished then, so ask `path_of` again.

        Args:
            entry: the model.
            kind: what fills the file.
            report: called with the number of bytes that are there, also while waiting.
        """
        private_directory(self._blobs)
        private_directory(self._partial)
        with locked(self._partial):
            self._remove_abandoned()
        directory = self._directory(entry, kind)
        while (lock := lock_shared_name(directory)) is None:
            report(kept_bytes(directory))
            time.sleep(_WAIT_S)
        partial = None
        try:
            partial = Partial(entry, directory, by_parts=kind == "wheels")
            report(partial.size_bytes)
            yield partial
        finally:
            if partial is not None:
                partial.close()
                if partial.size_bytes == 0:
                    shutil.rmtree(directory, ignore_errors=True)
            os.close(lock)

    def publish(self, partial: Partial) -> Path:
        """Give a partial file that was verified its name in the store."""
        destination = self._blobs / partial.entry.sha256
        partial.move_to(destination)
        sync(self._blobs)
        self.forget_partial(partial.entry, other_than=partial.directory)
        return destination

    def partial_bytes(self, entry: ModelEntry, kind: Kind | None = None) -> int:
        """Return how much of a model's file earlier runs fetched: of one kind, or the most."""
        if not entry.is_known:
            return 0
        if is_set(entry):
            return sum(self.here_bytes(shard) for shard in shards_of(entry))
        kinds = KINDS if kind is None else (kind,)
        return max(kept_bytes(self._directory(entry, each)) for each in kinds)

    def beginning(self, entry: ModelEntry, most_bytes: int) -> bytes:
        """Return what earlier runs fetched of a model's file, unverified, up to so many bytes."""
        if not entry.is_known:
            return b""
        with suppress(OSError), (self._directory(entry, "http") / "blob").open("rb") as file:
            return file.read(most_bytes)
        return b""

    def here_bytes(self, entry: ModelEntry) -> int:
        """Return how much of a model is here, whole or begun."""
        return self.partial_bytes(entry) if self.path_of(entry) is None else entry.size_bytes

    def forget_partial(self, entry: ModelEntry, *, other_than: Path | None = None) -> int:
        """Remove what earlier runs fetched and nobody is fetching now; return its bytes."""
        freed = 0
        directories = [self._directory(shard, kind) for shard in shards_of(entry) for kind in KINDS]
        for directory in directories:
            if directory == other_than or not directory.is_dir():
                continue
            lock = try_lock(directory)
            if lock is not None:
                freed += kept_bytes(directory)
                shutil.rmtree(directory, ignore_errors=True)
                os.close(lock)
        return freed

    def point_to(self, entry: ModelEntry, file: Path) -> Path:
        """Let the store's name be a file elsewhere, which the caller has verified."""
        with self.stage(entry) as staging:
            staging.link(file)
        self.forget_partial(entry)
        return self._blobs / entry.sha256

    def remove(self, entry: ModelEntry) -> int:
        """Remove a file's name, and the file where it is ours; return the bytes that this frees."""
        path = self._blobs / entry.sha256
        try:
            status = path.lstat()
        except FileNotFoundError:
            return 0
        path.unlink()
        # A link, symbolic or hard, is a pointer to a file that is not ours.
        return status.st_size if _is_ours(status) else 0

    def adopt(self, entry: ModelEntry, file: Path) -> Path:
        """Take in a file that another program's cache holds, without a second copy if possible.

        Raises:
            IntegrityError: the file is not the promised one.
            OSError: the file cannot be read.
        """
        file = file.resolve(strict=True)
        size = file.stat().st_size
        require(entry, "size", f"{size} bytes", f"{entry.size_bytes} bytes")
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        require(entry, "sha256", digest, entry.sha256)
        return self.point_to(entry, file)

    def _directory(self, entry: ModelEntry, kind: Kind) -> Path:
        return self._partial / f"{entry.sha256}.{kind}"

    def _remove_abandoned(self) -> None:
        for directory in self._partial.iterdir():
            if directory.suffix.removeprefix(".") in KINDS:
                continue  # kept on purpose
            lock = try_lock(directory)
            if lock is not None:  # nobody holds it, so whoever made it is dead
                shutil.rmtree(directory, ignore_errors=True)
                os.close(lock)


def _is_ours(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1
