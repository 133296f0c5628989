"""VectorTable: the vectors of an index's passages as they are kept. Knows of the model its name, and nothing of numbers.

They stand in parts of a file, and go with it: where a file is written anew, its vectors are to be made again.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

_PART = 64
"""Passages of a file whose vectors are written at once: what a kill may cost."""
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS embedding (model TEXT NOT NULL, sha256 TEXT NOT NULL) STRICT",
    *(
        f"CREATE TABLE IF NOT EXISTS {name} (file INTEGER NOT NULL REFERENCES file(id) ON DELETE CASCADE,"
        f" part INTEGER NOT NULL, {name}s BLOB NOT NULL, PRIMARY KEY (file, part)) STRICT, WITHOUT ROWID"
        for name in ("code", "sign")
    ),
)
# Of a file that was written anew meanwhile, nothing is written.
_PUT = "INSERT OR REPLACE INTO {name} SELECT id, ?, ? FROM file WHERE id = ? AND sha256 = ?"
_WANTING = (
    "SELECT id, sha256, passages FROM (SELECT id, sha256,"
    " (SELECT count(*) FROM passage WHERE passage.file = file.id) AS passages,"
    " (SELECT count(*) FROM code WHERE code.file = file.id) AS parts FROM file) WHERE passages > ? * parts"
)
_TEXTS = (
    "SELECT passage.name, heading, text FROM passage JOIN file ON file.id = passage.file"
    " WHERE file.id = ? AND file.sha256 = ? ORDER BY passage.id LIMIT ? OFFSET ?"
)
_PARTS = "SELECT part FROM code WHERE file = ?"


@dataclass(frozen=True, slots=True)
class VectorModel:
    """The model that vectors were made by.

    Args:
        name: that means it in the registry or among imports.
        sha256: of its file; vectors of another one cannot be compared.
    """

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class FilePart:
    """Passages of a file that have no vectors yet.

    Args:
        file: its number in the index.
        sha256: of the file.
        number: of the part, from 0 on.
        passages: how many.
    """

    file: int
    sha256: bytes
    number: int
    passages: int


class VectorTable:
    """The vectors of an index, as bytes; there is nothing of it until a model is chosen. Errors are SQLite's own.

    Args:
        database: of the index.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def model(self) -> VectorModel | None:
        """Return the model that makes the vectors; None where there are none."""
        if not self._is_there():
            return None
        row = self._database.execute("SELECT model, sha256 FROM embedding").fetchone()
        return None if row is None else VectorModel(*row)

    def is_of(self, model: VectorModel) -> bool:
        """Return whether vectors of a model belong in it: it may have been another process's choice to have others."""
        now = self.model()
        return now is not None and now.sha256 == model.sha256

    def choose(self, model: VectorModel | None) -> None:
        """Have a model make the vectors, None for none; those of another one are removed. Inside a transaction."""
        if model is None and not self._is_there():
            return
        before = self.model()
        for statement in _SCHEMA:
            self._database.execute(statement)
        if before is None or model is None or before.sha256 != model.sha256:
            for name in ("code", "sign"):
                self._database.execute(f"DELETE FROM {name}")  # noqa: S608 - one of two words
        self._database.execute("DELETE FROM embedding")
        if model is not None:
            self._database.execute(
                "INSERT INTO embedding VALUES (?, ?)", (model.name, model.sha256)
            )

    def wanting(self) -> list[FilePart]:
        """Return what has no vectors yet, in parts.

        Any part may be missing: a file that was written anew, twice, so that it is what it was, may have got the last one alone.
        """
        found = []
        for file, sha256, passages in self._database.execute(_WANTING, (_PART,)).fetchall():
            there = {number for (number,) in self._database.execute(_PARTS, (file,))}
            for number in range(-(-passages // _PART)):
                if number not in there:
                    count = min(_PART, passages - number * _PART)
                    found.append(FilePart(file, sha256, number, count))
        return found

    def texts(self, part: FilePart) -> list[str]:
        """Return what the passages of a part say, each under where it stands; nothing of a file that was written anew."""
        place = (part.file, part.sha256, part.passages, part.number * _PART)
        rows = self._database.execute(_TEXTS, place)
        return [f"{name} {heading}\n{text}" for name, heading, text in rows]

    def put(self, part: FilePart, codes: bytes, signs: bytes) -> None:
        """Write the vectors of a part, inside a transaction; nothing of a file that was written anew meanwhile.

        Args:
            part: of a file.
            codes: of all its passages, in their order; see `vectors.encoded`.
            signs: likewise; see `vectors.signs_of`.
        """
        for name, blob in (("code", codes), ("sign", signs)):
            place = (part.number, blob, part.file, part.sha256)
            self._database.execute(_PUT.format(name=name), place)

    def signs(self) -> Iterator[tuple[int, int, bytes]]:
        """Return file, number and signs of each part."""
        return self._database.execute("SELECT file, part, signs FROM sign")

    def codes(self, file: int, part: int) -> bytes:
        """Return the vectors of a part."""
        ((blob,),) = self._database.execute(
            "SELECT codes FROM code WHERE file = ? AND part = ?", (file, part)
        )
        return bytes(blob)

    def passage(self, file: int, part: int, place: int) -> int:
        """Return the number of the passage that is at a place of a part."""
        ((number,),) = self._database.execute(
            "SELECT id FROM passage WHERE file = ? ORDER BY id LIMIT 1 OFFSET ?",
            (file, part * _PART + place),
        )
        return int(number)

    def _is_there(self) -> bool:
        asked = "SELECT count(*) FROM sqlite_master WHERE name = 'embedding'"
        ((count,),) = self._database.execute(asked)
        return bool(count)
