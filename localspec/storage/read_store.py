"""What models have read, as files: a text is a chain of blocks of its tokens, and each block knows the one before it.

A block's file is `PARENT.OWN`: OWN is a hash of PARENT and of the block's tokens, and the first PARENT one of whose text
it is. So a text finds its longest common beginning by names alone, what several texts begin with is there once, and two
programs that write the same write the same file. What no block can hold, since no part of it can be cut off (the state
of a recurrent layer, the window of a sliding one), is `OWN.tail`: as it was at the end of that block. `OWN.row` is the row of
logits behind a prompt that ends there.

Each model has a shelf: a directory whose name is a hash of all that changes a bit. Files are made elsewhere and renamed,
and hold a checksum: one that is damaged, foreign, or of a writer that was killed is removed or never seen.
"""

import hashlib
import os
import shutil
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.storage.files import free_bytes, private_directory, write_atomic
from localspec.storage.locks import locked

MOST_BYTES = 2 << 30
"""Of all models together; also what may be written in an hour, to spare the disk."""
SPARE_BYTES = 1 << 30
"""Of the disk, left to others."""
_MAGIC = b"localspec read 1\n"
# Checksum, tokens, bytes of what the writer says of it, bytes of the rest.
_HEAD = struct.Struct("=32sIIQ")
_HOUR_S = 3600.0
_OLD_S = 600.0
"""After which a file that is still being made belongs to a writer that was killed."""
_LEDGER, _OF, _TAIL, _ROW = "written", "of", "tail", "row"
_NAME = 20  # hexadecimal digits, 80 bits

Content = bytes | bytearray | memoryview


