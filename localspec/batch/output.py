"""Output: records appended to a file or a stream, a whole line at a time.

A file is locked as long as it is written, and never overwritten: it is new, or resumed. A record that the disk does
not take in full is taken back, so that only whole ones stay.
"""

import errno
import fcntl
import os
import select
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from localspec.batch.record import BEGINNING, MOST_RECORD_BYTES, Receipt, Record, read_record
from localspec.errors import LocalspecError, UsageError
from localspec.storage.paths import shown


@dataclass(slots=True)
class FinishedLines:
    """What an output holds already.

    Args:
        digests: of the lines that have a record, by number.
        receipts: of these records.
        failed: those of these lines whose record is an error.
        seed: of the run that wrote the last record, if there is one.
        size: bytes of the file that are whole records.
        dropped: whether there are records of failed lines that are to be answered again.
    """

    digests: dict[int, str] = field(default_factory=dict)
    receipts: set[Receipt] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    seed: int | None = None
    size: int = 0
    dropped: bool = False

    def require(self, receipt: Receipt, name: str, *, mix_receipts: bool) -> None:
        """Refuse to add to records that were made otherwise, unless receipts may be mixed.

        Raises:
            UsageError: they were.
        """
        other = next((each for each in self.receipts if each != receipt), None)
        if other is not None and not mix_receipts:
            raise UsageError(
                f"{name} has answers of {other.difference(receipt)}: use the same again, "
                "give another output, or allow it with --mix-receipts"
            )


