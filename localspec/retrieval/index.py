"""Index: passages of files in one SQLite database, found by their words (BM25). Reads no file of the user's.

What is found was in the file when that was indexed; the text is kept, so that what is cited is what was found.
"""

import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LocalspecError, UsageError
from localspec.retrieval.passages import Passage
from localspec.retrieval.vector_table import VectorModel, VectorTable
from localspec.storage.files import private_directory
from localspec.storage.paths import data_dir, shown

_SCHEMA = """
CREATE TABLE root (path TEXT PRIMARY KEY) STRICT;
CREATE TABLE file (
    id INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    changed_ns INTEGER NOT NULL,
    sha256 BLOB NOT NULL
) STRICT;
CREATE TABLE passage (
    id INTEGER PRIMARY KEY,
    file INTEGER NOT NULL REFERENCES file(id) ON DELETE CASCADE,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    name TEXT NOT NULL,
    heading TEXT NOT NULL,
    text TEXT NOT NULL
) STRICT;
CREATE INDEX passage_by_file ON passage(file);
CREATE VIRTUAL TABLE word USING fts5(
    name, heading, text, content='passage', content_rowid='id', tokenize='porter unicode61 remove_diacritics 2'
);
CREATE TRIGGER passage_inserted AFTER INSERT ON passage BEGIN
    INSERT INTO word(rowid, name, heading, text) VALUES (new.id, new.name, new.heading, new.text);
END;
CREATE TRIGGER passage_deleted AFTER DELETE ON passage BEGIN
    INSERT INTO word(word, rowid, name, heading, text)
        VALUES ('delete', old.id, old.name, old.heading, old.text);
END;
PRAGMA user_version = 1;
"""
_VERSION = 1
_BUSY_S = 10.0
# The weights are those of a word in the file's name, in the heading, in the text.
_SEARCH = (
    "SELECT rowid, -bm25(word, 6.0, 2.0, 1.0) AS score FROM word WHERE word MATCH ?"
    " ORDER BY score DESC, rowid LIMIT ?"
)
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_WORD = re.compile(r"\w+")
_MOST_WORDS, _MOST_HITS = 32, 8_000
"""Of a question; passages that are scored, about a microsecond each."""
# They are in most passages, and say nothing of what is asked for.
_STOP_WORDS = (
    "a about all also an and any are as at be been but by can could did do does for from get had has have how i if in"
    " into is it its me my no not of on one or our out please should so some such than that the their them then there"
    " these they this to up us use used using want was way we were what when where which while who why will with"
    " without would you your"
)
_STOP = frozenset(_STOP_WORDS.split())


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """A passage that was found.

    Args:
        path: the file.
        passage: what it says there.
        score: how well it fits; more is better, and compares only with others of the same question and ranking.
        name: of the file, as users know it: that of what was added, and the path in it.
    """

    path: Path
    passage: Passage
    score: float
    name: str = ""


@dataclass(frozen=True, slots=True)
class KnownFile:
    """What is known of a file that is indexed.

    Args:
        size: in bytes.
        changed_ns: when it was changed last; 0 where that was too short a time ago to tell it from a later change.
        sha256: of its content.
    """

    size: int
    changed_ns: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Contents:
    """How much is in an index.

    Args:
        files: that are indexed.
        passages: in them.
        size_bytes: of the database.
        roots: folders and files that were added.
    """

    files: int
    passages: int
    size_bytes: int
    roots: tuple[Path, ...]


