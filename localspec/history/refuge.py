"""Refuge: the database in memory while its file cannot be written, and the way back of what was said there.

Rows that are new in memory have ids far from those that another process may give in the file meanwhile, so they go
back as they are. Knows no conversations, only the two tables.
"""

import secrets
import sqlite3

_TABLES = ("conversation", "message")
# A chat adds far fewer rows while another one is in trouble, and two in trouble rarely draw the same number.
_GAP = 10_000
_EVENTS = {"INSERT": "new", "UPDATE": "new", "DELETE": "old"}


class Refuge:
    """A copy of the database in memory, and what was changed there.

    Args:
        connection: to the copy; from now on it notes what is changed.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        gap = _GAP * (1 + secrets.randbelow(_GAP))
        self._known = {table: _last_id(connection, table) for table in _TABLES}
        connection.execute("DELETE FROM sqlite_sequence")
        for table, known in self._known.items():
            connection.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (table, known + gap))
        connection.execute("CREATE TEMP TABLE touched(place TEXT, id INTEGER, UNIQUE (place, id))")
        for table in _TABLES:
            for event, row in _EVENTS.items():
                connection.execute(
                    f"CREATE TEMP TRIGGER {table}_{event} AFTER {event} ON main.{table} "  # noqa: S608 - of ours
                    f"BEGIN INSERT OR IGNORE INTO touched VALUES ('{table}', {row}.id); END"
                )

    def carry_back(self, file: sqlite3.Connection) -> None:
        """Change in the file what was changed here: all of it, or nothing.

        Raises:
            sqlite3.Error: the file still cannot be written, or was changed so that this does not fit any more.
        """
        file.execute("BEGIN IMMEDIATE")
        try:
            file.execute(
                "PRAGMA defer_foreign_keys = ON"
            )  # a conversation and its last message name each other
            gone = [self._carry(file, table) for table in _TABLES]
            if any(gone):  # the index only marks what is deleted, until its parts are merged
                file.execute("INSERT INTO found(found) VALUES ('optimize')")
            file.execute("COMMIT")
        except BaseException:
            if file.in_transaction:  # a full disk has rolled it back already
                file.execute("ROLLBACK")
            raise

    def _carry(self, file: sqlite3.Connection, table: str) -> bool:
        """Carry the rows of a table; return whether some are gone."""
        gone = False
        select = "SELECT id FROM touched WHERE place = ? ORDER BY id"
        for (number,) in self.connection.execute(select, (table,)).fetchall():
            row = self.connection.execute(
                f"SELECT * FROM {table} WHERE id = ?",  # noqa: S608 - one of ours
                (number,),
            ).fetchone()
            if row is None:
                gone = True
                file.execute(f"DELETE FROM {table} WHERE id = ?", (number,))  # noqa: S608
            else:
                file.execute(self._put(table, row), tuple(row))
        return gone

    def _put(self, table: str, row: sqlite3.Row) -> str:
        names = row.keys()
        insert = f"INSERT INTO {table}({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608
        if row["id"] > self._known[table]:
            return insert  # and an error where the id was given to something else
        changes = ", ".join(f"{name} = excluded.{name}" for name in names if name != "id")
        return f"{insert} ON CONFLICT(id) DO UPDATE SET {changes}"


def _last_id(connection: sqlite3.Connection, table: str) -> int:
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    return 0 if row is None else int(row[0])