class UnusableError(Exception):
    """A file of the store is damaged, gone, or something else."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a file holds.

    Args:
        tokens: of a block.
        about: what its writer said of it.
        content: the rest.
    """

    tokens: tuple[int, ...]
    about: bytes
    content: memoryview


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A block of a text that the store holds.

    Args:
        parent: name of what comes before it.
        own: its name.
        tokens: its tokens.
        common: how many of them a text that was looked up begins with.
    """

    parent: str
    own: str
    tokens: tuple[int, ...]
    common: int

    @property
    def file(self) -> str:
        """Name of its file."""
        return f"{self.parent}.{self.own}"


class Shelf:
    """What one model has read, as it is loaded now.

    Args:
        directory: of all models.
        identity: all that has to be the same for what was read to mean, and to round, the same.
        size: tokens of a block; the last one of a text has fewer.
    """

    def __init__(self, directory: Path, identity: str, size: int) -> None:
        self._directory, self._identity, self.size = directory, identity, size
        self._path = directory / _hash(identity.encode(), b"")

    def beginning(self, owner: str) -> str:
        """Return the parent of the first blocks of someone's texts, which no other's begin with."""
        return _hash(self._identity.encode(), owner.encode())

    def child(self, parent: str, tokens: Sequence[int]) -> str:
        """Return the name of a block."""
        return _hash(parent.encode(), struct.pack(f"={len(tokens)}i", *tokens))

    def chain(self, tokens: Sequence[int], owner: str) -> list[TextBlock]:
        """Return the blocks that a text of someone begins with; the last may agree in a part of it."""
        children = dict[str, list[str]]()
        with suppress(OSError):
            for name in os.listdir(self._path):  # noqa: PTH208 - several times as fast
                parent, _, own = name.partition(".")
                if len(parent) == _NAME and len(own) == _NAME:
                    children.setdefault(parent, []).append(own)
        parent, chain = self.beginning(owner), list[TextBlock]()
        while rest := tuple(tokens[len(chain) * self.size :][: self.size]):
            own = self.child(parent, rest)
            if own in children.get(parent, ()):
                chain.append(TextBlock(parent, own, rest, len(rest)))
            else:
                chain += self._nearest(parent, children.get(parent, ()), rest)
            if not chain or chain[-1].common < self.size or chain[-1].parent != parent:
                break
            parent = chain[-1].own
        return chain

    def _nearest(
        self, parent: str, children: Iterable[str], rest: tuple[int, ...]
    ) -> list[TextBlock]:
        """Return the child that has most of its beginning in common with a text; none if there is none."""
        nearest = None
        for own in children:
            tokens = self._tokens(f"{parent}.{own}")
            common = common_beginning(tokens, rest)
            if common and (nearest is None or common > nearest.common):
                nearest = TextBlock(parent, own, tokens, common)
        return [] if nearest is None else [nearest]

    def _tokens(self, name: str) -> tuple[int, ...]:
        """Return the tokens of a block by its head alone; `read` checks them with all the rest."""
        with suppress(OSError), (self._path / name).open("rb") as file:
            head = file.read(len(_MAGIC) + _HEAD.size)
            if len(head) == len(_MAGIC) + _HEAD.size:
                count = _HEAD.unpack_from(head, len(_MAGIC))[1]
                if count <= self.size:
                    return struct.unpack(f"={count}i", file.read(4 * count).ljust(4 * count, b"\0"))
        return ()

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        return (self._path / name).exists()

    def read(self, name: str) -> Stored:
        """Return what a file holds, all of it checked; one that is of no use is removed.

        Raises:
            UnusableError: so it is, or it is gone.
        """
        path = self._path / name
        try:
            content = path.read_bytes()
            stored = _checked(content)
            parent, _, own = name.partition(".")
            is_whole = own in {_TAIL, _ROW, self.child(parent, stored.tokens)}
        except (OSError, ValueError, struct.error) as error:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            raise UnusableError(str(error)) from None
        if not is_whole:  # another's, under a wrong name
            path.unlink(missing_ok=True)
            raise UnusableError(name)
        return stored

    def write(
        self, name: str, tokens: Sequence[int], about: bytes, parts: Sequence[Content]
    ) -> None:
        """Write a file, unless it is there; whole or not at all.

        Raises:
            OSError: the disk does not take it.
        """
        private_directory(self._path)
        if self.has(name):
            return
        ids = struct.pack(f"={len(tokens)}i", *tokens)
        size = sum(memoryview(each).nbytes for each in parts)
        sizes = (len(tokens), len(about), size)
        checksum = hashlib.sha256(_HEAD.pack(b"", *sizes))
        for each in (ids, about, *parts):
            checksum.update(each)
        head = _HEAD.pack(checksum.digest(), *sizes)  # which tells what a crash has damaged
        write_atomic(self._path / name, [_MAGIC, head, ids, about, *parts], lasting=False)

    def remove(self, *names: str) -> None:
        """Remove files, if they are there."""
        for name in names:
            with suppress(OSError):
                (self._path / name).unlink(missing_ok=True)

    def touch(self, names: Sequence[str]) -> None:
        """Note that files were of use just now, those of a chain in its order: the end of it goes first."""
        now_ns = time.time_ns()
        for at, name in enumerate(names):
            with suppress(OSError):
                os.utime(self._path / name, ns=(now_ns - at, now_ns - at))

    def note(self, conversation: int, names: Iterable[str]) -> None:
        """Note that files hold what was said in a conversation of the history, which they are to leave with it."""
        of = self._directory / _OF
        with suppress(OSError):
            private_directory(of)
            with locked(of):
                path = of / str(conversation)
                before = path.read_text().splitlines() if path.exists() else None
                if before == []:  # it was deleted while its engine still held it
                    self.remove(*names)
                    return
                own = (f"{self._path.name}/{name}" for name in names)
                write_atomic(path, "\n".join(dict.fromkeys([*(before or ()), *own])).encode())


def tail_of(own: str) -> str:
    """Return the name of the file of what no block can hold, at the end of a block."""
    return f"{own}.{_TAIL}"


def row_of(own: str) -> str:
    """Return the name of the file of the row behind a prompt, at the end of a block."""
    return f"{own}.{_ROW}"


def may_be_written(directory: Path, size: int) -> bool:
    """Return whether so many bytes may be written now, and note that they are: by this hour's bound, and by the disk's room."""
    ledger, written = directory / _LEDGER, _written(directory)
    try:
        if written + size > MOST_BYTES or free_bytes(directory) < size + SPARE_BYTES:
            return False
        private_directory(directory)
        write_atomic(ledger, str(round(written + size)).encode())
    except OSError:
        return False
    return True


def _written(directory: Path) -> float:
    """Return how many of the bytes that were written still count: an hour pays off `MOST_BYTES` of them.

    All processes share the file, whose own time says since when. A clock that is set to another time pays, too.
    """
    ledger = directory / _LEDGER
    try:
        passed_s = abs(time.time() - ledger.stat().st_mtime)
        return max(0.0, int(ledger.read_text()) - passed_s * MOST_BYTES / _HOUR_S)
    except (OSError, ValueError):
        return 0.0


def make_room(directory: Path) -> None:
    """Remove what was of no use for longest until all of it is within bounds, and what killed writers left."""
    files, now_s = list[tuple[int, int, Path]](), time.time()
    for path in _files(directory):
        with suppress(OSError):
            status = path.stat()
            if path.name.startswith("."):
                if now_s - status.st_mtime > _OLD_S:
                    path.unlink(missing_ok=True)
            else:
                files.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files, key=lambda each: each[0]):
        if total <= MOST_BYTES:
            break
        with suppress(OSError):
            path.unlink(missing_ok=True)
            total -= size


def held(directory: Path) -> tuple[int, int]:
    """Return how many bytes the store holds, and of how many models, as they are loaded."""
    sizes = dict[Path, int]()
    for path in _files(directory):
        with suppress(OSError):
            sizes[path.parent] = sizes.get(path.parent, 0) + path.stat().st_size
    return sum(sizes.values()), len(sizes)


def forget_conversation(directory: Path, conversation: int) -> None:
    """Remove what the store holds of a conversation of the history, and let nothing of it come back."""
    path = directory / _OF / str(conversation)
    if not directory.is_dir():
        return
    with suppress(OSError):
        private_directory(path.parent)
        with locked(path.parent):
            names = path.read_text().splitlines() if path.exists() else []
            write_atomic(path, b"")
        for name in names:
            shelf, _, file = name.partition("/")
            if "/" not in file and shelf.isalnum():
                (directory / shelf / file).unlink(missing_ok=True)


def remove_old(data: Path) -> None:
    """Remove what earlier versions kept instead, which nothing reads any more."""
    for path in (data / "prefixes", data / "history" / "state"):
        shutil.rmtree(path, ignore_errors=True)


def common_beginning(some: Sequence[int], others: Sequence[int]) -> int:
    """Return how many tokens two texts begin with that are the same."""
    shorter = min(len(some), len(others))
    if tuple(some[:shorter]) == tuple(others[:shorter]):
        return shorter
    return next(at for at in range(shorter) if some[at] != others[at])


def _files(directory: Path) -> Iterator[Path]:
    with suppress(OSError):
        for shelf in directory.iterdir():
            if shelf.is_dir() and shelf.name != _OF:
                with suppress(OSError):
                    yield from list(shelf.iterdir())


def _hash(*parts: bytes) -> str:
    content = b"".join(len(each).to_bytes(8, "little") + each for each in parts)
    return hashlib.blake2b(content, digest_size=_NAME // 2).hexdigest()


def _checked(content: bytes) -> Stored:
    """Return what the content of a file says; raises ValueError or struct.error where it is not whole."""
    start = len(_MAGIC) + _HEAD.size
    if not content.startswith(_MAGIC):
        raise ValueError("it is no file of the store")
    checksum, count, about, size = _HEAD.unpack_from(content, len(_MAGIC))
    rest = memoryview(content)[start:]
    whole = hashlib.sha256(_HEAD.pack(b"", count, about, size))
    whole.update(rest)
    if len(rest) != 4 * count + about + size or whole.digest() != checksum:
        raise ValueError("it is damaged")
    tokens = struct.unpack_from(f"={count}i", rest)
    return Stored(tokens, bytes(rest[4 * count :][:about]), rest[4 * count + about :])
