"""Index: passages of files in one SQLite database, found by their words (BM25). Reads no file of the user's.

The text is kept, so that what is cited is what was found; vectors of passages stand beside it where a model makes them.
"""

import shutil
import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from localspec.errors import LocalspecError, UsageError
from localspec.retrieval.passages import Passage
from localspec.retrieval.scripts import asked_words, searchable
from localspec.storage import database
from localspec.storage.files import size_text
from localspec.storage.paths import data_dir, shown

_STEPS = (
    """
CREATE TABLE root (path TEXT PRIMARY KEY) STRICT;

CREATE TABLE file (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, changed_ns INTEGER NOT NULL, sha256 BLOB NOT NULL
) STRICT;

CREATE TABLE passage (
    id INTEGER PRIMARY KEY,
    file INTEGER NOT NULL REFERENCES file(id) ON DELETE CASCADE,
    first INTEGER NOT NULL, last INTEGER NOT NULL, name TEXT NOT NULL, heading TEXT NOT NULL, text TEXT NOT NULL
) STRICT;

CREATE INDEX passage_by_file ON passage(file);

CREATE VIRTUAL TABLE word USING fts5(
    name, heading, text, content='passage', content_rowid='id', tokenize='porter unicode61 remove_diacritics 2'
);

CREATE TRIGGER passage_inserted AFTER INSERT ON passage BEGIN
    INSERT INTO word(rowid, name, heading, text) VALUES (new.id, new.name, new.heading, new.text);
END;

CREATE TRIGGER passage_deleted AFTER DELETE ON passage BEGIN
    INSERT INTO word(word, rowid, name, heading, text) VALUES ('delete', old.id, old.name, old.heading, old.text);
END;
""",
    """
CREATE TABLE embedding (model TEXT NOT NULL, sha256 TEXT NOT NULL) STRICT;

CREATE TABLE vector (passage INTEGER PRIMARY KEY REFERENCES passage(id) ON DELETE CASCADE, float16 BLOB NOT NULL) STRICT;

CREATE TABLE vector_version (number INTEGER NOT NULL) STRICT;

INSERT INTO vector_version SELECT random() / 2;

CREATE TRIGGER vector_inserted AFTER INSERT ON vector BEGIN UPDATE vector_version SET number = number + 1; END;

CREATE TRIGGER vector_deleted AFTER DELETE ON vector BEGIN UPDATE vector_version SET number = number + 1; END;
""",
    # What was indexed as one word, since its script writes none apart, is indexed again.
    """
DROP TRIGGER passage_inserted;

DROP TRIGGER passage_deleted;

INSERT INTO word(word, rowid, name, heading, text)
    SELECT 'delete', id, name, heading, text FROM passage
    WHERE searchable(name) <> name OR searchable(heading) <> heading OR searchable(text) <> text;

INSERT INTO word(rowid, name, heading, text)
    SELECT id, searchable(name), searchable(heading), searchable(text) FROM passage
    WHERE searchable(name) <> name OR searchable(heading) <> heading OR searchable(text) <> text;

CREATE TRIGGER passage_inserted AFTER INSERT ON passage BEGIN
    INSERT INTO word(rowid, name, heading, text)
    VALUES (new.id, searchable(new.name), searchable(new.heading), searchable(new.text));
END;

CREATE TRIGGER passage_deleted AFTER DELETE ON passage BEGIN
    INSERT INTO word(word, rowid, name, heading, text)
    VALUES ('delete', old.id, searchable(old.name), searchable(old.heading), searchable(old.text));
END;
""",
    # What is searchable is folded as questions are: SQLite leaves the sharp s, ligatures and others as they are.
    """
INSERT INTO word(word) VALUES ('delete-all');

INSERT INTO word(rowid, name, heading, text)
    SELECT id, searchable(name), searchable(heading), searchable(text) FROM passage;
""",
)
_FUNCTIONS = {"searchable": searchable}
# The weights are those of a word in the file's name, in the heading, in the text.
_SEARCH = "SELECT rowid, -bm25(word, 6.0, 2.0, 1.0) AS score FROM word WHERE word MATCH ? ORDER BY score DESC, rowid LIMIT ?"
_PASSAGE = "SELECT path, name, first, last, heading, text FROM passage JOIN file ON file.id = file WHERE passage.id = ?"
_WITHOUT_VECTOR = (
    "SELECT id, name, heading, text FROM passage LEFT JOIN vector ON passage = id"
    " WHERE passage IS NULL AND id > ? ORDER BY id LIMIT ?"
)
# A number is given again where the last passages were removed: the text tells whose vector it is.
_PUT_VECTOR = (
    "INSERT OR REPLACE INTO vector SELECT id, ? FROM passage"
    " WHERE id = ? AND name = ? AND heading = ? AND text = ?"
)
PassageRow = tuple[int, str, str, str]
"""The number of a passage, the name of its file, its heading and its text."""
_MOST_NAME = 40
_MOST_WORDS, _MOST_HITS = 32, 8_000
"""Of a question; passages that are scored, about a microsecond each."""
# They are in most passages, and say nothing of what a question is about.
_STOP_WORDS = (
    "a about all also an and any are as at be been but by can could did do does for from get had has have how i if in"
    " into is it its me my no not of on one or our out please should so some such than that the their them then there"
    " these they this to up us use used using want was way we were what when where which while who why will with"
    " without would you your"
)
_STOP = frozenset(_STOP_WORDS.split())


