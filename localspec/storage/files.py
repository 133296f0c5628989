"""Files that only their owner can read, whatever the umask is: replaced as a whole, read up to a bound.

Knows bytes and room on a disk, not what is kept.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path


def private_directory(path: Path) -> None:
    """Make a directory, and those above it that are missing; one that is there stays as it is.

    Raises:
        OSError: it cannot be made, or is a file.
    """
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)  # raises where it is a file


def write_atomic(
    path: Path, content: bytes | Iterable[bytes | bytearray | memoryview], *, lasting: bool = True
) -> None:
    """Replace a file, which its owner alone may read; a reader meanwhile, or after a crash, has the old one or the new one, whole.

    Args:
        path: the file.
        content: all of it, or its parts.
        lasting: wait until the disk has it; without that, a crash of the system may leave it damaged.

    Raises:
        OSError: the disk does not take it; the old file stays.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.writelines([content] if isinstance(content, bytes) else content)
            if lasting:
                stream.flush()
                os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """Return the content of a regular file.

    Raises:
        FileNotFoundError: there is none.
        OSError: it cannot be read, is no regular file, or is longer; `strerror` says which.
    """
    if path.exists() and not path.is_file():  # opening a named pipe would wait for ever
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with path.open("rb") as stream:
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        most = f"{most_bytes >> 10} KB" if most_bytes < 1 << 20 else size_text(most_bytes)
        raise OSError(errno.EFBIG, f"it is longer than {most}", str(path))
    return content


def holds_other(path: Path, mark: str) -> bool:
    """Return whether writing to a path would lose a file that does not begin with `mark`, so is another's."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        begins = stream.read(len(mark.encode()))
    return begins not in {b"", mark.encode()}


def sync_directory(directory: Path) -> None:
    """Make sure that the names in a directory survive a crash, too."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def free_bytes(directory: Path) -> int:
    """Return how much room the disk of a directory has, whether that is there yet or not."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    return shutil.disk_usage(directory).free


def size_text(size_bytes: int) -> str:
    """Return a size as people read it, in decimal units."""
    if size_bytes >= 1e9:
        return f"{size_bytes / 1e9:.1f} GB"
    if 1e4 <= size_bytes < 1e6:
        return f"{size_bytes / 1e3:.0f} kB"
    return f"{size_bytes / 1e6:.0f} MB"
