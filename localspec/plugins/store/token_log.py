"""TokenLog: tokens that were said before, in SQLite, found again by the four tokens before them.

A text stands in blocks of one owner; a block begins with the last tokens of the one before it, so that each can be searched and
read by itself. An n-gram is a row: the checksum of four tokens, and the place of the token behind them. A row is believed only
after the tokens there were compared. Knows no vocabulary but its number and size: tokens of another have other checksums.
"""

import errno
import sqlite3
import threading
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from localspec.storage import database

FILE = "said.db"
USUAL_MEGABYTES = 64
_WAIT_S, _LONG_WAIT_S = 0.05, 5.0
"""How long another program is waited for: while an answer is made, and otherwise."""
_EARLIER = "said"
"""The file of earlier versions; only removed."""
_BLOCK, _OVERLAP = 512, 32
"""Tokens of a block: with their four bytes each they leave room for others in a page of SQLite."""
_PLACES = 1024
"""A place is the number of a block times this, and where in it the token is."""
_FAR_ABOVE, _SLICE = 1.3, 4 * _BLOCK
"""How full it never is by itself; tokens that leave with a block that is added when it is nevertheless."""
_GRAM, _LONGEST = 4, 16
"""Tokens of an n-gram; most that are compared."""
_STEPS = (
    """
CREATE TABLE block (
    id INTEGER PRIMARY KEY, owner TEXT NOT NULL, vocabulary INTEGER NOT NULL, tokens BLOB NOT NULL
) STRICT;

CREATE INDEX block_by_owner ON block(owner);

CREATE TABLE gram (hash INTEGER, place INTEGER, PRIMARY KEY (hash, place)) STRICT, WITHOUT ROWID;

CREATE TABLE forgotten (owner TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
""",
)
_FIND = """
SELECT CAST(place AS INTEGER), substr(tokens, 4 * max(place % 1024 - 16, 0) + 1, 68) FROM gram JOIN block ON block.id = place / 1024
WHERE hash = ? AND vocabulary = ? ORDER BY place DESC LIMIT 8
"""


