"""Folder: files below one folder by name, and nothing outside it, whatever the names are and whatever changes meanwhile.

A name's links are resolved first; then every part of what it leads to is opened from the folder that holds it, without
following links. A link that is put there in between is an error. Hard links are files like others.
"""

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

from localspec.errors import UsageError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a named pipe waits for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_CHARS = 4096
# What git runs by itself, such as hooks, is in there.
_CLOSED = ".git"


class Folder:
    """A folder that names are relative to.

    Args:
        path: of the folder, which is there.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._root = os.open(self.path, _DIRECTORY)

    def close(self) -> None:
        """Close it; closing twice is harmless."""
        root, self._root = self._root, -1
        if root >= 0:
            os.close(root)

    def canonical(self, name: str) -> str:
        """Return a name relative to the folder, links followed; its last parts need not exist.

        Raises:
            UsageError: it leads out of the folder, or is no name.
        """
        if not name or "\0" in name or len(name) > _MOST_CHARS:
            raise UsageError(f"{name[:60]!r} is not a file name: write a path in the folder")
        try:
            real = Path(os.path.realpath(self.path / name))
        except UnicodeEncodeError:
            raise UsageError(f"{name[:60]!r} is not a file name: write a path") from None
        except OSError as error:
            raise _refused(name, error) from error
        if not real.is_relative_to(self.path):
            raise UsageError(f"{name[:200]} is outside the folder: only what is in it can be used")
        return str(real.relative_to(self.path))

    def is_folder(self, name: str) -> bool:
        """Return whether a name is that of a folder.

        Raises:
            UsageError: it leads out of the folder, or is no name.
        """
        return (self.path / self.canonical(name)).is_dir()

    def read(self, name: str, most_bytes: int) -> tuple[str, bytes] | None:
        """Return what `canonical` does, and the first `most_bytes + 1` bytes of the file; None where there is no file.

        Raises:
            UsageError: the name leads out of the folder, or is not that of a regular file that can be read.
        """
        canonical = self.canonical(name)
        try:
            with self._parent(canonical) as (parent, last):
                descriptor = os.open(last, _FILE, dir_fd=parent)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise UsageError(f"{name} is not a regular file: name another")
                with os.fdopen(descriptor, "rb", closefd=False) as stream:
                    return canonical, stream.read(most_bytes + 1)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _refused(name, error) from error

    def write(self, name: str, content: bytes) -> None:
        """Replace a file, or make it with the folders above it; a reader sees the old content or the new one.

        Raises:
            UsageError: the name leads out of the folder, into `.git`, or to what cannot be written.
        """
        canonical = self.canonical(name)
        if _CLOSED in canonical.casefold().split("/"):
            raise UsageError(f"{name} belongs to git: change it by git's own commands")
        try:
            with self._parent(canonical, makes=True) as (parent, last):
                mode = _mode(parent, last)
                new = f".{last[:200]}.{secrets.token_hex(4)}"
                descriptor = os.open(new, _NEW, mode, dir_fd=parent)
                try:
                    with os.fdopen(descriptor, "wb") as stream:
                        os.fchmod(descriptor, mode)
                        stream.write(content)
                        stream.flush()
                        os.fsync(descriptor)
                    os.replace(new, last, src_dir_fd=parent, dst_dir_fd=parent)
                except BaseException:
                    os.unlink(new, dir_fd=parent)
                    raise
        except OSError as error:
            raise _refused(name, error) from error

    @contextmanager
    def _parent(self, canonical: str, *, makes: bool = False) -> Iterator[tuple[int, str]]:
        """Yield the open folder that holds a name's last part, and that part; `makes` makes folders that are missing."""
        *above, last = canonical.split("/")
        parent = os.dup(self._root)
        try:
            for part in above:
                if makes:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=parent)
                inner = os.open(part, _DIRECTORY, dir_fd=parent)
                os.close(parent)
                parent = inner
            yield parent, last
        finally:
            os.close(parent)


def name_in_url(url: str) -> str:
    """Return the name of a file in its `file:` URL; the host `localhost` and a query are no part of it."""
    name = url.partition(":")[2].partition("?")[0].removeprefix("//")
    return unquote(re.sub("^localhost(?=/)", "", name, flags=re.IGNORECASE))


def _mode(parent: int, last: str) -> int:
    """Return the mode that a file has, or a new one gets."""
    try:
        status = os.stat(last, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EISDIR, "not a regular file")
    return stat.S_IMODE(status.st_mode) & 0o777


def _refused(name: str, error: OSError) -> UsageError:
    return UsageError(f"{name[:200]} cannot be used ({error.strerror}): check the path")
