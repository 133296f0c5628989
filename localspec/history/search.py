"""Search among conversations, by the full-text index: words and their beginnings, and letters of scripts without spaces.

Newest matches are looked for first, so that a frequent word costs what is listed. What no word begins with, such as the midst
of one, is looked for letter by letter only where nothing else is found.
"""

import json
import re
import sqlite3
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from localspec.history.records import StoredConversation, split_query, storable

Read = Callable[[str, Any], list[sqlite3.Row]]
"""Returns the rows of a statement with its values."""
_EXCERPT_CHARS = 120
_FIRST_HITS, _MORE = 2000, 8
"""Newest matches that are looked at first; how many times as many then."""
# Thai to Burmese, Khmer, kana, Chinese characters, Hangul: a word is found from any of its letters on.
LETTERS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
# Signs that belong to a word, as in c++, c# and .net, and no punctuation behind it.
_SIGNS = re.compile(r"\w[+#]|^\.\w|\w[+#.@/]\w")
_LETTER = re.compile(f"([{LETTERS}])")
_LISTED = """
SELECT c.*, (SELECT count(*) FROM message WHERE conversation = c.id) AS n_messages,
(SELECT json_group_array(name) FROM (SELECT name FROM tag WHERE conversation = c.id ORDER BY name)) AS tags
FROM conversation AS c WHERE {which} EXISTS (SELECT 1 FROM message WHERE conversation = c.id)
AND (SELECT count(*) FROM tag WHERE conversation = c.id AND name IN (SELECT value FROM json_each(:tags))) = :n_tags
ORDER BY c.updated_s DESC, c.id DESC LIMIT :limit
"""
_EVERY, _SOME = (
    _LISTED.format(which=e) for e in ("", "c.id IN (SELECT value FROM json_each(:ids)) AND")
)
# The newest message that matches, of every conversation.
_MATCHING = """
WITH hit AS MATERIALIZED (SELECT rowid FROM {table} WHERE {table} MATCH :terms ORDER BY rowid DESC LIMIT :most)
SELECT m.conversation AS conversation, max(m.id) AS message, (SELECT count(*) FROM hit) AS n_hits
FROM hit JOIN message AS m ON m.id = hit.rowid GROUP BY m.conversation
"""
_CONTAINING = """
SELECT conversation, max(id) AS message FROM message
WHERE id < :below AND content LIKE :like ESCAPE '\\' GROUP BY conversation
"""
_TITLED = "SELECT id FROM conversation WHERE title LIKE :like ESCAPE '\\'"
_NEVER = 1 << 62


def letters_of(text: str) -> str:
    """Return a text with each letter of a script without spaces as a word; empty where it has none."""
    if text.isascii() or not _LETTER.search(text):
        return ""
    return _LETTER.sub(r" \1 ", text)


def search(read: Read, query: str, limit: int) -> list[StoredConversation]:
    """Return the conversations that have a message, or a title, with what a query says, newest first.

    Args:
        read: of the database.
        query: words, and tags as `tag:NAME`; an empty one finds all that are not empty.
        limit: most that are returned; -1 for all.
    """
    # Marks of their own, as names of files on a Mac have them, end no word.
    query, tags = split_query(unicodedata.normalize("NFC", storable(query)).strip())
    values = {"tags": json.dumps(tags), "n_tags": len({*tags}), "limit": limit}
    if not query:
        return [_stored(row, "") for row in read(_EVERY, values)]
    words = re.findall(r"\w+", query)
    signs = [each for each in query.split() if _SIGNS.search(each)]
    hits = _hits(read, query, words, -1 if tags or signs or limit < 0 else limit)
    hits = _holding(read, hits, signs) if signs else hits
    ids = {*hits, *(row["id"] for row in read(_TITLED, {"like": _like(query)}))}
    if not ids:
        containing = {"like": _like(query), "below": _NEVER}
        hits = {row["conversation"]: row["message"] for row in read(_CONTAINING, containing)}
        ids = {*hits}
    rows = read(_SOME, values | {"ids": json.dumps([*ids])})
    return [_stored(row, _text(read, hits.get(row["id"]), signs or words)) for row in rows]


def _hits(read: Read, query: str, words: Sequence[str], limit: int) -> dict[int, int]:
    """Return the newest matching message by its conversation: of all, or of at least so many of the newest ones."""
    if not words:
        return {}
    spelt = letters_of(" ".join(words)) != ""
    table = "letters" if spelt else "found"
    terms = " ".join(_term(each) for each in words)
    most = _FIRST_HITS
    while True:
        matching = {"terms": terms, "most": -1 if limit < 0 else most}
        rows = read(_MATCHING.format(table=table), matching)
        if limit < 0 or len(rows) >= limit or not rows or rows[0]["n_hits"] < most:
            break
        most *= _MORE
    hits = {row["conversation"]: row["message"] for row in rows}
    if spelt:  # messages of earlier versions that no letter of is indexed yet
        for chore in read("SELECT next FROM chore WHERE name = 'letters'", ()):
            values = {"like": _like(query), "below": chore["next"]}
            older = {row["conversation"]: row["message"] for row in read(_CONTAINING, values)}
            hits = older | hits
    return hits


def _holding(read: Read, hits: Mapping[int, int], signs: Sequence[str]) -> dict[int, int]:
    """Return the newest message that has such signs, of the conversations of some hits that have one."""
    having = " AND ".join("content LIKE ? ESCAPE '\\'" for _ in signs)
    rows = read(
        "SELECT conversation, max(id) AS message FROM message "  # noqa: S608 - only marks
        f"WHERE conversation IN (SELECT value FROM json_each(?)) AND {having} GROUP BY conversation",
        (json.dumps([*hits]), *map(_like, signs)),
    )
    return {row["conversation"]: row["message"] for row in rows}


def _term(word: str) -> str:
    """Return what FTS5 looks for: a word that begins so, or letters that follow each other."""
    spelt = letters_of(word).split()
    if not spelt:
        return f'"{word}"*'
    return f'"{" ".join(spelt)}"' + ("" if _LETTER.fullmatch(spelt[-1]) else "*")


def _like(query: str) -> str:
    return "%" + re.sub(r"([%_\\])", r"\\\1", query) + "%"


def _text(read: Read, message: int | None, words: Sequence[str]) -> str:
    rows = read("SELECT content FROM message WHERE id = ?", (message,)) if message else []
    return excerpt(rows[0]["content"], words) if rows and words else ""


def _stored(row: sqlite3.Row, text: str) -> StoredConversation:
    names = (*json.loads(row["tags"]),)
    return StoredConversation(**{**dict(row), "tags": names}, excerpt=text)


def excerpt(text: str, words: Sequence[str]) -> str:
    """Return what is around the first of the words; cut here, since FTS5's own takes long for short beginnings."""
    match = re.search("|".join(_patterns(words)), text, re.IGNORECASE)
    start = max(0, match.start() - _EXCERPT_CHARS // 2) if match else 0
    cut = text[start : start + _EXCERPT_CHARS]
    ends = "…" * (start > 0), "…" * (start + len(cut) < len(text))
    return ends[0] + " ".join(cut.split()) + ends[1]


def _patterns(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        begins = letters_of(word) or not word[0].isalnum()
        yield re.escape(word) if begins else rf"\b{re.escape(word)}"
