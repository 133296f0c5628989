"""The beginning of a model's file, kept on disk from one run to the next, whoever fills it.

Nothing here is trusted: the file is hashed from its first byte before it gets a name in the store.
What a killed process wrote is all there, so all of it is kept. After a crash of the machine a
file may be longer than what reached the disk, so then only what was synchronised counts.
"""

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from localspec.errors import IntegrityError
from localspec.models.entries import ModelEntry
from localspec.storage.files import read_bounded, write_atomic

_CHUNK_BYTES = 1 << 20
_LEAST_SYNC_BYTES, _MOST_SYNC_BYTES = 1 << 16, 16 << 20


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """Bytes that are on the disk, their sha256, the boot they were written in; whole parts of a source."""

    size_bytes: int = 0
    sha256: str = ""
    boot: str = ""
    parts: int = 0
    parts_bytes: int = 0


class Partial:
    """A file on its way into the store, in a directory that this process has locked.

    Args:
        entry: what the bytes have to be.
        directory: where it is built.
    """

    def __init__(self, entry: ModelEntry, directory: Path) -> None:
        self.entry = entry
        self.directory = directory
        self.size_bytes = 0
        self.parts = 0
        """Of a source that delivers a file in parts, how many are here whole."""
        self.parts_bytes = 0
        """How many bytes these parts have."""
        self._path = directory / "blob"
        self._state = directory / "state.json"
        self._boot = _boot_id()
        self._synced_bytes = 0
        self._hash = hashlib.sha256()
        # Unbuffered: what was written is there, whatever happens to this process.
        self._file = os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", 0)
        try:
            self._resume()
        except BaseException:
            self._file.close()
            raise

    def write(self, chunk: bytes, at: int) -> None:
        """Append what of a chunk is not here yet.

        Args:
            chunk: bytes of the file.
            at: where in the file they begin; not behind its end.

        Raises:
            IntegrityError: there are more than promised; nothing of the file is kept.
            OSError: the disk does not take them; those before are kept.
        """
        rest = memoryview(chunk)[self.size_bytes - at :]
        if self.size_bytes + len(rest) > self.entry.size_bytes:
            self.discard()
            require(self.entry, "size", "more bytes", f"{self.entry.size_bytes} bytes")
        while rest:
            count = self._file.write(rest) or 0
            self._hash.update(rest[:count])
            self.size_bytes += count
            rest = rest[count:]
        if self.size_bytes - self._synced_bytes >= self._sync_interval:
            self._checkpoint()

    def end_part(self, at: int) -> None:
        """Note that one more part is here, which ends there."""
        self.parts, self.parts_bytes = self.parts + 1, at
        self._checkpoint()

    def fill(self, fetch: Callable[[], None]) -> None:
        """Let a source append what is missing, and verify the whole.

        What was here before may be another source's other bytes: then it is all fetched once more.

        Raises:
            IntegrityError: these are not the promised bytes; nothing is kept.
            Exception: what `fetch` raises; what came is kept.
        """
        began = self.size_bytes
        fetch()
        try:
            self._verify()
        except IntegrityError:
            if began == 0:
                raise
            fetch()
            self._verify()

    def move_to(self, destination: Path) -> None:
        """Give the file, which was verified, another name on the same file system."""
        self._path.replace(destination)
        self.size_bytes = 0

    def discard(self) -> None:
        """Begin again with nothing."""
        self._file.truncate(0)
        self._file.seek(0)
        self._hash = hashlib.sha256()
        self.size_bytes = self.parts = self.parts_bytes = 0
        self._checkpoint()

    def close(self) -> None:
        """Close the file; what it holds stays."""
        self._file.close()

    def _verify(self) -> None:
        entry, size, digest = self.entry, self.size_bytes, self._hash.hexdigest()
        if (size, digest) != (entry.size_bytes, entry.sha256):
            self.discard()
            require(entry, "size", f"{size} bytes", f"{entry.size_bytes} bytes")
            require(entry, "sha256", digest, entry.sha256)
        os.fsync(self._file.fileno())

    @property
    def _sync_interval(self) -> int:
        return min(max(self.entry.size_bytes // 50, _LEAST_SYNC_BYTES), _MOST_SYNC_BYTES)

    def _resume(self) -> None:
        known = _read(self._state)
        length = os.fstat(self._file.fileno()).st_size
        same_boot = self._boot != "" and known.boot == self._boot
        kept = length if same_boot else min(known.size_bytes, length)
        if kept > self.entry.size_bytes or known.size_bytes > length:
            kept = 0
        self._take(known.size_bytes)
        if kept and known.size_bytes and self._hash.hexdigest() != known.sha256:
            kept = 0  # somebody else wrote here, or the disk forgot
        if kept == 0:
            self.discard()  # and note the boot
            return
        self._take(kept - self.size_bytes)
        self._file.truncate(kept)
        self.parts, self.parts_bytes = known.parts, known.parts_bytes
        self._synced_bytes = known.size_bytes

    def _take(self, count: int) -> None:
        """Hash the next bytes of the file."""
        while count > 0 and (chunk := self._file.read(min(count, _CHUNK_BYTES))):
            self._hash.update(chunk)
            self.size_bytes += len(chunk)
            count -= len(chunk)

    def _checkpoint(self) -> None:
        os.fsync(self._file.fileno())
        self._synced_bytes = size = self.size_bytes
        digest = self._hash.hexdigest()
        state = _Checkpoint(size, digest, self._boot, self.parts, self.parts_bytes)
        write_atomic(self._state, json.dumps(asdict(state)).encode())


def kept_bytes(directory: Path) -> int:
    """Return how much a directory of a partial file holds."""
    with suppress(OSError):
        return (directory / "blob").stat().st_size
    return 0


def require(entry: ModelEntry, what: str, found: str, promised: str) -> None:
    """Raise IntegrityError unless what was found is what the registry promises."""
    if found != promised:
        raise IntegrityError(
            f"{entry.name}: the {what} is {found}, not {promised}: the file was not kept"
        )


def _read(path: Path) -> _Checkpoint:
    with suppress(OSError, ValueError, TypeError):
        state = _Checkpoint(**json.loads(read_bounded(path, _CHUNK_BYTES)))
        numbers = (state.size_bytes, state.parts, state.parts_bytes)
        sound = all(type(number) is int and number >= 0 for number in numbers)
        if sound and state.parts_bytes <= state.size_bytes:
            return state
    return _Checkpoint()


def _boot_id() -> str:
    """Return what tells one start of the machine from another, or nothing where that is unknown."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""