_SPARE_BYTES, _WRITTEN = 8_000_000, 4
"""What a disk keeps free; how many bytes a byte of text takes for a while: with its words, in the log and in the file."""


class FoundPassage(NamedTuple):
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


class KnownFile(NamedTuple):
    """What is known of a file that is indexed.

    Args:
        size: in bytes.
        changed_ns: when it was changed last; 0 where that was too short a time ago to tell it from a later change.
        sha256: of its content.
    """

    size: int
    changed_ns: int
    sha256: bytes


class VectorModel(NamedTuple):
    """The model that vectors were made by.

    Args:
        name: that means it in the registry or among imports.
        sha256: of its file; vectors of another one cannot be compared.
    """

    name: str
    sha256: str


class Contents(NamedTuple):
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

    Raises:
        LocalspecError: it cannot be read or made, or is of a later version.
    """

    def __init__(self, path: Path, *, make: bool = False) -> None:
        self.path, self._only_read = path, False
        with self._errors():
            if make:
                self._database = database.open_database(path, _STEPS, functions=_FUNCTIONS)
            else:
                self._database, self._only_read = database.open_to_read(
                    path, _STEPS, functions=_FUNCTIONS
                )
        self._database.row_factory = None

    def close(self) -> None:
        """Close the database; closing twice is harmless."""
        self._database.close()

    @contextmanager
    def reading(self, begin: str = "DEFERRED") -> Iterator[None]:
        """Have all that is read inside be of one moment.

        Raises:
            LocalspecError: the database cannot be read.
        """
        with self._errors(), database.transaction(self._database, begin):
            yield

    def require_room(self, size_bytes: int) -> None:
        """Keep the disk from being filled: a full one stops chats and batches, too.

        Args:
            size_bytes: of the text that is about to be written.

        Raises:
            LocalspecError: the disk has too little room for it.
        """
        disk = shutil.disk_usage(self.path.parent)
        wanted = min(_SPARE_BYTES, disk.total // 4) + _WRITTEN * size_bytes
        # What is in the log has to fit into the file, too.
        if disk.free < wanted + self._log_bytes():
            self.empty_log()
            disk = shutil.disk_usage(self.path.parent)
        if disk.free < wanted:
            raise LocalspecError(
                f"the index {shown(self.path)} cannot grow: its disk has {size_text(disk.free)} left; free some space"
            )

    def _log_bytes(self) -> int:
        try:
            return self.path.with_name(f"{self.path.name}-wal").stat().st_size
        except OSError:  # there is none
            return 0

    def empty_log(self) -> None:
        """Give back what the log takes, which may be much where a change has failed."""
        with suppress(sqlite3.Error):
            database.empty_log(self._database)

    def writing(self) -> AbstractContextManager[None]:
        """Do all that is written inside, or nothing of it.

        Raises:
            LocalspecError: the database cannot be written.
        """
        return self.reading("IMMEDIATE")

    def contents(self) -> Contents:
        """Return how much is in it."""
        counts = "SELECT (SELECT count(*) FROM file), (SELECT count(*) FROM passage)"
        ((files, passages),) = self._rows(counts)
        size = 0
        for suffix in database.FILES:
            with suppress(OSError):  # the others come and go with the programs that use it
                size += self.path.with_name(self.path.name + suffix).stat().st_size
        return Contents(files, passages, size, self.roots())

    def roots(self) -> tuple[Path, ...]:
        """Return the folders and files that were added."""
        return tuple(Path(each) for (each,) in self._rows("SELECT path FROM root ORDER BY path"))

    def add_roots(self, paths: Iterable[Path]) -> None:
        """Take note of folders and files that belong in it."""
        with self.writing():
            for each in paths:
                self._rows("INSERT OR IGNORE INTO root VALUES (?)", str(each))

    def known(self) -> dict[str, KnownFile]:
        """Return what is known of each file, by its path."""
        rows = self._rows("SELECT path, size, changed_ns, sha256 FROM file")
        return {path: KnownFile(*others) for path, *others in rows}

    def put(self, path: str, known: KnownFile, name: str, passages: Sequence[Passage]) -> None:
        """Write a file with its passages, in place of what is there of it; inside `writing`.

        Args:
            path: the file.
            known: what tells a later change of it.
            name: what its words are found by, too: its path as users know it.
            passages: all of them.
        """
        self.remove(path)
        file = "INSERT INTO file (path, size, changed_ns, sha256) VALUES (?, ?, ?, ?)"
        row = (path, known.size, known.changed_ns, known.sha256)
        added = self._database.execute(file, row).lastrowid
        self._database.executemany(
            "INSERT INTO passage (file, first, last, name, heading, text) VALUES (?, ?, ?, ?, ?, ?)",
            [(added, each.first, each.last, name, each.heading, each.text) for each in passages],
        )

    def touch(self, path: str, changed_ns: int) -> None:
        """Note when a file was changed whose content is the same; inside `writing`."""
        self._rows("UPDATE file SET changed_ns = ? WHERE path = ?", changed_ns, path)

    def remove(self, path: str) -> None:
        """Remove a file with its passages; inside `writing`."""
        self._rows("DELETE FROM file WHERE path = ?", path)

    def search(self, question: str, most: int) -> list[FoundPassage]:
        """Return the passages whose words fit a question best, the best first.

        A passage need not have all words of it. Words that say nothing are left out where there are others, and so are
        the most frequent ones where all of them are in more than `_MOST_HITS` passages together, which would take long.
        """
        terms = self._query_terms(question)
        if not terms:
            return []
        with self.reading():
            return [self.passage(*row) for row in self._rows(_SEARCH, " OR ".join(terms), most)]

    def passage(self, number: int, score: float) -> FoundPassage:
        """Return a passage by its number."""
        ((path, name, *passage),) = self._rows(_PASSAGE, number)
        return FoundPassage(Path(path), Passage(*passage), score, name)

    def _query_terms(self, question: str) -> list[str]:
        """Return the words to look for, as FTS5 takes them."""
        words, cut = asked_words(question)
        words = [each for each in words if each not in _STOP] or ([] if cut else words)
        terms = [*(f'"{each}"' for each in words), *cut][:_MOST_WORDS]
        # In how many passages each is, as far as it is worth counting.
        count = "SELECT count(*) FROM (SELECT 1 FROM word WHERE word MATCH ? LIMIT ?)"
        hits = {each: self._rows(count, each, _MOST_HITS + 1)[0][0] for each in terms}
        terms.sort(key=hits.__getitem__)
        few = sum(total <= _MOST_HITS for total in accumulate(map(hits.__getitem__, terms)))
        return terms[: max(few, 1)]

    def vector_model(self) -> VectorModel | None:
        """Return the model that makes its vectors; None where it has none."""
        rows = self._rows("SELECT model, sha256 FROM embedding")
        return VectorModel(*rows[0]) if rows else None

    def choose_vector_model(self, model: VectorModel | None) -> None:
        """Have a model make its vectors, None for none; those of another one are removed."""
        with self.writing():
            before = self.vector_model()
            if before and (model is None or before.sha256 != model.sha256):
                self._rows("DELETE FROM vector")
            self._rows("DELETE FROM embedding")
            if model:
                self._rows("INSERT INTO embedding VALUES (?, ?)", model.name, model.sha256)

    def lacks_vectors(self) -> bool:
        """Return whether it has passages, and a vector of none."""
        statement = "SELECT EXISTS (SELECT 1 FROM passage) AND NOT EXISTS (SELECT 1 FROM vector)"
        return bool(self._rows(statement)[0][0])

    def count_without_vector(self) -> int:
        """Return how many passages have no vector yet."""
        count = "SELECT count(*) FROM passage WHERE id NOT IN (SELECT passage FROM vector)"
        return int(self._rows(count)[0][0])

    def without_vector(self, after: int, most: int) -> list[PassageRow]:
        """Return the first passages behind a number that have no vector yet."""
        return self._rows(_WITHOUT_VECTOR, after, most)

    def put_vector(self, passage: PassageRow, float16: bytes) -> bool:
        """Write a vector, inside `writing`; return False for a passage that is another one by now."""
        return self._database.execute(_PUT_VECTOR, (float16, *passage)).rowcount > 0

    def vector_version(self) -> int:
        """Return a number that is another one whenever vectors were written or removed."""
        return int(self._rows("SELECT number FROM vector_version")[0][0])

    def vectors(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number of each passage that has a vector, and the vector in float16; inside `reading`."""
        return self._database.execute("SELECT passage, float16 FROM vector")

    def _rows(self, statement: str, *values: object) -> list[Any]:
        with self._errors():
            return self._database.execute(statement, values).fetchall()

    def _errors(self) -> AbstractContextManager[None]:
        return database.errors_as(self._unusable)

    def _unusable(self, error: Exception) -> LocalspecError:
        advice = f"check {shown(self.path.parent)} and its disk; what is in it stays"
        if not self._only_read:
            again = f"remove it with `localspec index rm {self.path.stem}` and index again"
            advice = database.remedy(error, self.path, again)
        reason = database.reason_of(error, self.path)
        return LocalspecError(f"the index {shown(self.path)} cannot be used ({reason}): {advice}")


