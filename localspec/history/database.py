"""The history's file, and the changes that it has not taken yet.

What the file refuses, since the disk is full or it may not be written, waits as rows in memory, is read from there, and is
written when the file takes it. Until then `trouble` says why, in one line. Only messages that are whole are searched, so a
reply that grows is not indexed every second.
"""

import math
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from localspec.display import counted
from localspec.errors import HistoryError
from localspec.history.chores import work
from localspec.history.kept import KeptChanges, KeptRow, others, taken
from localspec.history.media import MediaFiles
from localspec.history.schema import STEPS
from localspec.history.search import letters_of
from localspec.storage.database import (
    DatabaseTooNewError,
    empty_log,
    is_busy,
    is_damage,
    is_full,
    may_be_whole,
    open_database,
    open_read_only,
    reason_of,
    transaction,
    write_anew,
)

OLDEST = 4
"""The first version that can be read as it is: later steps help the search."""
BUSY_S, RETRY_S = 5.0, 10.0
_SCREEN_S, _AGAIN_S = 0.03, 1.0
"""How long a screen's thread waits for another program, and after what time it tries again."""
_SMALL_PAGES = 4096  # of 4 KiB
_MEDIA_FIRST = '{"media"'
_WITH_MEDIA = f"SELECT acts FROM message WHERE acts LIKE '{_MEDIA_FIRST}%'"  # noqa: S608 - ours
_HASH = re.compile(r"[0-9a-f]{64}")
# A chat adds far fewer rows while another one is in trouble, and two in trouble rarely draw the same number.
_GAP = 10_000
_KEPT = "; localspec keeps trying; until then the conversation is kept in memory"
_NO_MEDIA: Mapping[str, bytes] = MappingProxyType({})
NOT_SAVED = 7
"""The exit code of a command that gave an answer and could not keep it."""
NEW = object()
"""Stands for the id of the row that the same call of `save` adds."""

Table = Literal["conversation", "message"]
Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Unsaved:
    """What a program that ends could not write into the database.

    Args:
        kept: whether it is kept beside it, for the next program that starts; else it is lost.
        reason: why, on one line.
    """

    kept: bool
    reason: str

    @property
    def line(self) -> str:
        """What became of it, on one line."""
        if self.kept:
            return f"not in the history yet ({self.reason}): it is kept beside it, and the next localspec saves it"
        return f"not saved, lost when this ends: {self.reason}"

    @property
    def code(self) -> int:
        """The exit code: not 0 where it is lost."""
        return 0 if self.kept else NOT_SAVED


class RowChange(NamedTuple):
    """Values of a row by column; the row is a new one where `id` is None."""

    table: Table
    id: int | None
    values: Values


