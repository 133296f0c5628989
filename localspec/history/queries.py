"""What is read from the history's database, as records."""

import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from localspec.errors import HistoryError
from localspec.history import records
from localspec.history.records import StoredConversation, StoredMessage
from localspec.history.tags import asked
from localspec.messages import Message

_EXCERPT_CHARS = 120
_LARGEST_ID = 2**63 - 1
_LISTED = """
SELECT c.*, (SELECT count(*) FROM message WHERE conversation = c.id) AS n_messages
FROM conversation AS c {where} ORDER BY c.updated_s DESC, c.id DESC LIMIT :limit
"""
_NOT_EMPTY = "WHERE EXISTS (SELECT 1 FROM message WHERE conversation = c.id)"
# The newest message that matches, of every conversation.
_MATCHING = """
SELECT m.conversation AS conversation, max(m.id) AS message
FROM found JOIN message AS m ON m.id = found.rowid WHERE found MATCH ? GROUP BY m.conversation
"""
_CONTAINING = """
WHERE (c.id IN (SELECT value FROM json_each(:hits)) OR c.title LIKE :like ESCAPE '\\' OR EXISTS (
    SELECT 1 FROM message WHERE conversation = c.id AND content LIKE :like ESCAPE '\\'))
"""
_TAGGED = """
(SELECT count(*) FROM tag WHERE conversation = c.id AND name IN (SELECT value FROM json_each(:tags))) = :n_tags
"""
# What follows a message was written after it and has a higher id: a file that says otherwise makes no circle.
_BRANCH = """
WITH RECURSIVE line(id, parent, depth) AS (
    SELECT id, parent, 0 FROM message WHERE id = coalesce(:leaf, (SELECT leaf FROM conversation WHERE id = :number))
    UNION ALL
    SELECT m.id, m.parent, depth + 1 FROM message AS m JOIN line ON m.id = line.parent AND m.id < line.id
)
SELECT m.* FROM message AS m JOIN line USING (id) ORDER BY depth DESC
"""
_NEWEST_LEAF = """
WITH RECURSIVE line(id) AS (
    VALUES (?)
    UNION ALL
    SELECT (SELECT max(m.id) FROM message AS m WHERE m.parent = line.id AND m.id > line.id)
    FROM line WHERE line.id IS NOT NULL
)
SELECT max(id) FROM line
"""


def conversation(connection: sqlite3.Connection, number: int) -> StoredConversation:
    """Return one conversation.

    Raises:
        HistoryError: it is not there.
    """
    listed = []
    if number <= _LARGEST_ID:
        listed = _listed(connection, "WHERE c.id = :id", {"id": number, "limit": 1})
    if not listed:
        raise HistoryError(f"there is no conversation {number}")
    return listed[0]


def conversations(
    connection: sqlite3.Connection, query: str, limit: int
) -> list[StoredConversation]:
    """Return the conversations that hold every word of a query, or its beginning, and have its tags (`tag:NAME`); newest first.

    What the index does not know, such as the midst of a word or of a script without spaces, is looked for letter by
    letter, in titles too.
    """
    query, wanted = asked(query)
    values: dict[str, str | int] = {"tags": json.dumps(wanted), "n_tags": len({*wanted})}
    values["limit"] = limit
    if not query.strip():
        return _listed(connection, f"{_NOT_EMPTY} AND {_TAGGED}", values)
    words = re.findall(r"\w+", query)
    match = " ".join(f'"{word}"*' for word in words)
    rows = connection.execute(_MATCHING, (match,)).fetchall() if words else []
    hits: dict[int, int] = {row["conversation"]: row["message"] for row in rows}
    escaped = re.sub(r"([%_\\])", r"\\\1", query.strip())
    like = f"%{escaped}%"
    values |= {"like": like, "hits": json.dumps(list(hits))}
    listed = _listed(connection, f"{_CONTAINING} AND {_TAGGED}", values)
    return [
        replace(each, excerpt=_excerpt(message(connection, hits[each.id])["content"], words))
        if each.id in hits
        else each
        for each in listed
    ]