def index_names() -> list[str]:
    """Return the names of the indexes that there are."""
    return sorted(each.stem for each in (data_dir() / "index").glob("*.db"))


def open_index(name: str, *, make: bool = False) -> Index:
    """Open an index.

    Args:
        name: of the index.
        make: whether it is made if it is not there.

    Raises:
        UsageError: there is none of this name, or no index can have it.
        LocalspecError: see `Index`.
    """
    return Index(_path_of(name, must_exist=not make), make=make)


def remove_index(name: str) -> None:
    """Remove an index.

    Raises:
        UsageError: there is none of this name.
        OSError: it cannot be removed.
    """
    path = _path_of(name, must_exist=True)
    for each in database.FILES:
        path.with_name(f"{path.name}{each}").unlink(missing_ok=True)


def name_for(path: Path) -> str:
    """Return the name that an index of a folder gets where the user gives none.

    Raises:
        UsageError: its name has no letter or digit.
    """
    words = (each if _may_stand(each) else " " for each in _folded(path.name))
    if not (name := "-".join("".join(words).split()).strip(".-_")[:_MOST_NAME]):
        raise UsageError(f"no index can be named after {shown(path)}: name one with -n NAME")
    return name


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _may_stand(sign: str) -> bool:
    """Return whether a sign may stand in a name: a letter or digit of any script, a mark on one, or a sign between them."""
    return sign in "._-" or unicodedata.category(sign)[0] in "LNM"


def _path_of(name: str, *, must_exist: bool) -> Path:
    name = unicodedata.normalize("NFKC", name)
    if name != _folded(name) or not (name[:1].isalnum() and all(map(_may_stand, name))) or len(name) > _MOST_NAME:  # fmt: skip
        raise UsageError(
            f"{name[:40]!r} is not an index name: use small letters, digits, dots and hyphens"
        )
    path = data_dir() / "index" / f"{name}.db"
    if must_exist and not path.exists():
        names = index_names()
        known = f"choose one of {', '.join(names)}" if names else "`localspec index add` makes one"
        raise UsageError(f"there is no index {name[:40]!r}: {known}")
    return path
