"""Folder: files below one folder by name, and nothing outside it, whatever the names are and whatever changes meanwhile.

Every part of a name is opened by itself, from the folder that holds it and without following a link; links are read and
followed by hand. So nothing that is swapped between a look and a use leads out. Hard links are files like others.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import UsageError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a named pipe waits for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40
_MOST_CHARS = 4096
# What git runs by itself, such as hooks, is in there.
_CLOSED = ".git"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a name leads.

    Args:
        holder: the open folder that holds its last part.
        last: that part.
        name: all of it, links followed.
        is_there: whether there is such a folder; where there is not, `holder` and `last` say nothing.
    """

    holder: int
    last: str
    name: str
    is_there: bool = True


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
        """Let go of it; closing twice is harmless."""
        root, self._root = self._root, -1
        if root >= 0:
            os.close(root)

    def canonical(self, name: str) -> str:
        """Return a name relative to the folder, links followed; its last parts need not exist.

        Raises:
            UsageError: it leads out of the folder, or is no name.
        """
        with self._place(name) as place:
            return place.name

    def is_folder(self, name: str) -> bool:
        """Return whether a name means a folder.

        Raises:
            UsageError: it leads out of the folder, or is no name.
        """
        with self._place(name) as place:
            try:
                found = os.stat(place.last, dir_fd=place.holder, follow_symlinks=False)
            except OSError:
                return False
            return place.is_there and stat.S_ISDIR(found.st_mode)

    def read(self, name: str, most_bytes: int) -> tuple[str, bytes] | None:
        """Return what `canonical` does, and the beginning of the file, one byte more than asked for where it goes on.

        None where there is no such file.

        Raises:
            UsageError: the name leads out of the folder, or is not that of a regular file that can be read.
        """
        with self._place(name) as place:
            if not place.is_there:
                return None
            try:
                descriptor = os.open(place.last, _FILE, dir_fd=place.holder)
            except FileNotFoundError:
                return None
            except OSError as error:
                raise _refused(name, error) from error
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise UsageError(f"{name} is not a regular file: name another")
                with os.fdopen(descriptor, "rb", closefd=False) as stream:
                    return place.name, stream.read(most_bytes + 1)
            except OSError as error:
                raise _refused(name, error) from error
            finally:
                os.close(descriptor)

    def write(self, name: str, content: bytes) -> None:
        """Replace a file, or make it with the folders above it; whoever reads meanwhile sees the old or the new one.

        Raises:
            UsageError: the name leads out of the folder, into `.git`, or to what cannot be written.
        """
        with self._place(name, makes=True) as place:
            if any(each.casefold() == _CLOSED for each in place.name.split("/")):
                raise UsageError(f"{name} belongs to git: change it by git's own commands")
            beside = f".{place.last[:200]}.{secrets.token_hex(4)}"
            try:
                mode = _mode(place)
                descriptor = os.open(beside, _NEW, mode, dir_fd=place.holder)
                try:
                    with os.fdopen(descriptor, "wb") as stream:
                        os.fchmod(descriptor, mode)
                        stream.write(content)
                        stream.flush()
                        os.fsync(descriptor)
                    os.replace(beside, place.last, src_dir_fd=place.holder, dst_dir_fd=place.holder)
                except BaseException:
                    os.unlink(beside, dir_fd=place.holder)
                    raise
            except OSError as error:
                raise _refused(name, error) from error

    @contextmanager
    def _place(self, name: str, *, makes: bool = False) -> Iterator[_Place]:
        """Yield where a name leads; with `makes`, folders that are missing on the way are made."""
        waiting = self._parts(name)[::-1]
        walk, links = _Walk(self._root), 0
        try:
            while waiting:
                part = waiting.pop()
                if part == "..":
                    walk.up(name)
                    continue
                target = _link(part, walk.holder)
                if target is not None:
                    links += 1
                    if links > _MOST_LINKS:
                        raise UsageError(f"{name} leads through too many links: name the file")
                    waiting += self._parts(target, name)[::-1]
                    if target.startswith("/"):
                        walk.to_top()
                    continue
                if not waiting:
                    yield walk.place(part)
                    return
                try:
                    walk.enter(part, name, makes=makes)
                except FileNotFoundError:
                    yield walk.nowhere([part, *reversed(waiting)], name)
                    return
            yield walk.place(".")
        finally:
            walk.close()

    def _parts(self, path: str, name: str | None = None) -> list[str]:
        """Return the parts of a path; of an absolute one, those below the folder.

        Args:
            path: a name, or what a link says.
            name: how errors call it; None calls it by itself.
        """
        name = path if name is None else name
        if not path or "\0" in path or len(path) > _MOST_CHARS:
            raise UsageError(f"{path[:60]!r} is no name of a file: write a path in the folder")
        try:
            path.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{path[:60]!r} is no name of a file: write a path") from None
        if path.startswith("/"):
            root = f"{self.path}/"
            if f"{path}/" == root:
                return []
            if not path.startswith(root):
                raise _outside(name)
            path = path[len(root) :]
        return [each for each in path.split("/") if each not in {"", "."}]


