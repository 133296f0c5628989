"""History: conversations as trees of messages, and the search among them. Editing or regenerating adds a branch; nothing is lost.

A full disk fails no chat: see `HistoryDatabase`.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path

from localspec.errors import HistoryError, UsageError
from localspec.history.chores import FORGET_WORDS, ChoreThread
from localspec.history.database import NEW, OLDEST, HistoryDatabase, RowChange, Unsaved, Values
from localspec.history.recorder import ReplyRecorder
from localspec.history.records import (
    SUMMARY,
    Mark,
    MarkedReply,
    State,
    StoredConversation,
    StoredMessage,
    acts_of,
    content_of,
    message_of,
    storable,
)
from localspec.history.schema import STEPS
from localspec.history.search import search
from localspec.messages import Message
from localspec.storage.database import open_to_read
from localspec.storage.read_store import forget_conversation

_TITLE_CHARS, _DAY_S = 60, 86400.0
_CANDIDATES = 5
_MOST_DIGITS = 18  # more are no number that SQLite has
_MARKED = """
SELECT conversation, id, mark, model,
CASE WHEN json_valid(figures) THEN json_extract(figures, '$.seed') END AS seed,
CASE WHEN json_valid(figures) THEN json_extract(figures, '$.prompt') END AS prompt
FROM message WHERE mark != '' ORDER BY id
"""
Place = tuple[int | None, bool]


class History(HistoryDatabase):
    """Conversations that outlive the program.

    Args:
        directory: where the database is.
        clock: seconds since 1970.
        stopwatch: seconds, monotonic; paces what a growing reply writes.
    """

    def __init__(
        self,
        directory: Path,
        clock: Callable[[], float] = time.time,
        stopwatch: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(directory / "history.db")
        self._reads = directory.parent / "reads"
        self._data = directory.parent
        self._clock, self._stopwatch = clock, stopwatch
        self._chores: ChoreThread | None = None
        self._finder: sqlite3.Connection | None = None
        self._ends = False
        self.cut_growing()

    def create(self, *, system: str | None = None, pair: str = "", settings: str = "") -> int:
        """Begin a conversation; return its id."""
        now_s = self._clock()
        values = {
            "title": "",
            "system": system and storable(system),
            "pair": pair,
            "settings": storable(settings),
            "created_s": now_s,
            "updated_s": now_s,
            "leaf": None,
        }
        return self.save(RowChange("conversation", None, values))

    def add_user(
        self, conversation: int, parent: int | None, message: Message, figures: str = ""
    ) -> int:
        """Add a message of the user after `parent`, None at the beginning; return its id. It becomes the leaf.

        A conversation that nobody named has the beginning of its first question as its title, of the one that was added last.
        """
        return self._add(conversation, parent, message, "complete", figures=figures)

    def add_result(
        self, conversation: int, parent: int | None, message: Message, name: str, figures: str
    ) -> int:
        """Add the result of a call of the function `name`; see `add_user`."""
        return self._add(conversation, parent, message, "complete", name, figures)

    def begin_reply(
        self, conversation: int, parent: int | None, model: str = "", begun: Message | None = None
    ) -> ReplyRecorder:
        """Begin a reply to `parent`, with what it says already; it becomes the leaf, and what the recorder is fed is saved as it comes."""
        message = self._add(
            conversation, parent, begun or Message.assistant(""), "streaming", model
        )
        return ReplyRecorder(self, message, begun, clock=self._stopwatch)

    def resume_reply(self, message: int, begun: Message | None = None) -> ReplyRecorder:
        """Go on with a reply that was cut, in a version of its own if another program writes it, or it says no more what it did.

        Args:
            message: its id.
            begun: what it says, as far as is known; None takes what it says now.

        Raises:
            HistoryError: there is no such message.
        """
        row = self._row(message)
        now = message_of(row, self.media)
        if begun is not None and (row["state"] == "streaming" or now != begun):
            return self.begin_reply(row["conversation"], row["parent"], row["model"], begun)
        return ReplyRecorder(self, message, now, clock=self._stopwatch)

    def mark(self, message: int, mark: Mark) -> None:
        """Give a reply a mark in place of the one that it has."""
        self.save(RowChange("message", message, {"mark": mark}))

    def marked(self) -> list[MarkedReply]:
        """Return the replies that have a mark, oldest first; raises HistoryError where the file cannot be read."""
        if self._connection is None:
            raise HistoryError(self.trouble or "the history is closed")
        return [MarkedReply(*row) for row in self.read(_MARKED)]

    def conversation(self, conversation: int) -> StoredConversation:
        """Return the record of a conversation.

        Raises:
            HistoryError: it is not there.
        """
        rows = self.rows("conversation", "id", conversation)
        if not rows:
            raise HistoryError(f"there is no conversation {conversation}")
        n_messages = self.count_messages(conversation)
        tags = tuple(self._tags(conversation))
        return StoredConversation(**rows[0], n_messages=n_messages, tags=tags)

    def conversations(self, query: str = "", limit: int = 200) -> list[StoredConversation]:
        """Return those that hold every word of a query, or its beginning, and have its tags (`tag:NAME`), newest first.

        Scripts without spaces are looked for letter by letter, and so is what no word begins with; titles too. Without a query,
        all are returned that are not empty. What could not be saved yet is not among them.
        """
        return search(self.read, query, limit)

    def found(self, query: str, limit: int = 200) -> list[StoredConversation]:
        """Return what `conversations` does, from a thread: on a connection of its own, beside what others read and write.

        A call ends the one before it, which returns nothing.
        """
        if (before := self._finder) is not None:
            with suppress(sqlite3.Error):  # it has just ended
                before.interrupt()
        try:
            connection, _ = open_to_read(self._path, STEPS, oldest=OLDEST)
        except (OSError, sqlite3.Error):
            return self.conversations(query, limit)
        with closing(connection):
            self._finder = connection
            try:
                return search(
                    lambda sql, given: connection.execute(sql, given).fetchall(), query, limit
                )
            except sqlite3.Error:  # ended, or damaged
                return []
            finally:
                if self._finder is connection:
                    self._finder = None

    def work_in_background(
        self, keep_days: int = 0, but: Callable[[], int | None] = lambda: None
    ) -> None:
        """Do chores from now on, in a thread, beside a screen that nothing may hold up.

        Args:
            keep_days: delete conversations whose last message is older; 0 keeps all.
            but: returns the conversation that stays, whatever its age.
        """
        self.wait_less()
        if self.trouble is None and self._chores is None:
            self._chores = ChoreThread(
                self._path, lambda: self.expire(keep_days, but), self._writing
            )

    def expire(
        self, keep_days: int, but: Callable[[], int | None] = lambda: None, most: int | None = None
    ) -> int:
        """Delete conversations whose last message is older than so many days, 0 for none; return how many."""
        if not keep_days:
            return 0
        older = self.older_than(self._clock() - keep_days * _DAY_S)
        # Each is looked at when its turn comes: it may be opened meanwhile, or the program closed.
        leaving = (each for each in older if each != but() and not self._ends)
        count = 0
        for each in islice(leaving, most):
            with suppress(HistoryError):
                self.delete(each)
                count += 1
        return count

    def older_than(self, moment_s: float) -> list[int]:
        """Return the conversations whose last message is older than a moment, oldest first."""
        older = "SELECT id FROM conversation WHERE updated_s < ? ORDER BY updated_s, id"
        return [row["id"] for row in self.read(older, (moment_s,))]

    def close(self) -> Unsaved | None:
        """See `HistoryDatabase.close`; chores end behind their step."""
        self._ends = True
        if self._chores is not None:
            self._chores.close()
            self._chores = None
        return super().close()

    def _conversations_of_titles(self, name: str) -> list[StoredConversation]:
        """Return the newest conversation of a title, or else all whose titles begin so."""
        begins = "SELECT id, title FROM conversation WHERE substr(title, 1, ?) = ? ORDER BY updated_s DESC, id DESC"
        rows = [
            row for row in self.read(begins, (len(name), name)) if self.count_messages(row["id"])
        ]
        same = [row for row in rows if row["title"] == name][:1]
        return [self.conversation(row["id"]) for row in same or rows[: _CANDIDATES + 1]]

    def latest(self) -> int | None:
        """Return the conversation that was last held; None if there is none."""
        newest = self.conversations(limit=1)
        return newest[0].id if newest else None

    def named(self, name: str) -> StoredConversation:
        """Return the conversation of a number or a title: of the whole title, or else the only one that begins so.

        Raises:
            HistoryError: there is none of this number.
            UsageError: there is none of this title, or several begin so.
        """
        number = name.removeprefix("#")
        if number.isdecimal():
            try:
                return self.conversation(int(number[:_MOST_DIGITS]))
            except HistoryError as error:
                raise HistoryError(f"{error}: `localspec history` lists them") from None
        matches = self._conversations_of_titles(name)
        if not matches:
            raise UsageError(
                f"there is no conversation {name[:40]!r}: `localspec history` lists them"
            )
        if len(matches) > 1:
            titles = ", ".join(f"{each.id} {each.title!r}" for each in matches[:_CANDIDATES])
            raise UsageError(f"{name[:40]!r} begins several titles: give the number of {titles}")
        return matches[0]

    def branch(self, conversation: int, leaf: int | None = None) -> list[StoredMessage]:
        """Return the messages from the first to `leaf`; without one, to the last that was added or visible."""
        if leaf is None:
            rows = self.rows("conversation", "id", conversation)
            leaf = rows[0]["leaf"] if rows else None
        left = {each["id"]: each for each in self.rows("message", "conversation", conversation)}
        siblings, line = _siblings(left.values()), list[StoredMessage]()
        while row := left.pop(leaf, None):
            line.append(self._stored(row, siblings))
            leaf = row["parent"]
        return line[::-1]

    def messages(self, conversation: int) -> list[StoredMessage]:
        """Return the messages of all branches, oldest first."""
        rows = self.rows("message", "conversation", conversation)
        siblings = _siblings(rows)
        return [self._stored(row, siblings) for row in rows]

    def show(self, conversation: int, message: int) -> list[StoredMessage]:
        """Switch to the branch that goes through a message, and on to the newest of what follows it.

        Raises:
            HistoryError: there is no such message.
        """
        leaf = int(self._row(message)["id"])
        rows = self.rows("message", "conversation", conversation)
        newest = {row["parent"]: row["id"] for row in rows if (row["parent"] or 0) < row["id"]}
        while leaf in newest:
            leaf = newest[leaf]
        self.go_back(conversation, leaf)
        return self.branch(conversation, leaf)

    def go_back(self, conversation: int, message: int | None) -> None:
        """Show a conversation up to a message, or none of it; what follows stays."""
        self.save(RowChange("conversation", conversation, {"leaf": message}))

    def questions(self, most: int) -> list[str]:
        """Return the user's last questions, each once, oldest first; without the files that went along."""
        last = """SELECT content FROM message WHERE role = 'user' AND figures = ''
            AND (acts = '' OR acts LIKE '{"media"%') ORDER BY id DESC LIMIT ?"""
        rows = self.read(last, (most,))
        typed = [Message.from_text("user", row["content"]).typed for row in rows]
        return list(dict.fromkeys(typed))[::-1]

    def rename(self, conversation: int, title: str) -> None:
        """Give a conversation a title."""
        self.update(conversation, title=" ".join(title.split()))

    def tag(
        self, conversation: int, added: Sequence[str] = (), removed: Sequence[str] = ()
    ) -> list[str]:
        """Give a conversation tags, and take others from it; return all that it has.

        Raises:
            HistoryError: the file cannot be written.
        """
        new = "INSERT OR IGNORE INTO tag(conversation, name) VALUES (?, ?)"
        gone = "DELETE FROM tag WHERE conversation = ? AND name = ?"
        pairs = [(new, name) for name in added] + [(gone, name) for name in removed]
        if pairs:
            self.change(*((sql, (conversation, name)) for sql, name in pairs))
        return self._tags(conversation)

    def update(self, conversation: int, **changes: str | None) -> None:
        """Change `title`, `system`, `pair` or `settings`."""
        values = {name: value and storable(value) for name, value in changes.items()}
        self.save(RowChange("conversation", conversation, values))

    def delete(self, conversation: int) -> None:
        """Remove a conversation, what the search and the store know of it, its pictures and sounds, and what models have read of it.

        Its bytes are overwritten in the database (`secure_delete`), in the store and in files that no other message names;
        what was read is unlinked. Of a large history the index gives up the words in `tidy`.

        Raises:
            HistoryError: the history or the store cannot be written.
        """
        self._forget_kept(conversation)
        forget_conversation(self._reads, conversation)
        its = (conversation,)
        saved = self.read("SELECT 1 FROM conversation WHERE id = ?", its)
        named = self.names_media(conversation)
        if saved:
            self.change(
                ("DELETE FROM message WHERE conversation = ?", its),
                ("DELETE FROM tag WHERE conversation = ?", its),
                ("DELETE FROM conversation WHERE id = ?", its),
                FORGET_WORDS,
                whole=True,
            )
        self.forget(conversation)
        if saved:
            if named:
                self.remove_unnamed_media()
            if self._chores is not None:
                self._chores.wake()
            elif self.is_small:  # a step on a large index may take longer than the deletion
                self.tidy()

    def _forget_kept(self, conversation: int) -> None:
        from localspec.decoding.drafters.register import keeping  # noqa: PLC0415 - few delete

        for entry in keeping():
            try:
                entry.kept.forget(self._data, conversation)
            except OSError as error:
                raise HistoryError(
                    f"the {entry.name} of what was said cannot be changed ({error.strerror}), so nothing was deleted: "
                    f"check {error.filename}"
                ) from error

    def _row(self, message: int) -> Values:
        rows = self.rows("message", "id", message)
        if not rows:
            raise HistoryError(f"message {message} is no longer in the history")
        return rows[0]

    def _tags(self, conversation: int) -> list[str]:
        rows = self.read(
            "SELECT name FROM tag WHERE conversation = ? ORDER BY name", (conversation,)
        )
        return [row["name"] for row in rows]

    def _add(
        self,
        conversation: int,
        parent: int | None,
        message: Message,
        state: State,
        model: str = "",
        figures: str = "",
    ) -> int:
        now_s = self._clock()
        values = {
            "conversation": conversation,
            "parent": parent,
            "role": "user" if message.role == "tool" else message.role,
            "content": storable(content_of(message)),
            "thinking": "",
            "acts": storable(acts_of(message)),
            "state": state,
            "created_s": now_s,
            "model": model,
            "figures": figures,
            "mark": "",
        }
        leaf: Values = {"leaf": NEW, "updated_s": now_s}
        begun = self._titles(conversation) if parent is None else set()
        if any(
            row["title"] in {"", *begun} for row in self.rows("conversation", "id", conversation)
        ):
            leaf["title"] = _title_of(message)
        return self.save(
            RowChange("message", None, values),
            RowChange("conversation", conversation, leaf),
            media={each.sha256: each.data for each in message.media if each.data},
        )

    def _titles(self, conversation: int) -> set[str]:
        """Return the titles that the first questions of a conversation give it: an own one is none of them."""
        rows = self.rows("message", "conversation", conversation)
        firsts = (each for each in rows if each["parent"] is None)
        return {_title_of(message_of(each, lambda _: b"")) for each in firsts}

    def _stored(self, row: Values, siblings: dict[Place, tuple[int, ...]]) -> StoredMessage:
        columns = ("id", "parent", "state", "created_s", "model", "figures", "mark")
        its = siblings.get(_place(row), ())
        return StoredMessage(
            **{key: row[key] for key in columns},
            message=message_of(row, self.media),
            siblings=its if row["id"] in its else (row["id"],),
        )


