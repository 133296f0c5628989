"""History: conversations as trees of messages. Editing or asking again adds a branch; nothing said is lost.

Nothing here fails a chat, see `HistoryDatabase`: where the history is in trouble, the same calls work in memory.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from localspec.errors import HistoryError, UsageError
from localspec.history import queries
from localspec.history.database import RETRY_S, HistoryDatabase
from localspec.history.recorder import ReplyRecorder, storable
from localspec.history.records import (
    State,
    StoredConversation,
    StoredMessage,
    acts_of,
    content_of,
)
from localspec.messages import Message

_TITLE_CHARS = 60
_CANDIDATES = 5
_MOST_DIGITS = 1000  # Python reads no number of more than 4,300
_CHANGEABLE = frozenset({"title", "system", "pair", "settings"})
_ADD = """
INSERT INTO message(id, conversation, parent, role, content, state, created_s, model, figures, acts)
VALUES (:id, :conversation, :parent, :role, :content, :state, :now, :model, :figures, :acts)
"""
# What was just added is the newest message of all.
_FOLLOW = """
UPDATE conversation SET leaf = (SELECT max(id) FROM message WHERE conversation = :id), updated_s = :now,
title = CASE title WHEN '' THEN :title ELSE title END WHERE id = :id
"""


class History:
    """Conversations that outlive the program.

    Args:
        directory: where the database and the models' states are.
        clock: seconds since 1970.
        stopwatch: seconds, monotonic; paces what a growing reply writes.
    """

    def __init__(
        self,
        directory: Path,
        clock: Callable[[], float] = time.time,
        stopwatch: Callable[[], float] = time.monotonic,
    ) -> None:
        self._states = directory / "state"
        self._said = directory.parent / "store" / "said"
        self._clock = clock
        self._stopwatch = stopwatch
        self._database = HistoryDatabase(directory / "history.db")
        if self.trouble is None:
            self._settle()

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open the history in a directory; what is wrong with it, `trouble` tells."""
        return cls(directory)

    @property
    def trouble(self) -> str | None:
        """Why nothing is saved, on one line; None while all is well."""
        return self._database.trouble

    def mend(self, wait_s: float = RETRY_S) -> None:
        """Where nothing can be saved, see whether it can be again, every `wait_s` at most; to be called often."""
        self._database.mend(wait_s)

    def create(self, *, system: str | None = None, pair: str = "", settings: str = "") -> int:
        """Begin a conversation; return its id."""
        statement = (
            "INSERT INTO conversation(id, system, pair, settings, created_s, updated_s) "
            "VALUES (:id, :system, :pair, :settings, :now, :now)"
        )
        system = None if system is None else storable(system)
        values = {"system": system, "pair": pair, "settings": storable(settings)}
        return self._database.write((statement, {"id": None, "now": self._clock(), **values}))

    def add_user(
        self, conversation: int, parent: int | None, message: Message, figures: str = ""
    ) -> int:
        """Add what the user says after `parent`, None at the beginning; return its id. It becomes the leaf.

        A conversation without a title gets what was typed, as far as a list has room for it.
        """
        return self._add(conversation, parent, message, "complete", figures=figures)

    def add_result(
        self, conversation: int, parent: int | None, message: Message, name: str, figures: str
    ) -> int:
        """Add what a call of the function `name` came to; see `add_user`."""
        return self._add(conversation, parent, message, "complete", name, figures)

    def begin_reply(self, conversation: int, parent: int | None, model: str = "") -> ReplyRecorder:
        """Begin a reply to `parent`; it becomes the leaf, and what the recorder is fed is saved as it comes."""
        message = self._add(conversation, parent, Message.assistant(""), "streaming", model)
        return ReplyRecorder(self._database, message, clock=self._stopwatch)

    def resume_reply(self, message: int) -> ReplyRecorder:
        """Go on with a reply that was cut.

        Raises:
            HistoryError: there is no such message.
        """
        row = self._database.read(partial(queries.message, number=message))
        begun = queries.said(row)
        return ReplyRecorder(self._database, message, begun, clock=self._stopwatch)

    def conversation(self, conversation: int) -> StoredConversation:
        """Return what is known of one.

        Raises:
            HistoryError: it is not there.
        """
        return self._database.read(partial(queries.conversation, number=conversation))

    def conversations(self, query: str = "", limit: int = 200) -> list[StoredConversation]:
        """Return those that hold every word of a query, newest first; without one, all that are not empty."""
        query = storable(query)
        return self._database.read(partial(queries.conversations, query=query, limit=limit))

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
            return self.conversation(int(number[:_MOST_DIGITS]))
        known = self.conversations(limit=-1)
        found = [each for each in known if each.title == name][:1]
        found = found or [each for each in known if each.title.startswith(name)]
        if not found:
            raise UsageError(
                f"there is no conversation {name[:40]!r}: `localspec history` lists them"
            )
        if len(found) > 1:
            titles = ", ".join(f"{each.id} {each.title!r}" for each in found[:_CANDIDATES])
            raise UsageError(f"{name[:40]!r} begins several titles: give the number of {titles}")
        return found[0]

    def branch(self, conversation: int, leaf: int | None = None) -> list[StoredMessage]:
        """Return the messages from the first to `leaf`; without one, to the last that was added or shown."""
        return self._database.read(partial(queries.branch, number=conversation, leaf=leaf))

    def messages(self, conversation: int) -> list[StoredMessage]:
        """Return the messages of all branches, oldest first."""
        return self._database.read(partial(queries.messages, number=conversation))

    def show(self, conversation: int, message: int) -> list[StoredMessage]:
        """Switch to the branch that goes through a message, and on to the newest of what follows it.

        Raises:
            HistoryError: there is no such message.
        """
        self._database.read(partial(queries.message, number=message))
        leaf = self._database.read(partial(queries.newest_leaf, number=message))
        self.go_back(conversation, leaf)
        return self.branch(conversation, leaf)

    def go_back(self, conversation: int, message: int | None) -> None:
        """Show a conversation up to a message, or none of it; what follows stays."""
        statement = "UPDATE conversation SET leaf = :leaf WHERE id = :id"
        self._database.write((statement, {"id": conversation, "leaf": message}))

    def questions(self, most: int) -> list[str]:
        """Return what the user asked last, each once, oldest first; without the files that went along."""
        rows = self._database.read(partial(queries.questions, most=most))
        typed = [Message.from_text("user", row).typed for row in rows]
        return list(dict.fromkeys(typed))[::-1]

    def rename(self, conversation: int, title: str) -> None:
        """Give a conversation a title."""
        self.update(conversation, title=" ".join(title.split()))

    def tag(
        self, conversation: int, added: Sequence[str] = (), removed: Sequence[str] = ()
    ) -> list[str]:
        """Give a conversation tags, and take others from it; return all that it has."""
        new = "INSERT OR IGNORE INTO tag(conversation, name) VALUES (:id, :name)"
        gone = "DELETE FROM tag WHERE conversation = :id AND name = :name"
        for statement, names in ((new, added), (gone, removed)):
            for name in names:
                self._database.write((statement, {"id": conversation, "name": name}))
        return self._database.read(partial(queries.tags, number=conversation))

    def update(self, conversation: int, **changes: str | None) -> None:
        """Change `title`, `system`, `pair` or `settings`."""
        assert changes.keys() <= _CHANGEABLE, f"{changes.keys()} cannot be changed"  # noqa: S101
        columns = ", ".join(f"{name} = :{name}" for name in changes)
        statement = f"UPDATE conversation SET {columns} WHERE id = :id"  # noqa: S608 - of known names
        values = {name: value and storable(value) for name, value in changes.items()}
        self._database.write((statement, {**values, "id": conversation}))

    def delete(self, conversation: int) -> None:
        """Remove a conversation, what the search and the store know of it, and the models' state of it.

        Its bytes are overwritten in the database (`secure_delete`) and in the store; the state is a file that is unlinked.

        Raises:
            HistoryError: the store cannot be written; nothing is removed then.
        """
        if self._said.exists():
            self._forget(conversation)
        shutil.rmtree(self._states / str(conversation), ignore_errors=True)
        gone = {"id": conversation}
        self._database.write(
            ("UPDATE conversation SET leaf = NULL WHERE id = :id", gone),
            ("DELETE FROM message WHERE conversation = :id", gone),
            ("DELETE FROM tag WHERE conversation = :id", gone),
            ("DELETE FROM conversation WHERE id = :id", gone),
            # The index only marks what is deleted, until its parts are merged.
            ("INSERT INTO found(found) VALUES ('optimize')", {}),
        )
        self._database.shrink_log()

    def state_directory(self, conversation: int) -> Path | None:
        """Return where the models' state of a conversation belongs; None where nothing is saved."""
        return self._states / str(conversation) if self.trouble is None else None

    def close(self) -> None:
        """Close the database; closing twice is harmless."""
        self._database.close()

    def _forget(self, conversation: int) -> None:
        from localspec.storage.token_log import TokenLog, of_conversation  # noqa: PLC0415 - few have one

        try:
            TokenLog(self._said).forget(of_conversation(conversation))
        except OSError as error:
            raise HistoryError(
                f"the store of what was said cannot be changed ({error.strerror}), so nothing was deleted: "
                f"check {self._said}"
            ) from error

    def _settle(self) -> None:
        """Call cut what a dead process left streaming; one that lives on simply goes on writing."""
        streaming = "SELECT 1 FROM message WHERE state = 'streaming'"
        if self._database.read(lambda c: c.execute(streaming).fetchone()):
            cut = "UPDATE message SET state = 'cut' WHERE state = 'streaming'"
            self._database.write((cut, {}))

    def _add(
        self,
        conversation: int,
        parent: int | None,
        message: Message,
        state: State,
        model: str = "",
        figures: str = "",
    ) -> int:
        title = cut_at_word(" ".join(storable(message.typed or message.text).split()), _TITLE_CHARS)
        added = {
            "id": None,
            "conversation": conversation,
            "parent": parent,
            "role": "user" if message.role == "tool" else message.role,
            "content": storable(content_of(message)),
            "acts": storable(acts_of(message)),
            "state": state,
            "now": self._clock(),
            "model": model,
            "figures": figures,
        }
        return self._database.write(
            (_ADD, added), (_FOLLOW, {**added, "id": conversation, "title": title})
        )


def cut_at_word(text: str, most: int) -> str:
    """Return one line in `most` characters: what is cut ends with a word, unless that is very long, and a `…`."""
    if len(text) <= most:
        return text
    start = text[: most - 1]
    whole, _, _ = start.rpartition(" ") if text[most - 1] != " " else (start, "", "")
    return (whole if len(whole) > most // 2 else start).rstrip() + "…"