class Output:
    """A file that is locked for this run, or a stream.

    Args:
        fd: to write to; closed with this.
        name: what messages call it.
        path: of the file; None for a stream.
        made: whether this run made the file: it is removed if it ends without a record.
    """

    def __init__(self, fd: int, name: str, path: Path | None = None, *, made: bool = False) -> None:
        self.fd = fd
        self.name = name
        self.path = path
        self._made = made
        self._size = os.fstat(fd).st_size
        self._last, self._in_order = 0, True

    @property
    def is_empty(self) -> bool:
        """Whether no record was ever written; a file that this run made is removed then."""
        return self._size == 0

    def append(self, number: int, record: bytes) -> None:
        """Write the record of a line; to a file, or nothing of it.

        Raises:
            BrokenPipeError: the reader of a stream has left.
            LocalspecError: it cannot be written.
        """
        try:
            _write_all(self.fd, record)
        except OSError as error:
            remedy = "check where the output goes"
            if self.path is not None:
                remedy = "its lines are complete; make room, then use --resume"
                with suppress(OSError):
                    os.ftruncate(self.fd, self._size)
            elif isinstance(error, BrokenPipeError):
                raise
            raise _unwritable(self.name, error, remedy) from error
        self._size += len(record)
        self._note(number)

    def finished(self, *, retry_failed: bool) -> FinishedLines:
        """Return what the file holds; changes nothing.

        Args:
            retry_failed: do not count records that are errors.

        Raises:
            UsageError: it is no output, or a damaged one.
        """
        finished = FinishedLines()
        assert self.path is not None  # noqa: S101 - streams are not resumed
        with self.path.open("rb") as file:
            for raw, record in whole_records(file, self.name):
                finished.size += len(raw)
                finished.seed = record.receipt.seed
                if retry_failed and record.error:
                    finished.dropped = True
                    continue
                self._note(record.line)
                if record.error is not None:
                    finished.failed.add(record.line)
                finished.receipts.add(record.receipt)
                finished.digests[record.line] = record.input
        return finished

    def take_up(self, finished: FinishedLines) -> None:
        """Cut a torn record off, and drop those of lines that are to be answered again.

        Raises:
            LocalspecError: the disk does not take it; the file stays as it was.
        """
        os.ftruncate(self.fd, finished.size)
        self._size = finished.size
        if finished.dropped:
            self._rewrite(drop_failed=True)

    def put_in_order(self) -> None:
        """Bring the records of a file into the order of their lines, if they are not.

        Raises:
            LocalspecError: the disk does not take the new file; the old one stays.
        """
        if not self._in_order:
            self._rewrite()

    def close(self) -> None:
        """Close it, and release its lock."""
        if self._made and self._size == 0 and self.path is not None:
            with suppress(OSError):
                self.path.unlink()
        os.close(self.fd)

    def _note(self, number: int) -> None:
        self._in_order = self._in_order and self._last < number
        self._last = max(self._last, number)

    def _rewrite(self, *, drop_failed: bool = False) -> None:
        """Replace the file, whole or not at all, by one with its records in order."""
        path = self.path
        if path is None:
            return
        # A name of its own: the holder of the output's lock may remove what a killed run left there.
        replacement = path.with_name(f".{path.name}.localspec-new")
        try:
            replacement.unlink(missing_ok=True)
            fd = os.open(replacement, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                _lock(fd)  # before it gets the name: nobody comes in between
                os.fchmod(fd, os.fstat(self.fd).st_mode & 0o7777)
                with open(fd, "wb", closefd=False) as new, path.open("rb") as old:
                    new.writelines(_sorted_records(old, self.name, drop_failed=drop_failed))
                    new.flush()
                    os.fsync(fd)
                replacement.replace(path)
            except BaseException:
                os.close(fd)
                with suppress(OSError):
                    replacement.unlink()
                raise
        except OSError as error:
            raise LocalspecError(
                f"{self.name} cannot be rewritten ({error.strerror}): it stays as it was; make room"
            ) from error
        os.close(self.fd)
        self.fd, self._size = fd, os.fstat(fd).st_size
        self._in_order = True


def whole_records(file: BinaryIO, name: str) -> Iterator[tuple[bytes, Record]]:
    """Yield every whole record of an output with its bytes; what follows the last end of a line is a torn one.

    Raises:
        UsageError: it holds something else, or a record that is damaged.
    """
    number = 1
    while (raw := file.readline(MOST_RECORD_BYTES)).endswith(b"\n"):
        try:
            yield raw, read_record(raw)
        except ValueError:
            raise _foreign(name, number) from None
        number += 1
    if raw[: len(BEGINNING)] != BEGINNING[: len(raw)]:
        raise _foreign(name, number)


def open_output(name: str, *, resume: bool) -> Output:
    """Open an output.

    Args:
        name: path of a file, or `-` for stdout.
        resume: take up a file that is there.

    Raises:
        UsageError: there is a file already, or another run writes it, or a stream is to be resumed.
        LocalspecError: it cannot be written.
    """
    if name == "-":
        if resume:
            raise UsageError("stdout cannot be resumed: name a file with --output")
        return Output(os.dup(sys.stdout.fileno()), "stdout")
    try:
        mode = Path(name).stat().st_mode if Path(name).exists() else stat.S_IFREG
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if stat.S_ISREG(mode):
            # A link stays one when the file behind it is rewritten.
            return _opened(Path(os.path.realpath(name)), shown(name), resume=resume)
        if resume:
            raise UsageError(f"{shown(name)} is not a file that can be resumed: remove --resume")
        return Output(os.open(name, os.O_WRONLY), shown(name))
    except ValueError:
        raise UsageError(f"{shown(name)} cannot be a file: a name has no NUL") from None
    except OSError as error:
        raise _unwritable(shown(name), error, "check the path, or give another one") from error


def _sorted_records(file: BinaryIO, name: str, *, drop_failed: bool) -> Iterator[bytes]:
    places, at = list[tuple[int, int, int]](), 0
    for raw, record in whole_records(file, name):
        if not (drop_failed and record.error):
            places.append((record.line, at, len(raw)))
        at += len(raw)
    for _, place, size in sorted(places):
        file.seek(place)
        yield file.read(size)


def _opened(path: Path, name: str, *, resume: bool) -> Output:
    there = path.exists()
    new = 0 if resume else os.O_EXCL
    try:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | new, 0o666)
    except FileExistsError:
        raise UsageError(
            f"{name} exists; use --resume to continue it, or choose another output"
        ) from None
    if not _lock(fd) or not _is_still(path, fd):
        os.close(fd)
        raise UsageError(f"another run is writing {name}: wait for it, or give another output")
    return Output(fd, name, path, made=not there)


def _lock(fd: int) -> bool:
    """Lock a file until it is closed; return False if another run has it locked."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)  # else a file system without locks
    return True


def _is_still(path: Path, fd: int) -> bool:
    """Return whether a path still means the file that was opened."""
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except OSError:
        return False


def _write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        try:
            written = os.write(fd, view)
        except BlockingIOError:  # a stream that was opened so by its owner
            select.select([], [fd], [])
            continue
        if written == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        view = view[written:]


def _foreign(name: str, number: int) -> UsageError:
    return UsageError(
        f"{name} is not an output of batch, or is damaged: record {number} is not valid; give another output"
    )


def _unwritable(name: str, error: OSError, remedy: str) -> LocalspecError:
    return LocalspecError(f"{name} cannot be written ({error.strerror or error}): {remedy}")
