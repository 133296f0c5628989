"""Chores: work on the history's file that nothing waits for, in steps of a few milliseconds, each a transaction of its own.

What a kill interrupts goes on at the next step. Deleted words leave the full-text index, room goes back to the disk, and
letters of messages that an earlier version wrote are indexed.
"""

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from pathlib import Path

from localspec.history.schema import STEPS
from localspec.history.search import LETTERS, letters_of
from localspec.storage.database import empty_log, give_back, open_database, transaction

_PAGES, _MESSAGES, _CHARS = 16, 300, 4000
_REST = 3.0
"""How many times as long as a step a thread rests after it."""
_BUSY_S, _AGAIN_S = 0.1, 2.0
FORGET_WORDS: tuple[str, tuple[()]] = ("INSERT OR REPLACE INTO chore VALUES ('merge', 0)", ())
"""The statement behind what deletes messages: their words have to leave the index."""
_INDEXES = ("found", "letters")
_OLDER = """
SELECT id, CASE WHEN content GLOB :glob AND state != 'streaming' THEN content END AS content
FROM message WHERE id < :next ORDER BY id DESC LIMIT :most
"""


def step(connection: sqlite3.Connection) -> bool:
    """Do a little of what there is to do; return whether more is left.

    Raises:
        sqlite3.Error: the file cannot be written now.
    """
    chores = {name: int(at) for name, at in connection.execute("SELECT name, next FROM chore")}
    if "merge" in chores:
        with transaction(connection):
            _merge(connection, is_first=chores["merge"] == 0)
        return True
    if give_back(connection, _PAGES):
        return True
    if "letters" in chores:
        with transaction(connection):
            _index_letters(connection, chores["letters"])
        return True
    return False


def _merge(connection: sqlite3.Connection, *, is_first: bool) -> None:
    """Merge a few pages of the indexes; what is deleted is only marked until all its parts are one."""
    before = connection.total_changes
    for table in _INDEXES:
        pages = -_PAGES if is_first else _PAGES
        connection.execute(f"INSERT INTO {table}({table}, rank) VALUES ('merge', ?)", (pages,))  # noqa: S608 - names from here
    if is_first:
        connection.execute("UPDATE chore SET next = 1 WHERE name = 'merge'")
    elif connection.total_changes - before <= len(_INDEXES):  # each statement counts as one
        connection.execute("DELETE FROM chore WHERE name = 'merge'")


def _index_letters(connection: sqlite3.Connection, at: int) -> None:
    """Index the letters of messages before a number."""
    values = {"glob": f"*[{LETTERS}]*", "next": at, "most": _MESSAGES}
    put = "INSERT OR REPLACE INTO letters(rowid, content) VALUES (?, ?)"
    size = 0
    for row in connection.execute(_OLDER, values).fetchall():
        at = row["id"]
        if row["content"]:
            connection.execute(put, (at, letters_of(row["content"])))
            size += len(row["content"])
            if size > _CHARS:
                break
    if at == values["next"]:
        connection.execute("DELETE FROM chore WHERE name = 'letters'")
    else:
        connection.execute("UPDATE chore SET next = ? WHERE name = 'letters'", (at,))


def work(
    connection: sqlite3.Connection,
    within_s: float = float("inf"),
    rest: float = 0.0,
    writing: AbstractContextManager[object] | None = None,
) -> bool:
    """Do chores for a while; return whether all is done.

    Args:
        connection: of the history.
        within_s: seconds after which no step begins.
        rest: how many times as long as a step is waited after it.
        writing: held during each step.

    Raises:
        sqlite3.Error: the file cannot be written now.
    """
    began_s = time.monotonic()
    while (now_s := time.monotonic()) - began_s < within_s:
        with writing or nullcontext():
            more = step(connection)
        if not more:
            empty_log(connection)
            return True
        if rest:
            # Else the log grows until somebody's next message has to wait for all of it to be put into the file.
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            time.sleep((time.monotonic() - now_s) * rest)
    return False


class ChoreThread:
    """Does chores beside a program, on a connection of its own.

    Args:
        path: of the history's file.
        before: called first, with the connection's thread: what makes work, such as deleting what is too old.
        writing: held during each step: what the program saves waits for that, and takes it for no other program.
    """

    def __init__(
        self,
        path: Path,
        before: Callable[[], object] = lambda: None,
        writing: AbstractContextManager[object] | None = None,
    ) -> None:
        self._path, self._before, self._writing = path, before, writing
        self._stop, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Say that there is something to do."""
        self._wake.set()

    def close(self) -> None:
        """End, behind the step that is being done."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        self._before()
        while not self._stop.is_set():
            self._wake.clear()
            done = False
            with suppress(OSError, sqlite3.Error):
                done = self._work()
            self._wake.wait(None if done else _AGAIN_S)

    def _work(self) -> bool:
        opened = open_database(self._path, STEPS, make=False, busy_s=_BUSY_S)
        with closing(opened) as connection:
            while not self._stop.is_set():
                if work(connection, 0.02, _REST, self._writing):
                    return True
        return False