def _place(row: Values) -> Place:
    """Return where a message stands: its parent, and whether it asks for a summary, which is no version of a question."""
    return row["parent"], row["role"] == "user" and f'"{SUMMARY}"' in row["figures"]


def _siblings(rows: Iterable[Values]) -> dict[Place, tuple[int, ...]]:
    """Return the ids of the messages of a conversation by their places, but for requests for a summary that came to nothing."""
    every = [*rows]
    siblings, answered = dict[Place, tuple[int, ...]](), {row["parent"] for row in every}
    for row in every:
        place = _place(row)
        if row["id"] in answered or not place[1]:
            siblings[place] = (*siblings.get(place, ()), row["id"])
    return siblings


def _title_of(question: Message) -> str:
    names = ", ".join(each.name for each in question.media)
    words = " ".join(storable(question.typed or question.text or names).split())
    return cut_at_word(words, _TITLE_CHARS)


def cut_at_word(text: str, most: int) -> str:
    """Return one line in `most` characters: what is cut ends with a word, unless that is very long, and a `…`."""
    if len(text) <= most:
        return text
    start = text[: most - 1]
    whole, _, _ = start.rpartition(" ") if text[most - 1] != " " else (start, "", "")
    return (whole if len(whole) > most // 2 else start).rstrip() + "…"
