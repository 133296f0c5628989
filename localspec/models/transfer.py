"""The way of a file's bytes to this machine: over HTTP, from where it stopped, into a partial file on disk.

The client is an httpx client, made by huggingface_hub: of which generation depends on its version,
so none is imported here, and what it raises is taken as what it is, a line that failed. It follows
redirects itself, and takes a token off a request that leaves the token's host.

Nothing of a partial file is trusted: it is hashed from its first byte before it gets a name in the
store. What a killed process wrote is all there, so all of it is kept. After a crash of the machine a
file may be longer than what reached the disk, so then only what was synchronised counts.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from localspec.errors import IntegrityError
from localspec.models.entries import ModelEntry
from localspec.storage.files import free_bytes, read_bounded, size_text, write_atomic
from localspec.storage.paths import shown

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


# Between tries that bring nothing new; then the next source is asked.
PAUSES_S = (0.2, 1.0, 3.0)
# Without a byte for so long, a line counts as cut.
SILENCE_S = 20.0
_CONNECT_S = 8.0
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")
A_PAGE = "a web page came instead of the file: a login page of the network, or a proxy's"


@dataclass(frozen=True, slots=True)
class Progress:
    """A moment of a download. Bytes count from 0 again when the next source is tried."""

    name: str
    done_bytes: int
    total_bytes: int
    source: str


Report = Callable[[Progress], None]


class SourceFailedError(Exception):
    """One source could not deliver; the text is a short reason, without a full stop."""


class LineCutError(SourceFailedError):
    """A request failed in a way that another try may mend."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server delivers: `chunks` of a file from byte `start` on; its size where it says it."""

    start: int
    total_bytes: int | None
    chunks: Iterator[bytes]


class RemoteFile:
    """One file on a web server, read from any offset.

    Args:
        client: an httpx client.
        url: where it is.
        headers: what that host, and no other, may be sent.
        refused: what to add where the server refuses access.
    """

    def __init__(
        self, client: Any, url: str, headers: Mapping[str, str] | None = None, refused: str = ""
    ) -> None:
        self.url = url
        self._client = client
        self._headers = {**(headers or {}), "Accept-Encoding": "identity"}  # offsets are the file's
        self.refused = refused

    @contextmanager
    def open(self, first: int, last: int | None = None) -> Iterator[Answer]:
        """Ask for the bytes from `first` to `last`, or to the end.

        Raises:
            LineCutError: the server cannot be reached, is in trouble, or stopped in its answer.
            SourceFailedError: it does not deliver the file.
        """
        headers = dict(self._headers)
        if first or last is not None:
            headers["Range"] = f"bytes={first}-{'' if last is None else last}"
        patience_s = (_CONNECT_S, SILENCE_S, SILENCE_S, SILENCE_S)  # connect, read, write, pool
        with ExitStack() as stack:
            try:
                stream = self._client.stream(
                    "GET", self.url, headers=headers, follow_redirects=True, timeout=patience_s
                )
                response = stack.enter_context(stream)
            except Exception as error:  # of whichever httpx: see the module's docstring
                raise line_failure(error) from error
            yield self._answer(response, first)

    def _answer(self, response: Any, first: int) -> Answer:
        status, headers = response.status_code, response.headers
        if status in _RETRIED:
            raise LineCutError(f"HTTP {status}")
        if status in {401, 403}:
            raise SourceFailedError(f"access refused (HTTP {status}){self.refused}")
        if status not in {200, 206}:
            what = ", no such file" if status == 404 else ""
            raise SourceFailedError(f"HTTP {status}{what}")
        if headers.get("content-type", "").lower().startswith("text/html"):
            raise SourceFailedError(A_PAGE)
        chunks = _chunks(response)
        if status == 200:  # the whole file is coming: this server knows no ranges
            length = headers.get("content-length", "")
            return Answer(0, int(length) if length.isdecimal() else None, chunks)
        match = _RANGE.fullmatch(headers.get("content-range", ""))
        if match is None or int(match[1]) != first:
            raise SourceFailedError("the server answered with a different range than requested")
        return Answer(first, int(match[2]), chunks)


def fetch_rest(file: RemoteFile, partial: Partial, report: Callable[[int], None]) -> None:
    """Append what is missing; the caller verifies the whole.

    Args:
        file: where the bytes are.
        partial: what is there already.
        report: called with the number of bytes that are there.

    Raises:
        SourceFailedError: the server does not deliver; what came is kept.
        IntegrityError: the server has another file.
        OSError: the disk does not take it.
    """
    size, failures = partial.entry.size_bytes, 0
    while partial.size_bytes < size:
        before = partial.size_bytes
        try:
            with file.open(before) as answer:
                _receive(answer, partial, report)
        except LineCutError as cut:
            reason = str(cut)
        except SourceFailedError as error:
            raise SourceFailedError(f"{error}{_kept(partial)}") from error
        else:
            reason = "the connection broke"
        # A server that gives a little every time is tried for longer, but not for ever.
        if partial.size_bytes - before >= max(size // 100, 1):
            failures = 0
        elif failures == len(PAUSES_S):
            raise SourceFailedError(reason + _kept(partial))
        if partial.size_bytes < size:
            time.sleep(PAUSES_S[failures])
            failures += 1


def _receive(answer: Answer, partial: Partial, report: Callable[[int], None]) -> None:
    if answer.total_bytes is not None:
        promised = f"{partial.entry.size_bytes} bytes"
        require(partial.entry, "size", f"{answer.total_bytes} bytes", promised)
    at, beginning = answer.start, next(answer.chunks, b"")
    if beginning[:64].lstrip().lower().startswith((b"<!doctype", b"<html")):
        raise SourceFailedError(A_PAGE)
    for chunk in chain([beginning], answer.chunks):
        partial.write(chunk, at)
        at += len(chunk)
        report(partial.size_bytes)


def _kept(partial: Partial) -> str:
    if partial.size_bytes < 1_000_000:
        return ""
    done, total = size_text(partial.size_bytes), size_text(partial.entry.size_bytes)
    return f" ({done} of {total} are kept: the next try resumes there)"


def _chunks(response: Any) -> Iterator[bytes]:
    try:
        yield from response.iter_raw()
    except Exception as error:
        raise line_failure(error) from error


def line_failure(error: Exception) -> SourceFailedError:
    """Return what an error of a client of the httpx family means."""
    kind = type(error).__name__
    if kind == "UnsupportedProtocol":
        return SourceFailedError("it redirects to something that is not a web address")
    if kind == "TooManyRedirects":
        return SourceFailedError("too many redirects")
    if kind in {"ConnectError", "ConnectTimeout"}:
        return LineCutError("no connection")
    return LineCutError("the server fell silent" if "Timeout" in kind else "the connection broke")


def require_space(directory: Path, needed_bytes: int) -> None:
    """Raise SourceFailedError unless a directory, there yet or not, has room for so many bytes."""
    free = free_bytes(directory)
    if free < needed_bytes:
        raise SourceFailedError(
            f"needs {size_text(needed_bytes)} free in {shown(directory)}, which has {size_text(free)}"
        )
