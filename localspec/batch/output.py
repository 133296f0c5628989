"""Output: records appended to a file or a stream, a whole line at a time. Knows nothing of what they say.

A file is locked as long as it is written, and never overwritten: it is new, or taken up again. A
record that the disk does not take in full is taken back, so that only whole ones stay.
"""

import errno
import fcntl
import os
import select
import stat
import sys
from contextlib import suppress
from pathlib import Path

from localspec.errors import LocalspecError, UsageError
from localspec.storage.paths import shown


class StreamOutput:
    """Stdout, or a pipe or device by its name.

    Args:
        fd: to write to; closed with this.
        name: what messages call it.

    Attributes:
        is_file: whether it can be taken up again.
    """

    is_file = False

    def __init__(self, fd: int, name: str) -> None:
        self._fd = fd
        self.name = name

    def append(self, record: bytes) -> None:
        """Write a record, so that whoever reads sees it.

        Raises:
            BrokenPipeError: nobody reads any more.
            LocalspecError: it cannot be written.
        """
        try:
            _write_all(self._fd, record)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _unwritable(self.name, error, "check where the output goes") from error

    def close(self) -> None:
        """Close it."""
        os.close(self._fd)


class FileOutput:
    """A file that is locked for us.

    Args:
        fd: of the file, open for reading and appending; closed with this.
        path: of the file.
        name: what messages call it.
        made: whether this run made it: if it ends before a record is written, it leaves none behind.
    """

    is_file = True

    def __init__(self, fd: int, path: Path, name: str, *, made: bool) -> None:
        self.fd = fd
        self.path = path
        self.name = name
        self._made = made
        self.size = os.fstat(fd).st_size

    def append(self, record: bytes) -> None:
        """Write a record, or nothing of it; raises as `StreamOutput` does."""
        try:
            _write_all(self.fd, record)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self.fd, self.size)
            raise _unwritable(
                self.name, error, "its lines are complete; make room, then use --resume"
            ) from error
        self.size += len(record)

    def cut(self, size: int) -> None:
        """Keep so many bytes."""
        os.ftruncate(self.fd, size)
        self.size = size

    def replace(self, fd: int) -> None:
        """Go on with another file, which is in the place of this one now."""
        os.close(self.fd)
        self.fd = fd
        self.size = os.fstat(fd).st_size

    def close(self) -> None:
        """Close it, and let others have it."""
        if self._made and self.size == 0:
            with suppress(OSError):
                self.path.unlink()
        os.close(self.fd)


def open_output(name: str, *, resume: bool) -> StreamOutput | FileOutput:
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
        return StreamOutput(os.dup(sys.stdout.fileno()), "stdout")
    try:
        if _is_stream(Path(name)):
            if resume:
                raise UsageError(
                    f"{shown(name)} is not a file that can be resumed: remove --resume"
                )
            return StreamOutput(os.open(name, os.O_WRONLY), shown(name))
        # A link stays one when the file behind it is rewritten.
        return _opened(Path(os.path.realpath(name)), shown(name), resume=resume)
    except ValueError:
        raise UsageError(f"{shown(name)} cannot be a file: a name has no NUL") from None
    except OSError as error:
        raise _unwritable(shown(name), error, "check the path, or give another one") from error


def _is_stream(path: Path) -> bool:
    """Return whether a path means a pipe or a device; of `/dev/stdout`, whatever stands behind it."""
    if not path.exists():
        return False
    mode = path.stat().st_mode
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _opened(path: Path, name: str, *, resume: bool) -> FileOutput:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    there = path.exists()
    new = 0 if resume else os.O_EXCL
    try:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | new, 0o666)
    except FileExistsError:
        raise UsageError(
            f"{name} exists; use --resume to continue it, or choose another output"
        ) from None
    if not lock(fd) or not _is_still(path, fd):
        os.close(fd)
        raise UsageError(f"another run is writing {name}: wait for it, or give another output")
    return FileOutput(fd, path, name, made=not there)


def lock(fd: int) -> bool:
    """Lock a file until it is closed; return False where somebody else has it locked."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _is_still(path: Path, fd: int) -> bool:
    """Return whether nobody has put another file in the place of one since it was opened."""
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except OSError:
        return False


def _write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        try:
            written = os.write(fd, view)
        except BlockingIOError:  # whoever gave us the stream does not let it wait
            select.select([], [fd], [])
            continue
        if written == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        view = view[written:]


def _unwritable(name: str, error: OSError, remedy: str) -> LocalspecError:
    return LocalspecError(f"{name} cannot be written ({error.strerror or error}): {remedy}")
