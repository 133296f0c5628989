"""Source: numbered lines of a file or stream, whatever is in them, in constant memory. Knows no format."""

import codecs
import hashlib
import os
import select
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.errors import LocalspecError, UsageError
from localspec.storage.paths import shown

MOST_LINE_BYTES = 4 << 20
"""Longest line that is read: four times what a context of a million tokens holds."""

_CHUNK_BYTES = 1 << 16
_LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Line:
    """One line, without its end.

    Args:
        number: from 1.
        raw: its bytes; None where there were more than `MOST_LINE_BYTES`.
        digest: the first 8 bytes of the sha256 of the whole line.
        size_bytes: of the whole line, its end not counted.
    """

    number: int
    raw: bytes | None
    digest: bytes
    size_bytes: int


class Source:
    """A file, or stdin by the name of `-`, that is read once.

    Args:
        name: path of the file, or `-`.
        cancel: ends the wait for a stream that brings nothing.

    Attributes:
        waits: whether it may be slow to bring the next line, as pipes and terminals are.

    Raises:
        UsageError: it cannot be read.
    """

    def __init__(self, name: str, cancel: CancelFlag) -> None:
        self.name = "stdin" if name == "-" else shown(name)
        self._cancel = cancel
        self._stopped = False
        try:
            # A descriptor of our own, also of stdin: Python's has a buffer that select() does not see.
            self._fd = os.dup(sys.stdin.fileno()) if name == "-" else os.open(name, os.O_RDONLY)
            state = os.fstat(self._fd)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            raise self._unreadable(error) from error
        if stat.S_ISDIR(state.st_mode):
            os.close(self._fd)
            raise UsageError(f"{self.name} is a directory: give a file of JSON lines or CSV")
        self.waits = not stat.S_ISREG(state.st_mode)
        self.size_bytes = None if self.waits else state.st_size
        self.done_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def lines(self) -> Iterator[Line]:
        """Yield the lines, each as soon as it is whole.

        Raises:
            Cancelled: the flag was set while nothing came.
            LocalspecError: reading fails.
        """
        for line in split_lines(self._chunks()):
            self.done_bytes += line.size_bytes + 1
            yield line

    def stop(self) -> None:
        """Let whoever waits for the next line wait no more: there is `Cancelled` for it."""
        self._stopped = True

    def share(self) -> float | None:
        """Return how much of the lines was taken, 0 to 1; None of a stream, whose end nobody knows."""
        return min(self.done_bytes / self.size_bytes, 1.0) if self.size_bytes else None

    def is_same_file(self, fd: int) -> bool:
        """Return whether an open file is this one."""
        return os.path.samestat(os.fstat(self._fd), os.fstat(fd))

    def _chunks(self) -> Iterator[bytes]:
        while chunk := self._read():
            yield chunk

    def _read(self) -> bytes:
        try:
            # A signal does not end a read that waits: Python goes on with it.
            while self.waits and not select.select([self._fd], [], [], _LOOK_EVERY_S)[0]:
                if self._cancel.is_set or self._stopped:
                    raise Cancelled
            return os.read(self._fd, _CHUNK_BYTES)
        except OSError as error:
            raise LocalspecError(
                f"{self.name} could not be read to its end ({error.strerror}): check it, then use --resume"
            ) from error

    def _unreadable(self, error: OSError | ValueError) -> UsageError:
        reason = getattr(error, "strerror", None) or str(error)
        return UsageError(f"{self.name} cannot be read ({reason}): check the path")


def split_lines(chunks: Iterable[bytes], most_bytes: int = MOST_LINE_BYTES) -> Iterator[Line]:
    """Yield lines of bytes that come in pieces; of a line that is too long, only number and digest."""
    line = _Growing(1, most_bytes)
    for chunk in chunks:
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            line.take(chunk[start:end])
            yield line.ended()
            line = _Growing(line.number + 1, most_bytes)
            start = end + 1
        line.take(chunk[start:])
    if line.size_bytes:
        yield line.ended()


class _Growing:
    """A line of which more may come."""

    def __init__(self, number: int, most_bytes: int) -> None:
        self.number = number
        self.size_bytes = 0
        self._most_bytes = most_bytes
        self._held = bytearray()
        self._fits = True
        self._digest = hashlib.sha256()

    def take(self, piece: bytes) -> None:
        self.size_bytes += len(piece)
        self._digest.update(piece)
        self._fits = self._fits and len(self._held) + len(piece) <= self._most_bytes
        if self._fits:
            self._held += piece
        else:
            self._held.clear()

    def ended(self) -> Line:
        raw = bytes(self._held) if self._fits else None
        if raw is not None and self.number == 1:
            raw = raw.removeprefix(codecs.BOM_UTF8)
        return Line(self.number, raw, self._digest.digest()[:8], self.size_bytes)