class TokenLog:
    """Texts by owner, and what followed where they ended as another text does now.

    Safe to be used by several threads.

    Args:
        path: the file; made by the first text that is added.
        vocabulary: any number that tells the vocabulary from others.
        n_vocab: how many ids it has; no others are ever returned.
        megabytes: about the most that the file takes.

    Raises:
        OSError: the file cannot be read, or is another program's.
    """

    def __init__(
        self,
        path: Path,
        vocabulary: int = 0,
        n_vocab: int = 1 << 31,
        megabytes: int = USUAL_MEGABYTES,
    ) -> None:
        self._path, self._n_vocab, self._most_bytes = path, n_vocab, megabytes * 1_000_000
        self._vocabulary, self._room = vocabulary % (1 << 32), 0
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        if path.exists():
            with _errors(path):
                self._opened(_LONG_WAIT_S)

    def find(self, text: Sequence[int]) -> tuple[int, bool, int] | None:
        """Return what the end of a text was followed by: tokens that match, whether others followed as well, the place.

        Of the latest places that end like the text, those that match longest have a vote; of what most of
        them go on with, the latest is returned. None if four tokens were never said together.
        """
        key = [*text[-_LONGEST:]]
        if len(key) < _GRAM or min(key[-_GRAM:]) < 0:  # a picture's ids are negative
            return None
        number = zlib.crc32(array("I", key[-_GRAM:]), self._vocabulary)
        matches = list[tuple[int, int, int]]()
        for place, near in self._rows(_FIND, number, self._vocabulary):
            words, at = _words(near), min(place % _PLACES, _LONGEST)
            pairs = zip(reversed(words[:at]), reversed(key), strict=False)
            length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            if length >= _GRAM and at < len(words) and words[at] < self._n_vocab:
                matches.append((length, words[at], place))
        if not matches:
            return None
        longest = max(length for length, _, _ in matches)
        voting = [each for each in matches if each[0] + 2 >= longest]
        votes = Counter(token for _, token, _ in voting)
        place = max(voting, key=lambda each: (votes[each[1]], each[0]))[2]
        return longest, len(votes) > 1, place

    def read(self, place: int, most: int) -> list[int]:
        """Return up to so many tokens that follow a place, as far as its block goes; the next block is found by them."""
        block, at = divmod(place, _PLACES)
        select = "SELECT substr(tokens, ?, ?) FROM block WHERE id = ?"
        for (content,) in self._rows(select, 4 * at + 1, 4 * most, block):
            return list(takewhile(lambda token: token < self._n_vocab, _words(content)))
        return []

    def append(
        self, owner: str, tokens: Sequence[int], after: int | None = None, wait_s: float = _WAIT_S
    ) -> int | None:
        """Add a text, or more of it.

        Args:
            owner: whose it is; see `forget`.
            tokens: of the text.
            after: what the last call for this text returned; None for a text that begins.
            wait_s: how long to wait for a program that writes.

        Returns:
            Where it ends; None if its owner was forgotten, which takes nothing any more.

        Raises:
            BlockingIOError: another program still writes.
            OSError: the file cannot be written.
        """
        block = None if after is None else after // _PLACES
        with (
            self._lock,
            _errors(self._path),
            database.transaction(connection := self._opened(wait_s)),
        ):
            if connection.execute("SELECT 1 FROM forgotten WHERE owner = ?", (owner,)).fetchone():
                return None
            begun = connection.execute(
                "SELECT tokens FROM block WHERE id = ? AND owner = ?", (block, owner)
            ).fetchone()
            words = _words(begun[0] if begun else b"")
            block, new = block if begun else None, len(words)
            words.extend(tokens)
            while True:
                row = (block, owner, self._vocabulary, words[:_BLOCK].tobytes())
                insert = "INSERT OR REPLACE INTO block VALUES (?, ?, ?, ?)"
                block = connection.execute(insert, row).lastrowid or 0
                grams = _grams(block, self._vocabulary, words[:_BLOCK], new)
                connection.executemany("INSERT OR IGNORE INTO gram VALUES (?, ?)", grams)
                self._make_room(connection, min(len(words), _BLOCK) - new)
                if len(words) <= _BLOCK:
                    break
                words, block, new = words[_BLOCK - _OVERLAP :], None, _OVERLAP
            return block * _PLACES + len(words)

    def forget(self, owner: str, *, for_good: bool = True) -> None:
        """Overwrite all texts of an owner, and what leads to them.

        Args:
            owner: as `append` had it.
            for_good: whether it may not add anything from now on.

        Raises:
            OSError: the file cannot be written.
        """
        with self._lock, _errors(self._path):
            if self._connection is None and not self._path.exists():
                return
            connection = self._opened(_LONG_WAIT_S)
            with database.transaction(connection):
                if for_good:
                    connection.execute("INSERT OR IGNORE INTO forgotten VALUES (?)", (owner,))
                its = connection.execute("SELECT * FROM block WHERE owner = ?", (owner,))
                _remove(connection, its.fetchall())
            database.empty_log(connection)

    def give_back(self) -> None:
        """Return to the disk what removed texts have left, where the file is far larger than it may be."""
        with self._lock, suppress(OSError, sqlite3.Error):
            most = _FAR_ABOVE * self._most_bytes
            if self._connection is None or self._path.stat().st_size <= most:
                return
            if database.used_bytes(self._connection) <= most:
                self._connection.execute("VACUUM")
                database.empty_log(self._connection)

    def figures(self) -> tuple[int, int]:
        """Return about how many tokens there are, and how many owners they have."""
        select = "SELECT sum(length(tokens)) / 4, count(DISTINCT owner) FROM block"
        for tokens, owners in self._rows(select):
            return tokens or 0, owners
        return 0, 0

    def _opened(self, wait_s: float) -> sqlite3.Connection:
        with self._lock:
            if self._connection is None:
                connection = database.open_database(self._path, _STEPS, busy_s=wait_s)
                connection.row_factory = None
                self._connection = connection
            self._connection.execute(f"PRAGMA busy_timeout = {round(1000 * wait_s)}")
            return self._connection

    def _rows(self, statement: str, *values: int) -> list[Any]:
        """Return rows; none where the file cannot be read, since an answer goes on without it."""
        with suppress(OSError, sqlite3.Error):
            if self._connection is None and self._path.exists():
                self._opened(_WAIT_S)  # another program has made it
            if self._connection is not None:
                return self._connection.execute(statement, values).fetchall()
        return []

    def _make_room(self, connection: sqlite3.Connection, added: int) -> None:
        """Where the file has its size, remove as many of the oldest tokens as were added since; more if it is far above."""
        used = database.used_bytes(connection)
        if used <= self._most_bytes:
            self._room = 0
            return
        self._room -= added
        if used > _FAR_ABOVE * self._most_bytes:  # it may have been larger: a slice at a time
            self._room = min(self._room, -_SLICE)
        oldest = "SELECT * FROM block ORDER BY id LIMIT 1"
        while self._room < 0 and (rows := connection.execute(oldest).fetchall()):
            _remove(connection, rows)
            self._room += max(1, len(rows[0][3]) // 4)


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        number = errno.EAGAIN if database.is_busy(error) else errno.EIO
        raise OSError(number, database.reason_of(error, path), str(path)) from error


def _remove(connection: sqlite3.Connection, rows: Iterable[tuple[int, str, int, bytes]]) -> None:
    for block, _, vocabulary, tokens in rows:
        grams = _grams(block, vocabulary, _words(tokens))
        connection.executemany("DELETE FROM gram WHERE hash = ? AND place = ?", grams)
        connection.execute("DELETE FROM block WHERE id = ?", (block,))


def _words(content: bytes) -> "array[int]":
    """Return the tokens of a block; none where the file is damaged."""
    with suppress(TypeError, ValueError):
        return array("I", content)
    return array("I")


def _grams(
    block: int, vocabulary: int, words: "array[int]", new: int = 0
) -> Iterator[tuple[int, int]]:
    """Yield the n-grams of a block behind which a token stands, from that of the token `new` on."""
    for at in range(max(new, _GRAM), len(words)):
        yield zlib.crc32(words[at - _GRAM : at], vocabulary), block * _PLACES + at


def wipe(path: Path) -> bool:
    """Overwrite everything in a log; return whether there was anything. Programs that have it open match nothing from then on.

    Raises:
        OSError: it cannot be written.
    """
    with _errors(path):
        earlier = path.with_name(_EARLIER)
        gone = earlier != path and database.remove(earlier)
        return database.wipe(path, _STEPS) or gone


def of_conversation(number: int) -> str:
    """Return the owner of what was said in a conversation of the history."""
    return f"conversation {number}"
