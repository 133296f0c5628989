"""The models on this machine: `blobs/<sha256>`, filled only with bytes that were verified.

A file is built in `partial/<sha256>`, by whichever source delivers it, and renamed into `blobs/` when
size and sha256 are those of the registry. So whatever fails, is killed or runs twice at once, a name
in `blobs/` is a whole file, and what came of one stays for the next run. A model in several
files has a folder of links in `sets/`, under the names that llama.cpp looks for. Knows no network.
"""

import hashlib
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from localspec.errors import LocalspecError, ModelChanged
from localspec.models.entries import SHA256, ModelEntry, Sha256, joint_sha256, shards_of
from localspec.models.transfer import (
    CHUNK_BYTES,
    OnBytes,
    Partial,
    partial_bytes,
    require,
    require_space,
)
from localspec.storage.files import private_directory, read_bounded, sync_directory, write_atomic
from localspec.storage.locks import locked, try_lock
from localspec.storage.paths import data_dir, shown

_INDEX = "hashes.json"
_MOST_LINKS = 16
_MOST_INDEX_BYTES = 16 << 20
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
        """Return where a model's file is, the first of several, or None when it is not here whole.

        Only the size is looked at: the content was verified when the file came in.
        """
        if not entry.is_known:
            return None
        if entry.shards:
            paths = self._set(entry)
            whole = all(self.path_of(shard) is not None for shard in entry.shards)
            return paths[0] if whole and all(path.is_file() for path in paths) else None
        path = self._blobs / entry.sha256
        with suppress(OSError):  # not there, or a link into a cache that was emptied
            return path if path.stat().st_size == entry.size_bytes else None
        return None

    def damaged_bytes(self, entry: ModelEntry) -> int | None:
        """Return how much is here of a model's files that have another size than they must; None where none has."""
        sizes = list[int]()
        for shard in shards_of(entry) if entry.is_known else ():
            with suppress(OSError):
                size = (self._blobs / shard.sha256).stat().st_size
                sizes += [size] if size != shard.size_bytes else []
        return sum(sizes) if sizes else None

    def receive(
        self,
        entry: ModelEntry,
        report: OnBytes,
        fetch: Callable[[Partial], None],
        *,
        spare_bytes: int = 0,
        replaces_link: bool = False,
    ) -> Path:
        """Return the path of a model's file, for which a source delivers what is missing; what came of it stays if it fails.

        While another process is at it, wait: it may bring the file.

        Args:
            entry: the model.
            report: called with the number of bytes that are there.
            fetch: appends to what is there.
            spare_bytes: the room that `fetch` needs beside the file.
            replaces_link: whether a link to a file elsewhere does not count as the file.

        Raises:
            SourceFailedError: the disk has no room; or as `fetch` does.
            IntegrityError: other bytes came.
            OSError: the disk does not take them.
        """
        require_space(self.root, entry.size_bytes - self.partial_bytes(entry) + spare_bytes)
        private_directory(self._blobs)
        private_directory(self._partial)
        path, directory, partial = self._blobs / entry.sha256, self._partial / entry.sha256, None
        while (lock := try_lock(directory)) is None:
            report(partial_bytes(directory))
            time.sleep(_WAIT_S)
        try:
            partial = Partial(entry, directory)
            report(partial.size_bytes)
            here = self.path_of(entry)  # brought by another process meanwhile, say
            if here is None or (replaces_link and here.is_symlink()):
                partial.fill(fetch)
                partial.move_to(path)
                sync_directory(self._blobs)
            return path
        finally:
            if partial is not None:
                partial.close()
                if partial.size_bytes == 0:
                    shutil.rmtree(directory, ignore_errors=True)
            os.close(lock)

    def copy(self, entry: ModelEntry, file: Path, report: OnBytes = lambda _: None) -> Path:
        """Take in a copy of a file.

        Raises:
            IntegrityError: the file is not the promised one.
            OSError: it cannot be read, or the disk does not take it.
        """
        with file.open("rb") as stream:

            def read(partial: Partial) -> None:
                stream.seek(partial.size_bytes)
                while chunk := stream.read(CHUNK_BYTES):
                    partial.write(chunk, partial.size_bytes)
                    report(partial.size_bytes)

            return self.receive(entry, report, read, replaces_link=True)

    def take(self, file: Path) -> Path:
        """Make a file that was made beside the store, on its disk, one of the store's; return its new path.

        Raises:
            OSError: the disk does not take it.
        """
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
        file.chmod(0o600)
        private_directory(self._blobs)
        path = file.replace(self._blobs / sha256_of(file))
        sync_directory(self._blobs)
        return path

    def adopt(self, entry: ModelEntry, file: Path) -> Path:
        """Take in a file that another program's cache holds, without a second copy if possible.

        Raises:
            IntegrityError: the file is not the promised one.
            OSError: the file cannot be read.
        """
        file = file.resolve(strict=True)
        require(entry, "size", f"{file.stat().st_size} bytes", f"{entry.size_bytes} bytes")
        require(entry, "sha256", sha256_of(file), entry.sha256)
        return self.point_to(entry, file)

    def point_to(self, entry: ModelEntry, file: Path) -> Path:
        """Let the store's name be a file elsewhere, which the caller has verified.

        It becomes a symbolic link, or a copy where the disk knows none.
        """
        private_directory(self._blobs)
        path = self._blobs / entry.sha256
        try:
            _link(path, file)
        except OSError:
            return self.copy(entry, file)
        sync_directory(self._blobs)
        self.forget_partial(entry)
        return path

    def remove(self, entry: ModelEntry) -> int:
        """Remove a file's name, and the file where it is ours; return the bytes that this frees."""
        path = self._blobs / entry.sha256
        try:
            status = path.lstat()
        except FileNotFoundError:
            return 0
        path.unlink()
        # A link, symbolic or hard, is a pointer to a file that is not ours.
        ours = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        return status.st_size if ours else 0

    def partial_bytes(self, entry: ModelEntry) -> int:
        """Return how much of a model's file earlier runs fetched; of several files, what is here."""
        return sum(
            shard.size_bytes
            if entry.shards and self.path_of(shard) is not None
            else partial_bytes(self._partial / shard.sha256)
            for shard in shards_of(entry)
            if shard.is_known
        )

    def beginning(self, entry: ModelEntry, most_bytes: int) -> bytes:
        """Return what earlier runs fetched of a model's file, unverified, up to so many bytes."""
        if entry.is_known:
            with suppress(OSError), (self._partial / entry.sha256 / "blob").open("rb") as file:
                return file.read(most_bytes)
        return b""

    def forget_partial(self, entry: ModelEntry) -> int:
        """Remove what earlier runs fetched and no process is fetching now; return its bytes."""
        freed = 0
        for shard in shards_of(entry):
            directory = self._partial / shard.sha256
            if shard.is_known and directory.is_dir() and (lock := try_lock(directory)) is not None:
                freed += partial_bytes(directory)
                shutil.rmtree(directory, ignore_errors=True)
                os.close(lock)
        return freed

    def link_shards(self, entry: ModelEntry) -> Path:
        """Give all files of a model the names that llama.cpp looks for; return the one to open."""
        paths = self._set(entry)
        private_directory(paths[0].parent)
        for path, shard in zip(paths, entry.shards, strict=True):
            _link(path, Path("..", "..", "blobs", shard.sha256))
        return paths[0]

    def unlink_shards(self, entry: ModelEntry) -> None:
        """Remove these names; the files stay."""
        shutil.rmtree(self.root / "sets" / entry.sha256, ignore_errors=True)

    def _set(self, entry: ModelEntry) -> list[Path]:
        folder, count = self.root / "sets" / entry.sha256, len(entry.shards)
        return [folder / f"model-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]


def _link(path: Path, target: Path) -> None:
    """Make a path a link, in place of what it was."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(path)


def sha256_of(file: Path, on_share: Callable[[float], None] = lambda _: None) -> str:
    """Return the sha256 of a file's content.

    Args:
        file: the file.
        on_share: called with the share of it that is read, 0 to 1; may raise to stop it.

    Raises:
        OSError: it cannot be read.
    """
    digest, size = hashlib.sha256(), file.stat().st_size
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
            on_share(min(stream.tell() / size, 1.0))
    return digest.hexdigest()


def model_sha256(
    files: Sequence[Path], root: Path, on_share: Callable[[float], None] = lambda _: None
) -> str:
    """Return the sha256 of a model; of one in several files, that over their digests, as in `ModelEntry`.

    The store knows it, or it is computed once and noted: of files elsewhere under their place, size and time of
    the last change, in `hashes.json`. What is wrong with that file costs only the time to compute them again.

    Args:
        files: of the model.
        root: the data directory.
        on_share: called with the share of a file that is read, 0 to 1; may raise to stop it.

    Raises:
        LocalspecError: a file cannot be read.
    """
    digests = []
    for file in files:
        try:
            digests.append(stored_sha256(file) or _noted_sha256(file, root / _INDEX, on_share))
        except OSError as error:
            raise LocalspecError(
                f"{shown(file)} cannot be read ({error.strerror}): check the disk"
            ) from error
    return digests[0] if len(digests) == 1 else joint_sha256(digests)


def stored_sha256(file: Path) -> str | None:
    """Return the sha256 by which the store, or the hub's cache, calls a file; None if neither has it."""
    for _ in range(_MOST_LINKS):
        if file.parent.name == "blobs" and re.fullmatch(SHA256, file.name):
            return file.name
        if not file.is_symlink():
            return None
        file = file.parent / file.readlink()
    return None


def _noted_sha256(file: Path, index: Path, on_share: Callable[[float], None]) -> str:
    key = place_hash(file)
    digest = _index(index).get(key)
    if digest is None:
        digest = sha256_of(file, on_share)
        with suppress(OSError), locked(index.parent):
            write_atomic(index, msgspec.json.encode({**_index(index), key: digest}))
    return digest


def _index(path: Path) -> dict[str, str]:
    with suppress(OSError, ValueError):
        index = read_bounded(path, _MOST_INDEX_BYTES)
        return dict(msgspec.json.decode(index, type=dict[str, Sha256]))
    return {}


def place_hash(file: Path) -> str:
    """Return what tells a file from others without reading it: its place, size and time of the last change.

    Raises:
        OSError: it is not there.
    """
    status = file.resolve().stat()
    # As a hash: nothing in a cache tells where a user keeps things.
    text = f"{file.resolve()}\n{status.st_size}\n{status.st_mtime_ns}"
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def is_here(model: ModelEntry | None) -> bool:
    """Return whether a model is on this machine: whole, in the store or as a link that the store has."""
    return model is not None and Store(data_dir()).path_of(model) is not None


def file_identity(file: Path) -> str:
    """Return what tells a model's file from others, without reading it.

    The store calls its files by their sha256.
    """
    sha256 = stored_sha256(file)
    return f"sha256 {sha256}" if sha256 else f"seen {place_hash(file)}"


class LoadedFiles:
    """Files as they were when models were loaded from them, and whether one was written over since.

    A file that another one is moved over, or that is removed, stays what it was for those who have it; one that is copied over
    changes under a model that maps it.
    """

    def __init__(self) -> None:
        self._seen: dict[Path, os.stat_result] = {}

    def note(self, path: Path) -> str:
        """Note what a file is, and those that belong to it, before it is loaded; return what tells it from others.

        Raises:
            OSError: it is not there.
            LocalspecError: likewise.
        """
        from localspec.models.gguf import model_files  # noqa: PLC0415 - verbs that load nothing have no use for it

        for each in model_files(path) if "-of-" in path.name else [path]:
            self._seen[each] = each.stat()
        its = self._seen[path]
        return f"{file_identity(path)} {its.st_size} {its.st_mtime_ns}"

    def check(self) -> None:
        """Raise ModelChanged where one was written over; that takes microseconds."""
        for path, was in self._seen.items():
            with suppress(OSError):  # removed: what is loaded stays
                now = path.stat()
                if os.path.samestat(now, was) and _content(now) != _content(was):
                    raise ModelChanged(
                        f"{shown(path)} was written over while it was loaded: ask again, and the new file answers"
                    )


def _content(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns
