"""TokenLog: tokens that were said before, in one file of fixed size, found again by the tokens before them.

The file is a ring: what is oldest is written over. A text stands in it once and nothing is ever moved or
copied, so that overwriting it leaves nothing of it, in freed pages neither. In this order it has

    a page              magic, sizes, where the last text ends, and the latest owners that were forgotten
    a row a bucket      the latest eight places of n-grams whose checksum is in the bucket, the latest first
    a word a block      whose text is in it, as a checksum; a block has 64 places and one owner
    a word a place      the token

Places count from 1: a place is that of a token, and where what follows it begins; 0 is nothing. A row is
believed only after its places were compared with the text, so that neither a kill nor a flipped bit can do more than hide
a text. Whoever writes holds the directory's lock; whoever reads needs none. Knows no vocabulary but its number and
size: tokens of another are other words.
"""

import errno
import mmap
import os
import struct
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, takewhile
from pathlib import Path
from typing import BinaryIO

from localspec.storage.files import private_directory
from localspec.storage.locks import locked

FILE = "said"
USUAL_MEGABYTES = 64
_HEADER = struct.Struct("<8sIII")  # magic, buckets, places, end
_MAGIC = b"lsstore1"
_END, _FORGOTTEN, _MOST_FORGOTTEN = 4, 16, 1000
_PAGE, _BLOCK = 4096, 64
_GRAM, _LONGEST, _ROW = 4, 16, 8
"""Tokens of an n-gram; most that are compared; places of a bucket."""
_MOST_VOCABULARY, _VOCABULARIES = 1 << 20, (1 << 12) - 1


class TokenLog:
    """Texts by owner, and what followed where they ended as another text does now.

    Args:
        path: the file; made by the first text that is added.
        vocabulary: any number that tells the vocabulary from others.
        n_vocab: how many ids it has; no others are ever returned.
        megabytes: of a file that is made, all of it.

    Raises:
        OSError: the file cannot be read, or is another program's.
    """

    def __init__(
        self,
        path: Path,
        vocabulary: int = 0,
        n_vocab: int = _MOST_VOCABULARY,
        megabytes: int = USUAL_MEGABYTES,
    ) -> None:
        self._path = path
        self._first = (1 + vocabulary % _VOCABULARIES) * _MOST_VOCABULARY
        self._n_vocab = min(n_vocab, _MOST_VOCABULARY)
        self._megabytes = megabytes
        self._inode = 0
        self._words = memoryview(bytes(_PAGE)).cast("I")
        self._buckets = self._capacity = 0
        with suppress(FileNotFoundError), path.open("rb") as file:
            self._map(file)

    def find(self, text: Sequence[int]) -> tuple[int, bool, int] | None:
        """Return what the end of a text was followed by: tokens that match, whether others followed as well, the place.

        Of the latest places that end like the text, those that match longest have a vote; of what most of
        them go on with, the latest is returned. None if four tokens were never said together.
        """
        words, key = self._words, [token + self._first for token in text[-_LONGEST:]]
        gram, found = key[-_GRAM:], list[tuple[int, int, int]]()
        if len(gram) < _GRAM or not self._capacity:
            return None
        for place in self._row(zlib.crc32(array("I", gram)) % self._buckets):
            behind = self._tokens + place
            if words[behind - _GRAM : behind].tolist() == gram and place < self._capacity:
                most = min(len(key), place)
                before = words[behind - most : behind].tolist()
                length = _GRAM
                while length < most and before[-1 - length] == key[-1 - length]:
                    length += 1
                if 0 <= words[behind] - self._first < self._n_vocab:
                    found.append((length, words[behind], place))
        if not found:
            return None
        longest = max(length for length, _, _ in found)
        voting = [each for each in found if each[0] + 2 >= longest]
        votes = Counter(token for _, token, _ in voting)
        place = max(voting, key=lambda each: (votes[each[1]], each[0]))[2]
        return longest, len(votes) > 1, place

    def read(self, place: int, most: int) -> list[int]:
        """Return up to so many tokens that follow a place."""
        start = self._tokens + place
        stop = min(start + most, self._tokens + self._capacity)
        found = [word - self._first for word in self._words[start:stop].tolist()]
        return list(takewhile(lambda token: 0 <= token < self._n_vocab, found))

    def append(self, owner: str, tokens: Sequence[int], after: int | None = None) -> int | None:
        """Add a text, or more of it.

        Args:
            owner: whose it is; see `forget`.
            tokens: of the text.
            after: what the last call for this text returned; a text in which another was added, or that begins, has None.

        Returns:
            Where it ends; None if its owner was forgotten, which takes nothing any more.

        Raises:
            OSError: the file cannot be written.
        """
        number = _number(owner)
        with self._writing(make=True) as file:
            if number in self._forgotten():
                return None
            words, end = [token + self._first for token in tokens], self._words[_END]
            goes_on = end == after and self._words[self._owners + (end - 1) // _BLOCK] == number
            # At least one place between two texts is empty.
            start = end if goes_on else (end // _BLOCK + 1) * _BLOCK
            while words:
                start = start if start < self._capacity else 0
                room = self._capacity - start
                end = start = self._write_text(file, number, start, words[:room])
                words = words[room:]
            return end

    def forget(self, owner: str, *, for_good: bool = True) -> None:
        """Overwrite all texts of an owner, and what leads to them.

        Args:
            owner: as `append` had it.
            for_good: whether it may not add anything from now on.

        Raises:
            OSError: the file cannot be written.
        """
        number = _number(owner)
        with suppress(FileNotFoundError), self._writing(make=False) as file:
            if not self._capacity:
                return
            known = self._forgotten()
            if for_good and number not in known:
                at = known.index(0) if 0 in known else number % _MOST_FORGOTTEN
                _write(file, _FORGOTTEN + at, [number])
            owners = self._words[self._owners : self._tokens].tolist()
            blocks = [block for block, each in enumerate(owners) if each == number]
            gone = [block * _BLOCK + at for block in blocks for at in range(1, _BLOCK + 1)]
            self._index(file, gone=gone)
            for block in blocks:
                _write(file, self._tokens + block * _BLOCK, [0] * _BLOCK)
            os.fsync(file.fileno())
            # Last: a forgetting that was killed is done again.
            for block in blocks:
                _write(file, self._owners + block, [0])
            os.fsync(file.fileno())

    def figures(self) -> tuple[int, int, int]:
        """Return how many tokens there are at most, how many there is room for, and how many owners they have."""
        owners = [each for each in self._words[self._owners : self._tokens].tolist() if each]
        return len(owners) * _BLOCK, self._capacity, len(set(owners))

    # Areas, as indices of words.

    @property
    def _owners(self) -> int:
        return _PAGE // 4 + _ROW * self._buckets

    @property
    def _tokens(self) -> int:
        return self._owners + self._capacity // _BLOCK

    def _forgotten(self) -> list[int]:
        return self._words[_FORGOTTEN : _FORGOTTEN + _MOST_FORGOTTEN].tolist()

    def _bucket_of(self, place: int) -> int | None:
        """Return the bucket of what ends at a place; None where a text has just begun."""
        gram = self._words[self._tokens + place - _GRAM : self._tokens + place]
        return None if place < _GRAM or 0 in gram else zlib.crc32(gram) % self._buckets

    def _row(self, bucket: int) -> list[int]:
        """Return the places of a bucket."""
        start = _PAGE // 4 + _ROW * bucket
        places = self._words[start : start + _ROW].tolist()
        return [place for place in places if _GRAM <= place <= self._capacity]

    def _index(self, file: BinaryIO, gone: Iterable[int] = (), new: Iterable[int] = ()) -> None:
        """Leave places out of their buckets, while their tokens are there, or put them in."""
        rows = dict[int, list[int]]()
        for place in chain(gone, new):
            bucket = self._bucket_of(place)
            if bucket is not None:
                row = rows[bucket] if bucket in rows else rows.setdefault(bucket, self._row(bucket))
                if place in row:
                    row.remove(place)
                if new:
                    row.insert(0, place)
        for bucket, row in rows.items():
            _write(file, _PAGE // 4 + _ROW * bucket, [*row, *[0] * _ROW][:_ROW])

    def _write_text(self, file: BinaryIO, number: int, start: int, tokens: Sequence[int]) -> int:
        """Write a text, or its end, and return where it ends. Whatever kills this leaves no token without its owner."""
        end = start + len(tokens)
        blocks = range(-(-start // _BLOCK), -(-end // _BLOCK))
        first, width = blocks.start * _BLOCK, len(blocks) * _BLOCK
        # What was there is the oldest; the text behind it begins later now.
        self._index(file, gone=range(first + 1, min(first + width + _GRAM, self._capacity + 1)))
        _write(file, self._tokens + first, [0] * width)
        _write(file, self._owners + blocks.start, [number] * len(blocks))
        _write(file, self._tokens + start, tokens)
        self._index(file, new=range(start + 1, end + 1))
        _write(file, _END, [end])
        return end

    @contextmanager
    def _writing(self, *, make: bool) -> Iterator[BinaryIO]:
        """Hold the lock, and open the file that is there now."""
        if make:
            private_directory(self._path.parent)
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if make else 0)
        with (
            locked(self._path.parent),
            os.fdopen(os.open(self._path, flags, 0o600), "r+b", buffering=0) as file,
        ):
            if not any(os.pread(file.fileno(), _HEADER.size, 0)) and make:
                buckets, places = _sizes(self._megabytes)
                os.ftruncate(file.fileno(), _size_bytes(buckets, places))
                os.pwrite(file.fileno(), _HEADER.pack(_MAGIC, buckets, places, 0), 0)
            if os.fstat(file.fileno()).st_ino != self._inode:
                self._map(file)
            yield file

    def _map(self, file: BinaryIO) -> None:
        header = os.pread(file.fileno(), _HEADER.size, 0)
        if not any(header):
            return  # whoever was to make it was killed
        size = os.fstat(file.fileno()).st_size
        magic, buckets, places, _ = _HEADER.unpack(header.ljust(_HEADER.size, b"\0"))
        sound = magic == _MAGIC and buckets and places and places % _BLOCK == 0
        if not sound or size != _size_bytes(buckets, places):
            raise OSError(errno.EINVAL, "it is damaged", str(self._path))
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._words, self._buckets, self._capacity = memoryview(mapped).cast("I"), buckets, places
        self._inode = os.fstat(file.fileno()).st_ino


def wipe(path: Path) -> bool:
    """Overwrite a log and remove it; return whether there was one. Whoever reads it finds nothing from now on.

    Raises:
        OSError: it cannot be written.
    """
    with suppress(FileNotFoundError), locked(path.parent), path.open("r+b", buffering=0) as file:
        at = 0
        while chunk := os.pread(file.fileno(), 1 << 20, at):
            if chunk.count(0) < len(chunk):  # what was never written takes no room
                os.pwrite(file.fileno(), bytes(len(chunk)), at)
            at += len(chunk)
        os.fsync(file.fileno())
        path.unlink()
        return True
    return False


def of_conversation(number: int) -> str:
    """Return the owner of what was said in a conversation of the history."""
    return f"conversation {number}"


def _number(owner: str) -> int:
    return zlib.crc32(owner.encode(errors="surrogateescape")) or 1


def _sizes(megabytes: int) -> tuple[int, int]:
    """Return how many buckets and places a file of that size has: a word of a row for each place."""
    blocks = (megabytes * 1_000_000 - _PAGE) // (8 * _BLOCK + 4)
    return blocks * _BLOCK // _ROW, blocks * _BLOCK


def _size_bytes(buckets: int, places: int) -> int:
    return _PAGE + 4 * (_ROW * buckets + places // _BLOCK + places)


def _write(file: BinaryIO, at: int, words: Sequence[int]) -> None:
    content = array("I", words).tobytes()
    if os.pwrite(file.fileno(), content, 4 * at) < len(content):
        raise OSError(errno.ENOSPC, "the disk is full", file.name)
