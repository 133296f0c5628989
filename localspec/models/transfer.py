"""Downloads over HTTP that resume: the bytes of a file from where an earlier try stopped, into a partial file on disk.

The client is an httpx client, made by huggingface_hub: of which generation depends on its version,
so none is imported here, and its errors are known by their names. It follows redirects itself, and
takes a token off a request that leaves the token's host.

Nothing of a partial file is trusted: it is hashed from its first byte before it gets a name in the
store. Writes are unbuffered, so a killed process loses only what is in flight. After a crash of the
machine a file may be longer than what reached the disk: then the sha256 differs, and it is fetched once more.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from localspec.errors import IntegrityError
from localspec.models.entries import ModelEntry
from localspec.storage.files import free_bytes, size_text
from localspec.storage.paths import shown

CHUNK_BYTES = 1 << 20

OnBytes = Callable[[int], None]
"""Progress callback: the number of bytes of a file that are here."""


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
        self._path = directory / "blob"
        self._hash = hashlib.sha256()
        self._file = os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", 0)
        if os.fstat(self._file.fileno()).st_size > entry.size_bytes:
            self._file.truncate(0)
        while chunk := self._file.read(CHUNK_BYTES):
            self._hash.update(chunk)
            self.size_bytes += len(chunk)

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

    def fill(self, fetch: Callable[["Partial"], None]) -> None:
        """Let a source append what is missing, and verify the whole.

        What was here before may be other bytes, of another source or of a crash: then it is all fetched once more.

        Raises:
            IntegrityError: these are not the promised bytes; nothing is kept.
            Exception: what `fetch` raises; what came is kept.
        """
        began, entry = self.size_bytes, self.entry
        fetch(self)
        if began and (self.size_bytes, self._hash.hexdigest()) != (entry.size_bytes, entry.sha256):
            self.discard()
            fetch(self)
        size, digest = self.size_bytes, self._hash.hexdigest()
        if (size, digest) != (entry.size_bytes, entry.sha256):
            self.discard()
        require(entry, "size", f"{size} bytes", f"{entry.size_bytes} bytes")
        require(entry, "sha256", digest, entry.sha256)
        os.fsync(self._file.fileno())

    def move_to(self, destination: Path) -> None:
        """Give the file, which was verified, another name on the same file system."""
        self._path.replace(destination)
        self.size_bytes = 0

    def discard(self) -> None:
        """Begin again with nothing."""
        self._file.truncate(0)
        self._file.seek(0)
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def close(self) -> None:
        """Close the file; what it holds stays."""
        self._file.close()


def partial_bytes(directory: Path) -> int:
    """Return how much a directory of a partial file holds."""
    with suppress(OSError):
        return (directory / "blob").stat().st_size
    return 0


def require(entry: ModelEntry, what: str, actual: str, promised: str) -> None:
    """Raise IntegrityError unless size or sha256 are what the registry promises."""
    if actual != promised:
        raise IntegrityError(
            f"{entry.name}: the {what} is {actual}, not {promised}: the file was not kept"
        )


# Between tries that bring nothing new; then the next source has its turn.
PAUSES_S = (0.2, 1.0, 3.0)
# Without a byte for so long, a line counts as cut.
SILENCE_S = 20.0
_CONNECT_S = 8.0
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")
_A_PAGE = "a web page came instead of the file: a login page of the network, or a proxy's"
_NO_WAY = {
    "UnsupportedProtocol": "it redirects to something that is not a web address",
    "TooManyRedirects": "too many redirects",
}


@dataclass(frozen=True, slots=True)
class Progress:
    """A moment of a download. Bytes count from 0 again when the next source is tried.

    Args:
        reason: which sources failed before, and why; empty for the first.
    """

    name: str
    done_bytes: int
    total_bytes: int
    source: str
    reason: str = ""


Report = Callable[[Progress], None]


class SourceFailedError(Exception):
    """One source could not deliver; the text is a short reason, without a full stop."""


class LineCutError(SourceFailedError):
    """A request failed in a way that another try may mend."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server delivers: `chunks` of a file from byte `start` on; its size where the server gives it."""

    start: int
    total_bytes: int | None
    chunks: Iterator[bytes]