class _Walk:
    """Open folders, from the top to where a walk is.

    Args:
        top: the first of them, which stays open afterwards.
    """

    def __init__(self, top: int) -> None:
        self._opened, self._parts = [os.dup(top)], list[str]()

    @property
    def holder(self) -> int:
        """The folder that it is in."""
        return self._opened[-1]

    def enter(self, part: str, name: str, *, makes: bool) -> None:
        """Go into a folder; see `_entered`."""
        self._opened.append(_entered(part, self.holder, name, makes=makes))
        self._parts.append(part)

    def up(self, name: str) -> None:
        """Go back by one folder."""
        if not self._parts:
            raise _outside(name)
        self._parts.pop()
        os.close(self._opened.pop())

    def to_top(self) -> None:
        """Go back to the first folder."""
        self._parts.clear()
        while len(self._opened) > 1:
            os.close(self._opened.pop())

    def place(self, last: str) -> _Place:
        """Return where it ends; `.` is the folder itself."""
        parts = self._parts if last == "." else [*self._parts, last]
        return _Place(self.holder, last, "/".join(parts) or ".")

    def nowhere(self, rest: list[str], name: str) -> _Place:
        """Return where it would end, if what is missing were there."""
        if ".." in rest:
            raise UsageError(f"{name[:200]} is not there: check the path")
        return _Place(self.holder, rest[0], "/".join([*self._parts, *rest]), is_there=False)

    def close(self) -> None:
        """Close all of them."""
        for each in self._opened:
            os.close(each)


def _entered(part: str, holder: int, name: str, *, makes: bool) -> int:
    """Return an open folder; `part` is neither `..` nor, a moment ago, a link.

    Raises:
        FileNotFoundError: it is not there, and not to be made.
        UsageError: it is no folder, or may not be opened.
    """
    if makes:
        if part.casefold() == _CLOSED:
            raise UsageError(f"{name} belongs to git: change it by git's own commands")
        try:
            os.mkdir(part, dir_fd=holder)
        except FileExistsError:
            pass
        except OSError as error:
            raise _refused(name, error) from error
    try:
        return os.open(part, _DIRECTORY, dir_fd=holder)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _refused(name, error) from error


def _link(part: str, holder: int) -> str | None:
    """Return what a link says; None for what is none."""
    try:
        return os.readlink(part, dir_fd=holder)
    except OSError:
        return None


def _mode(place: _Place) -> int:
    """Return the mode that a file has, or a new one gets."""
    try:
        found = os.stat(place.last, dir_fd=place.holder, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EISDIR, "not a regular file")
    return stat.S_IMODE(found.st_mode) & 0o777


def _outside(name: str) -> UsageError:
    return UsageError(f"{name[:200]} is outside the folder: only what is in it can be used")


def _refused(name: str, error: OSError) -> UsageError:
    return UsageError(f"{name[:200]} cannot be used ({error.strerror}): check the path")