class HistoryDatabase:
    """The rows of conversations and messages, and the files that these name.

    Safe to be used by several threads; one works at a time.

    Args:
        path: the file, made if it is missing, with a directory that only its owner can read.

    Attributes:
        trouble: why nothing is saved, on one line; None while all is well.
        taken_in: how many messages are saved now that an earlier program could not save.
    """

    def __init__(self, path: Path) -> None:
        self._lock, self._writing = threading.RLock(), threading.RLock()
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._waiting: dict[tuple[Table, int], Values] = {}
        self._media, self._waiting_media = MediaFiles(path.parent / "media"), dict[str, bytes]()
        self._ids: Iterator[int] = count()
        self._busy_s, self._retry_s = BUSY_S, RETRY_S
        self._tried_s, self._passes_s, self._only_read = 0.0, 0.0, False
        self._kept, self._kept_in = KeptChanges(path.parent / "kept"), path.parent / "kept"
        self.taken_in, self._reason = 0, ""
        self.trouble: str | None = None
        try:
            self._connection = open_database(path, STEPS, busy_s=self._busy_s)
            look_for_damage(self._connection)
            self._take_in()
        except (OSError, sqlite3.Error) as error:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            if may_be_whole(error) or is_busy(error):
                self._read_only()
            self._note(error, opening=True)

    def wait_less(self) -> None:
        """Wait for other programs no longer than a screen may stand still, until this is closed."""
        with self._lock:
            self._busy_s = _SCREEN_S
            if self._connection is not None:
                self._connection.execute(f"PRAGMA busy_timeout = {int(1000 * _SCREEN_S)}")

    @property
    def lasting_trouble(self) -> str | None:
        """The trouble, unless another program is writing, which may pass within seconds."""
        return None if time.monotonic() < self._passes_s else self.trouble

    def read(self, sql: str, values: Sequence[Any] | Values = ()) -> list[sqlite3.Row]:
        """Return rows of the file; none where it cannot be read.

        Raises:
            HistoryError: the statement is impossible.
        """
        with self._lock:
            try:
                return self._connection.execute(sql, values).fetchall() if self._connection else []
            except sqlite3.Error as error:
                self._note(error)
                return []

    @property
    def is_small(self) -> bool:
        """Whether the file is small enough for work on all of it at once."""
        return self._connection is not None and is_small(self._connection)

    @property
    def taken_in_line(self) -> str:
        """What an earlier program could not save and is saved now, on one line; empty if there was nothing."""
        if not self.taken_in:
            return ""
        return f"saved {counted(self.taken_in, 'message')} that an earlier localspec could not save"

    @property
    def is_readable(self) -> bool:
        """Whether what was saved can be read, even where nothing can be saved."""
        return self._connection is not None

    def rows(self, table: Table, column: str, value: int) -> list[Values]:
        """Return the rows with a value in a column, by id, with all that waits."""
        sql = f"SELECT * FROM {table} WHERE {column} = ? ORDER BY id"  # noqa: S608 - names from here
        with self._lock:
            rows: dict[int, Values] = {row["id"]: dict(row) for row in self.read(sql, (value,))}
            for (its, number), values in self._waiting.items():
                own = number if column == "id" else values.get(column)
                if its == table and (number in rows or (own == value and "id" in values)):
                    rows[number] = rows.get(number, {}) | values
        return list(rows.values())

    def count_messages(self, conversation: int) -> int:
        """Return how many messages a conversation has, with those that wait."""
        count = "SELECT count(*) AS n FROM message WHERE conversation = ?"
        with self._lock:
            (saved,) = [int(row["n"]) for row in self.read(count, (conversation,))] or [0]
            waiting = [values.get("conversation") for values in self._waiting.values()]
        return saved + waiting.count(conversation)

    def media(self, sha256: str) -> bytes:
        """Return the content of a file that a message names; empty where it is missing or damaged."""
        return self._waiting_media.get(sha256) or self._media.read(sha256)

    def save(self, *changes: RowChange, media: Mapping[str, bytes] = _NO_MEDIA) -> int:
        """Make all these changes, or have them wait; return the id of the row that they add.

        Args:
            changes: of rows.
            media: files that the rows name, by their hashes.

        Raises:
            HistoryError: another program has deleted what they are about.
        """
        with self._lock:
            if self.trouble is None and self._connection is not None:
                try:
                    with self._writing, transaction(self._connection):
                        self._media.write(media)
                        return _make(self._connection, changes)
                except (OSError, sqlite3.Error) as error:
                    self._note(error)
            self._waiting_media |= media
            added = next(self._ids)
            for table, number, values in changes:
                key = (table, added if number is None else number)
                own = {"id": added} if number is None else self._waiting.get(key, {})
                self._waiting[key] = own | _with_id(values, added)
            if not any(each.values.get("state") == "streaming" for each in changes):
                self._keep()
        return added

    @property
    def refusal(self) -> str:
        """The trouble, as it is told of what cannot wait: that is not tried again."""
        return (self.trouble or "").removesuffix(_KEPT)

    def change(self, *statements: tuple[str, Sequence[Any]], whole: bool = False) -> None:
        """Do what cannot wait.

        Args:
            statements: with their values.
            whole: they remove whole conversations, whose rows nothing else names: no row is looked at for keys.

        Raises:
            HistoryError: the file does not take it.
        """
        try:
            self._patiently(lambda file: self._change(file, statements, whole=whole))
        except sqlite3.Error as error:
            if is_busy(error):
                raise HistoryError("another program is writing to the history: try again") from None
            self._note(error)
            raise HistoryError(self.refusal or str(error)) from error

    @staticmethod
    def _change(
        file: sqlite3.Connection, statements: Sequence[tuple[str, Sequence[Any]]], *, whole: bool
    ) -> None:
        try:
            if whole:
                file.execute("PRAGMA foreign_keys = OFF")
            with transaction(file):
                for sql, values in statements:
                    file.execute(sql, values)
        finally:
            file.execute("PRAGMA foreign_keys = ON")

    def _patiently(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Do what no screen waits for; while another program writes, other threads can go on.

        Raises:
            HistoryError: there is no file.
            sqlite3.Error: it does not take it, or another program writes for too long.
        """
        until_s = time.monotonic() + BUSY_S
        while True:
            try:
                with self._lock, self._writing:
                    if self._connection is None:
                        raise HistoryError(self.trouble or "the history is closed")
                    work(self._connection)
                    return
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > until_s:
                    raise
            time.sleep(_SCREEN_S)

    def cut_growing(self) -> None:
        """Mark replies that are being written as cut: their program is dead; one that lives on simply goes on writing."""
        growing = "SELECT id, content FROM message WHERE id IN (SELECT message FROM growing) AND state = 'streaming'"
        with self._lock:
            if self.trouble is not None or self._connection is None:
                return
            if not self.read("SELECT message FROM growing LIMIT 1"):
                return
            try:
                with transaction(self._connection):
                    rows = self._connection.execute(growing).fetchall()
                    cut = [
                        RowChange(
                            "message", each["id"], {"content": each["content"], "state": "cut"}
                        )
                        for each in rows
                    ]
                    _make(self._connection, cut)
                    self._connection.execute("DELETE FROM growing")
            except sqlite3.Error as error:
                with suppress(HistoryError):
                    self._note(error)

    def tidy(self, within_s: float = math.inf) -> bool:
        """Do chores for a while, see `chores`; return whether all is done."""
        with self._lock:
            if self._connection is None or self._only_read:
                return False
            try:
                return work(self._connection, within_s)
            except sqlite3.Error:
                return False

    def write_anew(self) -> None:
        """Give the room of what was removed back to the disk, where much is; others wait meanwhile, and it may be impossible now."""
        with self._lock, suppress(sqlite3.Error):
            if self._connection is not None and not self._only_read:
                write_anew(self._connection)

    def forget(self, conversation: int) -> None:
        """Leave out what waits for a conversation, and what the file's log still holds of it."""
        with self._lock:
            for key, values in [*self._waiting.items()]:
                if (
                    key == ("conversation", conversation)
                    or values.get("conversation") == conversation
                ):
                    del self._waiting[key]
            waiting = _hashes(each.get("acts", "") for each in self._waiting.values())
            self._waiting_media = {
                sha256: data for sha256, data in self._waiting_media.items() if sha256 in waiting
            }
            if self._kept.name:
                self._keep()
            self._empty_log()

    def names_media(self, conversation: int) -> bool:
        """Return whether a message of a conversation names a file."""
        rows = self.rows("message", "conversation", conversation)
        return any(row["acts"].startswith(_MEDIA_FIRST) for row in rows)

    def remove_unnamed_media(self) -> None:
        """Remove the files that no message names; reads all messages.

        Raises:
            HistoryError: one cannot be removed.
        """

        def remove(file: sqlite3.Connection) -> None:
            with transaction(file):
                rows = file.execute(_WITH_MEDIA).fetchall()
                self._media.remove_others(_hashes(row["acts"] for row in rows))

        try:
            self._patiently(remove)
        except (OSError, sqlite3.Error) as error:
            raise HistoryError(
                f"files of what was deleted cannot be removed ({reason_of(error)}): "
                f"check {self._path.parent / 'media'}, and delete another conversation"
            ) from error

    def retry(self, wait_s: float | None = None) -> None:
        """Write what waits if the file takes it by now; costs nothing until so much time went by since the last try."""
        with self._lock:
            now = time.monotonic()
            since_s = now - self._tried_s
            if self.trouble is None or since_s < (self._retry_s if wait_s is None else wait_s):
                return
            self._tried_s = now
            changes = [
                RowChange(table, None if "id" in values else number, values)
                for (table, number), values in self._waiting.items()
            ]
            if self._only_read and self._connection is not None:
                self._connection.close()  # it may keep out all others
                self._connection = None
            # It may still be full, or have changed so that this does not fit any more.
            with suppress(OSError, sqlite3.Error):
                file = open_database(self._path, STEPS, busy_s=self._busy_s)
                try:
                    with transaction(file):
                        self._media.write(self._waiting_media)
                        _make(file, changes)
                        if self._kept.name:
                            file.execute("INSERT INTO taken VALUES (?)", (self._kept.name,))
                except (OSError, sqlite3.Error):
                    file.close()
                    raise
                if self._connection is not None:
                    self._connection.close()
                self._connection, self._waiting, self.trouble = file, {}, None
                self._waiting_media, self._only_read = {}, False
                self._kept.forget()
            if self._connection is None:
                self._read_only()

    def close(self) -> Unsaved | None:
        """Write what waits, and close the file; closing twice is harmless. Return what could not be written; None if all was."""
        with self._lock:
            self._busy_s = BUSY_S
            self.retry(wait_s=0)
            unsaved = None
            if self._waiting and self.trouble is not None:
                unsaved = Unsaved(self._keep(), self._reason)
            self._kept.release()
            self._waiting = {}
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            return unsaved

    def _keep(self) -> bool:
        """Keep what waits beside the file, and return whether that is done; a disk that takes nothing takes neither."""
        if not self._waiting:
            self._kept.forget()
            return True
        rows = [KeptRow(table, number, each) for (table, number), each in self._waiting.items()]
        try:
            self._kept.write(rows, self._waiting_media)
        except OSError:
            return False
        return True

    def _take_in(self) -> None:
        """Write what earlier programs have kept beside the file; what cannot be written now stays there."""
        connection = self._connection
        for place in others(self._kept_in) if connection else ():
            with suppress(OSError, sqlite3.Error, msgspec.DecodeError), taken(place) as kept:
                assert connection is not None  # noqa: S101 - there is one
                with transaction(connection):
                    name = (place.name,)
                    known = connection.execute("SELECT 1 FROM taken WHERE name = ?", name)
                    if kept is not None and not known.fetchone():
                        self._media.write(kept.media)
                        connection.execute("INSERT INTO taken VALUES (?)", name)
                        self.taken_in += write_kept(connection, kept.rows)

    def _read_only(self) -> None:
        """Open the file to read it, as far as that is possible."""
        with suppress(sqlite3.Error):
            self._connection = open_read_only(self._path, STEPS, oldest=OLDEST)
            self._only_read = True

    def _empty_log(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                empty_log(self._connection)

    def _note(self, error: Exception, *, opening: bool = False) -> None:
        """Take note that the file is of no use for now, and why.

        Raises:
            HistoryError: it is sound, and only what it should do is impossible.
        """
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF
        if not opening and code in {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT}:
            raise HistoryError(f"the history cannot do that: {error}") from error
        if self.trouble is not None:
            return
        self._reason = reason_of(error, self._path)
        self.trouble, last = f"the history cannot be saved ({self._reason}): ", 0
        if isinstance(error, DatabaseTooNewError):
            self._tried_s = math.inf
            self.trouble = f"the history cannot be saved: {error}; nothing is saved until then"
        elif is_damage(error) and not self._only_read:
            self._tried_s = math.inf
            self.trouble = f"the history is damaged ({self._reason}): move {self._path} away to start again; nothing is saved until then"
        else:
            self._tried_s = time.monotonic()
            advice = (
                "free some space" if is_full(error, self._path) else f"check {self._path.parent}"
            )
            self._retry_s, self._passes_s = RETRY_S, 0.0
            if is_busy(error):
                advice = "another program is writing to it"
                self._retry_s, self._passes_s = _AGAIN_S, self._tried_s + BUSY_S
            self.trouble += advice + _KEPT
            self._empty_log()  # its room is free then
            last = sum(row[0] or 0 for row in self.read("SELECT max(seq) FROM sqlite_sequence"))
        self._ids = count(last + _GAP * (1 + secrets.randbelow(_GAP)))


def look_for_damage(connection: sqlite3.Connection) -> None:
    """Check all of a small file, of a large one the messages that were written last; a few hundredths of a second.

    Raises:
        sqlite3.Error: it is damaged, or cannot be read.
    """
    verdict = "ok"
    if is_small(connection):
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    else:
        connection.execute("SELECT * FROM message ORDER BY id DESC LIMIT 100").fetchall()
        connection.execute("SELECT * FROM conversation ORDER BY updated_s DESC LIMIT 10").fetchall()
    if verdict != "ok":
        damage = sqlite3.DatabaseError("database disk image is malformed")
        damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damage


def is_small(connection: sqlite3.Connection) -> bool:
    """Return whether all of a file can be looked through in a few hundredths of a second."""
    return int(connection.execute("PRAGMA page_count").fetchone()[0]) <= _SMALL_PAGES


def _make(connection: sqlite3.Connection, changes: Sequence[RowChange]) -> int:
    """Make changes; return the id of the row that they add."""
    added = 0
    for table, number, values in changes:
        if number is None:
            columns, places = ", ".join(values), ", ".join(f":{key}" for key in values)
            sql = f"INSERT INTO {table}({columns}) VALUES ({places})"  # noqa: S608 - names from here
            added = connection.execute(sql, values).lastrowid or 0
        else:
            pairs = ", ".join(f"{key} = :{key}" for key in values)
            sql = f"UPDATE {table} SET {pairs} WHERE id = :id"  # noqa: S608 - names from here
            connection.execute(sql, {**_with_id(values, added), "id": number})
        if table == "message" and values.get("state", "streaming") != "streaming":
            if letters := letters_of(values["content"]):
                put = "INSERT OR REPLACE INTO letters(rowid, content) VALUES (?, ?)"
                connection.execute(put, (added if number is None else number, letters))
            elif number is not None:
                connection.execute("DELETE FROM letters WHERE rowid = ?", (number,))
    return added


def write_kept(connection: sqlite3.Connection, rows: Sequence[KeptRow]) -> int:
    """Write rows that were kept, new ones under ids of the file; return how many messages there are among them.

    What belongs to a conversation that was deleted meanwhile begins one of its own.
    """
    ids: dict[tuple[str, int], int] = {}
    fresh = [each for each in rows if "id" in each.values]
    for each in sorted(fresh, key=lambda row: (row.table, row.id)):
        values = {key: value for key, value in each.values.items() if key != "id"}
        if each.table == "conversation":
            ids["conversation", each.id] = _make(
                connection, [RowChange("conversation", None, {**values, "leaf": None})]
            )
            continue
        own = _known(connection, ids, "conversation", values["conversation"])
        if own is None:
            begun = {"created_s": values["created_s"], "updated_s": values["created_s"]}
            own = _make(connection, [RowChange("conversation", None, begun)])
            ids["conversation", values["conversation"]] = own
        parent = _known(connection, ids, "message", values["parent"])
        values |= {"conversation": own, "parent": parent}
        if values["state"] == "streaming":
            values["state"] = "cut"
        ids["message", each.id] = _make(connection, [RowChange("message", None, values)])
    for each in rows:
        number = _known(connection, ids, each.table, each.id)
        values = {key: each.values[key] for key in each.values if key != "id"}
        if "leaf" in values:
            values["leaf"] = _known(connection, ids, "message", values["leaf"])
        is_left = each.table == "conversation" or each not in fresh
        if values.get("state") == "streaming":
            values["state"] = "cut"
        if number is not None and is_left and values:
            _make(connection, [RowChange(each.table, number, values)])
    return sum(each.table == "message" for each in fresh)


def _known(
    connection: sqlite3.Connection,
    ids: Mapping[tuple[str, int], int],
    table: str,
    number: int | None,
) -> int | None:
    """Return the id of a row in the file; None where it is not there."""
    if number is None or (table, number) in ids:
        return None if number is None else ids[table, number]
    row = connection.execute(f"SELECT id FROM {table} WHERE id = ?", (number,)).fetchone()  # noqa: S608
    return None if row is None else int(row["id"])


def _hashes(acts: Iterable[str]) -> set[str]:
    """Return the hashes of the files that messages name; also of those whose JSON is damaged elsewhere."""
    return {sha256 for each in acts for sha256 in _HASH.findall(each)}


def _with_id(values: Values, added: int) -> Values:
    return {key: added if each is NEW else each for key, each in values.items()}