class RemoteFile:
    """One file on a web server, read from any offset.

    Args:
        client: an httpx client.
        url: where it is.
        headers: what that host, and no other, may be sent.
        answer_s: how long its first answer may take.
    """

    def __init__(
        self,
        client: Any,
        url: str,
        headers: Mapping[str, str] | None = None,
        answer_s: float | None = None,
    ) -> None:
        self._url = url
        self._client = client
        self._headers = {**(headers or {}), "Accept-Encoding": "identity"}  # offsets are the file's
        self._answer_s = answer_s
        self._has_answered = False

    @contextmanager
    def open(self, first: int, last: int | None = None) -> Iterator[Answer]:
        """Request the bytes from `first` to `last`, or to the end.

        Raises:
            LineCutError: the server is in trouble, or stopped in its answer.
            SourceFailedError: it does not deliver the file, or could not be reached at all.
        """
        headers = dict(self._headers)
        if first or last is not None:
            headers["Range"] = f"bytes={first}-{'' if last is None else last}"
        answer_s = SILENCE_S if self._has_answered else self._answer_s or SILENCE_S
        patience_s = (_CONNECT_S, answer_s, SILENCE_S, SILENCE_S)  # connect, read, write, pool
        with ExitStack() as stack:
            try:
                stream = self._client.stream(
                    "GET", self._url, headers=headers, follow_redirects=True, timeout=patience_s
                )
                response = stack.enter_context(stream)
            except Exception as error:  # of whichever httpx: see the module's docstring
                failure = line_failure(error)
                # The next source should not have to wait for one that is out of reach.
                raise failure if self._has_answered else SourceFailedError(str(failure)) from error
            self._has_answered = True
            yield self.answer(response, first)

    def answer(self, response: Any, first: int) -> Answer:
        """Return what a response delivers; raises as `open` does."""
        status, headers = response.status_code, response.headers
        if status in _RETRIED:
            raise LineCutError(f"HTTP {status}")
        if status in {401, 403}:
            raise SourceFailedError(f"access refused (HTTP {status}){self.refusal(response)}")
        if status not in {200, 206}:
            what = ", no such file" if status == 404 else ""
            raise SourceFailedError(f"HTTP {status}{what}")
        if headers.get("content-type", "").lower().startswith("text/html"):
            raise SourceFailedError(_A_PAGE)
        chunks = _chunks(response)
        if status == 200:  # the whole file is coming: this server knows no ranges
            length = headers.get("content-length", "")
            return Answer(0, int(length) if length.isdecimal() else None, chunks)
        match = _RANGE.fullmatch(headers.get("content-range", ""))
        if match is None or int(match[1]) != first:
            raise SourceFailedError("the server answered with a different range than requested")
        return Answer(first, int(match[2]), chunks)

    def refusal(self, _response: Any) -> str:
        """Return what a refusal of this server may mean, as it goes on behind the status."""
        return ""


def fetch_rest(file: RemoteFile, partial: Partial, report: OnBytes) -> None:
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
        before, reason = partial.size_bytes, "the connection broke"
        try:
            with file.open(before) as answer:
                _receive(answer, partial, report)
        except LineCutError as cut:
            reason = str(cut)
        except SourceFailedError as error:
            raise SourceFailedError(f"{error}{_resume_note(partial)}") from error
        # A server that gives a little every time is tried for longer, but not for ever.
        if partial.size_bytes - before >= max(size // 100, 1):
            failures = 0
        elif failures == len(PAUSES_S):
            raise SourceFailedError(reason + _resume_note(partial))
        if partial.size_bytes < size:
            time.sleep(PAUSES_S[failures])
            failures += 1


def _receive(answer: Answer, partial: Partial, report: OnBytes) -> None:
    if answer.total_bytes is not None:
        promised = f"{partial.entry.size_bytes} bytes"
        require(partial.entry, "size", f"{answer.total_bytes} bytes", promised)
    at, beginning = answer.start, next(answer.chunks, b"")
    if beginning[:64].lstrip().lower().startswith((b"<!doctype", b"<html")):
        raise SourceFailedError(_A_PAGE)
    for chunk in chain([beginning], answer.chunks):
        partial.write(chunk, at)
        at += len(chunk)
        report(partial.size_bytes)


def _resume_note(partial: Partial) -> str:
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
    if kind in _NO_WAY:
        return SourceFailedError(_NO_WAY[kind])
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
