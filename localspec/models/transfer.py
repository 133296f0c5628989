"""Fetches the rest of a partial file over HTTP: goes on where it stopped, and tries a few times.

The client is an httpx client, made by huggingface_hub: of which generation depends on its version,
so none is imported here, and what it raises is taken as what it is, a line that failed. It follows
redirects itself, and takes a token off a request that leaves the token's host.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from localspec.models.partial import Partial, require
from localspec.storage.files import free_bytes, size_text
from localspec.storage.paths import shown

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
            raise SourceFailedError("the server answered with another range than was asked for")
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
            reason = "the line was cut"
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
    return f" ({done} of {total} are kept: the next try goes on from there)"


def _chunks(response: Any) -> Iterator[bytes]:
    try:
        yield from response.iter_raw()
    except Exception as error:
        raise line_failure(error) from error


def line_failure(error: Exception) -> SourceFailedError:
    """Return what an error of a client of the httpx family means."""
    kind = type(error).__name__
    if kind == "UnsupportedProtocol":
        return SourceFailedError("it redirects to something that is no web address")
    if kind == "TooManyRedirects":
        return SourceFailedError("too many redirects")
    if kind in {"ConnectError", "ConnectTimeout"}:
        return LineCutError("no connection")
    return LineCutError("the server fell silent" if "Timeout" in kind else "the line was cut")


def require_space(directory: Path, needed_bytes: int) -> None:
    """Raise SourceFailedError unless a directory, there yet or not, has room for so many bytes."""
    free = free_bytes(directory)
    if free < needed_bytes:
        raise SourceFailedError(
            f"needs {size_text(needed_bytes)} free in {shown(directory)}, which has {size_text(free)}"
        )