class Index:
    """One index.

    Args:
        path: the database; made with all that is above it where `make` is set.
        make: whether it is made if it is not there.

    Attributes:
        vectors: of its passages, where a model was chosen; used inside `reading` or `writing`.

    Raises:
        LocalspecError: it cannot be read or made, or is not one of this version.
    """

    def __init__(self, path: Path, *, make: bool = False) -> None:
        self.path = path
        try:
            if make:
                private_directory(path.parent)
            # SQLite gives its log the same mode as the file.
            os.close(os.open(path, os.O_RDWR | (os.O_CREAT if make else 0), 0o600))
            self._database = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise _unusable(path, error) from error
        self.vectors = VectorTable(self._database)
        with self._closed_on_error():
            self._database.execute("PRAGMA journal_mode = WAL").fetchone()
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.execute("PRAGMA foreign_keys = ON")
            self._database.execute("PRAGMA secure_delete = ON").fetchone()
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
            if version == 0:
                self._make()
            elif version != _VERSION:
                raise LocalspecError(
                    f"{shown(path)} is of version {version}, this localspec knows {_VERSION}: remove it and index again"
                )

    def _make(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        self._database.execute("COMMIT")
        if version == 0:
            self._database.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}COMMIT;")

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            self._database.close()
            raise _unusable(self.path, error) from error
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        """Close the database; closing twice is harmless."""
        self._database.close()

    def contents(self) -> Contents:
        """Return how much is in it."""
        with self._told():
            ((files, passages),) = self._database.execute(
                "SELECT (SELECT count(*) FROM file), (SELECT count(*) FROM passage)"
            )
        return Contents(files, passages, _size_of(self.path), self.roots())

    def roots(self) -> tuple[Path, ...]:
        """Return the folders and files that were added."""
        with self._told():
            rows = self._database.execute("SELECT path FROM root ORDER BY path").fetchall()
        return tuple(Path(each) for (each,) in rows)

    def add_roots(self, paths: Sequence[Path]) -> None:
        """Take note of folders and files that belong in it."""
        with self.writing():
            self._database.executemany(
                "INSERT OR IGNORE INTO root VALUES (?)", [(str(each),) for each in paths]
            )

    def known(self) -> dict[str, KnownFile]:
        """Return what is known of each file, by its path."""
        with self._told():
            rows = self._database.execute("SELECT path, size, changed_ns, sha256 FROM file")
            return {path: KnownFile(*others) for path, *others in rows}

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Do all that is written inside, or nothing of it.

        Raises:
            LocalspecError: the database cannot be written.
        """
        with self._told():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
                raise

    def put(self, path: str, known: KnownFile, name: str, passages: Sequence[Passage]) -> None:
        """Write a file with its passages, in place of what is there of it; inside `writing`.

        Args:
            path: the file.
            known: what tells a later change of it.
            name: what its words are found by, too: its path as users know it.
            passages: all of them.
        """
        self.remove(path)
        added = self._database.execute(
            "INSERT INTO file (path, size, changed_ns, sha256) VALUES (?, ?, ?, ?)",
            (path, known.size, known.changed_ns, known.sha256),
        ).lastrowid
        self._database.executemany(
            "INSERT INTO passage (file, first, last, name, heading, text) VALUES (?, ?, ?, ?, ?, ?)",
            [(added, each.first, each.last, name, each.heading, each.text) for each in passages],
        )

    def touch(self, path: str, changed_ns: int) -> None:
        """Note when a file was changed whose content is the same; inside `writing`."""
        self._database.execute("UPDATE file SET changed_ns = ? WHERE path = ?", (changed_ns, path))

    def remove(self, path: str) -> None:
        """Remove a file with its passages; inside `writing`."""
        self._database.execute("DELETE FROM file WHERE path = ?", (path,))

    def search(self, question: str, most: int) -> list[FoundPassage]:
        """Return the passages that fit a question best, the best first.

        A passage need not have all words of it. Words that say nothing are left out where there are others, and so are
        the most frequent ones where all of them are in more than `_MOST_HITS` passages together, which would take long.
        """
        with self._told():
            words = self._telling(question)
            if not words:
                return []
            rows = self._database.execute(_SEARCH, (" OR ".join(words), most)).fetchall()
            return [self.found(number, score) for number, score in rows]

    def vector_model(self) -> VectorModel | None:
        """Return the model that makes its vectors; None where it has none."""
        with self._told():
            return self.vectors.model()

    def choose_vector_model(self, model: VectorModel | None) -> None:
        """Have a model make its vectors, None for none; those of another one are removed."""
        with self.writing():
            self.vectors.choose(model)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Have all that is read inside be of one moment.

        Raises:
            LocalspecError: the database cannot be read.
        """
        with self._told():
            self._database.execute("BEGIN")
            try:
                yield
            finally:
                self._database.execute("COMMIT")

    def _telling(self, question: str) -> list[str]:
        """Return the words to look for, as FTS5 takes them."""
        words = list(dict.fromkeys(_WORD.findall(question.casefold())))
        words = ([each for each in words if each not in _STOP] or words)[:_MOST_WORDS]
        hits = {f'"{each}"': self._hits(f'"{each}"') for each in words}
        telling, total = list[str](), 0
        for word in sorted(hits, key=hits.__getitem__):
            total += hits[word]
            if telling and total > _MOST_HITS:
                break
            telling.append(word)
        return telling

    def _hits(self, word: str) -> int:
        """Return in how many passages a word is, as far as it is worth counting."""
        ((count,),) = self._database.execute(
            "SELECT count(*) FROM (SELECT 1 FROM word WHERE word MATCH ? LIMIT ?)",
            (word, _MOST_HITS + 1),
        )
        return int(count)

    def found(self, number: int, score: float) -> FoundPassage:
        """Return a passage by its number; inside `reading`."""
        ((path, name, *passage),) = self._database.execute(
            "SELECT path, name, first, last, heading, text FROM passage JOIN file ON file.id = file WHERE passage.id = ?",
            (number,),
        )
        return FoundPassage(Path(path), Passage(*passage), score, name)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _unusable(self.path, error) from error