def branch(connection: sqlite3.Connection, number: int, leaf: int | None) -> list[StoredMessage]:
    """Return the messages from the first to `leaf`, or to the last one that was added or shown."""
    return _messages(connection, _BRANCH, number, leaf)


def messages(connection: sqlite3.Connection, number: int) -> list[StoredMessage]:
    """Return the messages of all branches, oldest first."""
    all_of_it = "SELECT * FROM message WHERE conversation = :number ORDER BY id"
    return _messages(connection, all_of_it, number)


def message(connection: sqlite3.Connection, number: int) -> sqlite3.Row:
    """Return the row of a message.

    Raises:
        HistoryError: it is not there.
    """
    row: sqlite3.Row | None = connection.execute(
        "SELECT * FROM message WHERE id = ?", (number,)
    ).fetchone()
    if row is None:
        raise HistoryError(f"message {number} is no longer in the history")
    return row


def said(row: sqlite3.Row) -> Message:
    """Return what the row of a message says.

    Raises:
        HistoryError: its role is none that a chat writes, so somebody else did.
    """
    role = row["role"]
    if role not in {"user", "assistant"}:
        raise HistoryError(
            f"message {row['id']} of the history has the role {role[:40]!r}: delete its conversation"
        )
    # Where somebody else made the file, its version says nothing.
    acts = row["acts"] if "acts" in row.keys() else ""  # noqa: SIM118 - a row is no mapping
    return records.said(role, row["content"], row["thinking"], acts)


def questions(connection: sqlite3.Connection, most: int) -> list[str]:
    """Return the last contents of the user's messages, newest first."""
    last = "SELECT content FROM message WHERE role = 'user' AND acts || figures = '' ORDER BY id DESC LIMIT ?"
    return [row["content"] for row in connection.execute(last, (most,))]


def newest_leaf(connection: sqlite3.Connection, number: int) -> int:
    """Return the end of the line from a message to its newest child, and on."""
    (leaf,) = connection.execute(_NEWEST_LEAF, (number,)).fetchone()
    return int(leaf)


def _listed(
    connection: sqlite3.Connection, where: str, values: dict[str, str | int]
) -> list[StoredConversation]:
    rows = connection.execute(_LISTED.format(where=where), values)
    return [StoredConversation(**row, tags=tuple(tags(connection, row["id"]))) for row in rows]


def tags(connection: sqlite3.Connection, number: int) -> list[str]:
    """Return the tags of a conversation."""
    rows = connection.execute(
        "SELECT name FROM tag WHERE conversation = ? ORDER BY name", (number,)
    )
    return [row["name"] for row in rows]


def _excerpt(text: str, words: Sequence[str]) -> str:
    """Return what is around the first of the words; cut here, since FTS5's own takes long for short beginnings."""
    found = re.search("|".join(rf"\b{re.escape(word)}" for word in words), text, re.IGNORECASE)
    start = max(0, found.start() - _EXCERPT_CHARS // 2) if found else 0
    cut = text[start : start + _EXCERPT_CHARS]
    ends = "…" * (start > 0), "…" * (start + len(cut) < len(text))
    return ends[0] + " ".join(cut.split()) + ends[1]


def _messages(
    connection: sqlite3.Connection, select: str, number: int, leaf: int | None = None
) -> list[StoredMessage]:
    siblings = defaultdict(list)
    ids = "SELECT id, parent FROM message WHERE conversation = ? ORDER BY id"
    for each in connection.execute(ids, (number,)):
        siblings[each["parent"]].append(each["id"])
    return [
        StoredMessage(
            id=row["id"],
            parent=row["parent"],
            message=said(row),
            state=row["state"],
            created_s=row["created_s"],
            model=row["model"],
            figures=row["figures"],
            siblings=tuple(siblings[row["parent"]]),
        )
        for row in connection.execute(select, {"number": number, "leaf": leaf})
    ]
