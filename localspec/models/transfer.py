"""Fetches the rest of a partial file over HTTP: goes on where it stopped, and tries a few times."""

import re
import time
from collections.abc import Callable
from itertools import chain

from localspec.models.http_file import Answer, HttpFile, LineCutError
from localspec.models.partial import Partial
from localspec.models.progress import SourceFailedError
from localspec.models.space import size_text
from localspec.models.staging import require

# Between tries that bring nothing new; then the next source is asked.
PAUSES_S = (0.2, 1.0, 3.0)
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")
A_PAGE = "a web page came instead of the file: a login page of the network, or a proxy's"


def fetch_rest(
    file: HttpFile, partial: Partial, report: Callable[[int], None], *, refused: str
) -> None:
    """Append what is missing; the caller verifies the whole.

    Args:
        file: where the bytes are.
        partial: what is there already.
        report: called with the number of bytes that are there.
        refused: what to advise where the server refuses access.

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
                _receive(answer, partial, report, refused)
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


def _receive(answer: Answer, partial: Partial, report: Callable[[int], None], refused: str) -> None:
    if answer.status in _RETRIED:
        raise LineCutError(f"HTTP {answer.status}")
    if answer.status in {401, 403}:
        raise SourceFailedError(f"access refused (HTTP {answer.status}){refused}")
    if answer.status not in {200, 206}:
        what = ", no such file" if answer.status == 404 else ""
        raise SourceFailedError(f"HTTP {answer.status}{what}")
    if answer.headers.get("content-type", "").lower().startswith("text/html"):
        raise SourceFailedError(A_PAGE)
    skipped = _bytes_to_skip(answer, partial)
    first = next(answer.chunks, b"")
    if looks_like_a_page(first):
        raise SourceFailedError(A_PAGE)
    for chunk in chain([first], answer.chunks):
        fresh = chunk[skipped:]
        skipped -= len(chunk) - len(fresh)
        partial.write(fresh)
        report(partial.size_bytes)


def _bytes_to_skip(answer: Answer, partial: Partial) -> int:
    """Return how many of the bytes that follow are there already, after a look at the lengths."""
    promised = f"{partial.entry.size_bytes} bytes"
    if answer.status == 200:
        length = answer.headers.get("content-length")
        if length is not None:
            require(partial.entry, "size", f"{length} bytes", promised)
        return partial.size_bytes  # this server knows no ranges
    match = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", ""))
    if match is None or int(match[1]) != partial.size_bytes:
        raise SourceFailedError("the server answered with another range than was asked for")
    require(partial.entry, "size", f"{match[2]} bytes", promised)
    return 0


def looks_like_a_page(beginning: bytes) -> bool:
    """Return whether a body begins as HTML does, and no model file."""
    return beginning[:64].lstrip().lower().startswith((b"<!doctype", b"<html"))


def _kept(partial: Partial) -> str:
    if partial.size_bytes < 1_000_000:
        return ""
    done, total = size_text(partial.size_bytes), size_text(partial.entry.size_bytes)
    return f" ({done} of {total} are kept: the next try goes on from there)"
