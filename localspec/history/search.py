"""The search among conversations: by the index of words, and letter by letter what that does not know."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace

from localspec.history.database import HistoryDatabase
from localspec.history.records import StoredConversation
from localspec.history.tags import split_query

_EXCERPT_CHARS = 120
_LISTED = """
SELECT c.*, (SELECT count(*) FROM message WHERE conversation = c.id) AS n_messages,
(SELECT json_group_array(name) FROM (SELECT name FROM tag WHERE conversation = c.id ORDER BY name)) AS tags
FROM conversation AS c WHERE {where} ORDER BY c.updated_s DESC, c.id DESC LIMIT :limit
"""
_NOT_EMPTY = "EXISTS (SELECT 1 FROM message WHERE conversation = c.id)"
# The newest message that matches, of every conversation.
_MATCHING = """
SELECT m.conversation AS conversation, max(m.id) AS message
FROM found JOIN message AS m ON m.id = found.rowid WHERE found MATCH ? GROUP BY m.conversation
"""
_CONTAINING = """
(c.id IN (SELECT value FROM json_each(:hits)) OR c.title LIKE :like ESCAPE '\\' OR EXISTS (
    SELECT 1 FROM message WHERE conversation = c.id AND content LIKE :like ESCAPE '\\'))
"""
_TAGGED = """
(SELECT count(*) FROM tag WHERE conversation = c.id AND name IN (SELECT value FROM json_each(:tags))) = :n_tags
"""


def listed(
    database: HistoryDatabase, where: str, values: dict[str, str | int]
) -> list[StoredConversation]:
    """Return the conversations of the file that a condition holds for, newest first."""
    rows = database.read(_LISTED.format(where=where), values)
    return [StoredConversation(**{**row, "tags": tuple(json.loads(row["tags"]))}) for row in rows]


def search(database: HistoryDatabase, query: str, limit: int) -> list[StoredConversation]:
    """Return the conversations that hold every word of a query, or its beginning, and have its tags (`tag:NAME`); newest first.

    What the index does not know, such as the midst of a word or of a script without spaces, is looked for letter by
    letter, in titles too.
    """
    query, tags = split_query(query)
    values: dict[str, str | int] = {"tags": json.dumps(tags), "n_tags": len({*tags})}
    values["limit"] = limit
    if not query.strip():
        return listed(database, f"{_NOT_EMPTY} AND {_TAGGED}", values)
    words = re.findall(r"\w+", query)
    match = " ".join(f'"{word}"*' for word in words)
    rows = database.read(_MATCHING, (match,)) if words else []
    hits: dict[int, int] = {row["conversation"]: row["message"] for row in rows}
    escaped = re.sub(r"([%_\\])", r"\\\1", query.strip())
    values |= {"like": f"%{escaped}%", "hits": json.dumps(list(hits))}

    def excerpt(conversation: int) -> str:
        rows = database.rows("message", "id", hits[conversation]) if conversation in hits else []
        return _excerpt(rows[0]["content"], words) if rows else ""

    found = listed(database, f"{_CONTAINING} AND {_TAGGED}", values)
    return [replace(each, excerpt=excerpt(each.id)) for each in found]


def _excerpt(text: str, words: Sequence[str]) -> str:
    """Return what is around the first of the words; cut here, since FTS5's own takes long for short beginnings."""
    found = re.search("|".join(rf"\b{re.escape(word)}" for word in words), text, re.IGNORECASE)
    start = max(0, found.start() - _EXCERPT_CHARS // 2) if found else 0
    cut = text[start : start + _EXCERPT_CHARS]
    ends = "…" * (start > 0), "…" * (start + len(cut) < len(text))
    return ends[0] + " ".join(cut.split()) + ends[1]
