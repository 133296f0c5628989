"""What is read from the history's database, as records."""

import re
import sqlite3
from collections import defaultdict

from localspec.errors import HistoryError
from localspec.history.records import StoredConversation, StoredMessage

_LISTED = """
SELECT c.*, (SELECT count(*) FROM message WHERE conversation = c.id) AS n_messages, {excerpt} AS excerpt
FROM conversation AS c {where} ORDER BY c.updated_s DESC, c.id DESC LIMIT :limit
"""
_NOT_EMPTY = "WHERE EXISTS (SELECT 1 FROM message WHERE conversation = c.id)"
# The best hit of each conversation: a bare column beside min() is of the row that has the minimum. Snippets are
# cut before anything is grouped, since FTS5 has none to give after that.
_MATCHING = """
JOIN (
    WITH hit AS MATERIALIZED (
        SELECT rowid AS id, snippet(found, 0, '', '', '…', 12) AS excerpt, rank AS worse
        FROM found WHERE found MATCH :words
    )
    SELECT m.conversation AS conversation, hit.excerpt AS excerpt, min(hit.worse)
    FROM hit JOIN message AS m ON m.id = hit.id GROUP BY m.conversation
) AS best ON best.conversation = c.id
"""
_CONTAINING = """
WHERE c.title LIKE :like ESCAPE '\\' OR EXISTS (
    SELECT 1 FROM message WHERE conversation = c.id AND content LIKE :like ESCAPE '\\')
"""
_BRANCH = """
WITH RECURSIVE line(id, parent, depth) AS (
    SELECT id, parent, 0 FROM message WHERE id = (SELECT leaf FROM conversation WHERE id = ?)
    UNION ALL
    SELECT m.id, m.parent, depth + 1 FROM message AS m JOIN line ON m.id = line.parent
)
SELECT m.* FROM message AS m JOIN line USING (id) ORDER BY depth DESC
"""
_NEWEST_LEAF = """
WITH RECURSIVE line(id) AS (
    VALUES (?)
    UNION ALL
    SELECT (SELECT max(m.id) FROM message AS m WHERE m.parent = line.id)
    FROM line WHERE line.id IS NOT NULL
)
SELECT max(id) FROM line
"""


def conversation(connection: sqlite3.Connection, number: int) -> StoredConversation:
    """Return one conversation.

    Raises:
        HistoryError: it is not there.
    """
    listed = _listed(connection, "WHERE c.id = :id", {"id": number, "limit": 1})
    if not listed:
        raise HistoryError(f"conversation {number} is not in the history any more")
    return listed[0]


def conversations(
    connection: sqlite3.Connection, query: str, limit: int
) -> list[StoredConversation]:
    """Return the conversations that hold every word of a query, or its beginning; newest first.

    Where the index knows none, as in the midst of a word or in scripts without spaces, the query is looked for
    letter by letter, in titles too.
    """
    words = re.findall(r"\w+", query)
    if not query.strip():
        return _listed(connection, _NOT_EMPTY, {"limit": limit})
    matching = []
    if words:
        match = " ".join(f'"{word}"*' for word in words)
        matching = _listed(connection, _MATCHING, {"words": match, "limit": limit}, "best.excerpt")
    escaped = re.sub(r"([%_\\])", r"\\\1", query.strip())
    containing = _listed(connection, _CONTAINING, {"like": f"%{escaped}%", "limit": limit})
    known = {each.id for each in matching}
    both = matching + [each for each in containing if each.id not in known]
    return sorted(both, key=lambda each: (-each.updated_s, -each.id))[:limit]


def branch(connection: sqlite3.Connection, number: int) -> list[StoredMessage]:
    """Return the messages from the first to the leaf of a conversation."""
    return _messages(connection, _BRANCH, number)


def messages(connection: sqlite3.Connection, number: int) -> list[StoredMessage]:
    """Return the messages of all branches, oldest first."""
    return _messages(connection, "SELECT * FROM message WHERE conversation = ? ORDER BY id", number)


def message(connection: sqlite3.Connection, number: int) -> sqlite3.Row:
    """Return the row of a message.

    Raises:
        HistoryError: it is not there.
    """
    row: sqlite3.Row | None = connection.execute(
        "SELECT * FROM message WHERE id = ?", (number,)
    ).fetchone()
    if row is None:
        raise HistoryError(f"message {number} is not in the history any more")
    return row


def newest_leaf(connection: sqlite3.Connection, number: int) -> int:
    """Return the end of the line from a message to its newest child, and on."""
    (leaf,) = connection.execute(_NEWEST_LEAF, (number,)).fetchone()
    return int(leaf)


def _listed(
    connection: sqlite3.Connection,
    where: str,
    values: dict[str, str | int],
    excerpt: str = "''",
) -> list[StoredConversation]:
    rows = connection.execute(_LISTED.format(where=where, excerpt=excerpt), values)
    return [StoredConversation(**row) for row in rows]


def _messages(connection: sqlite3.Connection, select: str, number: int) -> list[StoredMessage]:
    siblings = defaultdict(list)
    ids = "SELECT id, parent FROM message WHERE conversation = ? ORDER BY id"
    for each in connection.execute(ids, (number,)):
        siblings[each["parent"]].append(each["id"])
    stored = []
    for row in connection.execute(select, (number,)):
        fields = {name: row[name] for name in row.keys() if name != "conversation"}  # noqa: SIM118 - a Row iterates over values
        stored.append(StoredMessage(**fields, siblings=tuple(siblings[row["parent"]])))
    return stored