def index_dir() -> Path:
    """Return where the indexes are, made or not."""
    return data_dir() / "index"


def index_names() -> list[str]:
    """Return the names of the indexes that there are."""
    with suppress(OSError):
        return sorted(each.stem for each in index_dir().glob("*.db"))
    return []


def opened(name: str) -> Index:
    """Open an index that is there.

    Raises:
        UsageError: there is none of this name.
        LocalspecError: see `Index`.
    """
    return Index(_existing(name))


def made(name: str) -> Index:
    """Open an index, made if it is not there.

    Raises:
        UsageError: no index can have this name.
        LocalspecError: see `Index`.
    """
    return Index(_path_of(name), make=True)


def removed(name: str) -> None:
    """Remove an index.

    Raises:
        UsageError: there is none of this name.
        OSError: it cannot be removed.
    """
    path = _existing(name)
    for each in ("", "-wal", "-shm"):
        path.with_name(f"{path.name}{each}").unlink(missing_ok=True)


def name_for(path: Path) -> str:
    """Return the name that an index of a folder gets where the user gives none."""
    words = re.sub(r"[^a-z0-9._-]+", "-", path.name.casefold()).strip(".-_")
    return words[:40] or "docs"


def _existing(name: str) -> Path:
    path = _path_of(name)
    if not path.exists():
        names = index_names()
        known = f"choose one of {', '.join(names)}" if names else "`localspec index add` makes one"
        raise UsageError(f"there is no index {name[:40]!r}: {known}")
    return path


def _path_of(name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:40]!r} is no name of an index: use small letters, digits, dots and hyphens"
        )
    return index_dir() / f"{name}.db"


def _size_of(path: Path) -> int:
    """Return how many bytes a database has, with what is not merged into it yet."""
    found = (path, path.with_name(f"{path.name}-wal"))
    return sum(each.stat().st_size for each in found if each.exists())


def _unusable(path: Path, error: Exception) -> LocalspecError:
    reason = getattr(error, "strerror", None) or str(error)
    return LocalspecError(
        f"the index {shown(path)} cannot be used ({reason}): check the disk, or remove it with `localspec index rm`"
    )
