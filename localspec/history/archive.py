"""History: conversations as trees of messages. Editing or regenerating adds a branch; nothing is lost.

A full disk fails no chat: see `HistoryDatabase`.
"""

import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from localspec.errors import HistoryError, UsageError
from localspec.history import search
from localspec.history.database import NEW, RETRY_S, HistoryDatabase, RowChange, Values
from localspec.history.recorder import ReplyRecorder
from localspec.history.records import (
    State,
    StoredConversation,
    StoredMessage,
    acts_of,
    content_of,
    message_of,
    storable,
)
from localspec.messages import Message

_TITLE_CHARS = 60
_CANDIDATES = 5
_LARGEST_ID = 2**63 - 1
_MOST_DIGITS = 1000  # Python reads no number of more than 4,300


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
        self._store = directory.parent / "store" / "said"
        self._clock = clock
        self._stopwatch = stopwatch
        self._database = HistoryDatabase(directory / "history.db")
        # What a dead process left streaming is cut; one that lives on simply goes on writing.
        streaming = self._database.read("SELECT id FROM message WHERE state = 'streaming' LIMIT 1")
        if streaming and self.trouble is None:
            with suppress(HistoryError):
                self._database.change(
                    ("UPDATE message SET state = 'cut' WHERE state = 'streaming'", ())
                )

    @property
    def trouble(self) -> str | None:
        """Why nothing is saved, on one line; None while all is well."""
        return self._database.trouble

    def mend(self, wait_s: float = RETRY_S) -> None:
        """Where nothing can be saved, see whether it can be again, every `wait_s` at most; to be called often."""
        self._database.mend(wait_s)

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
        return self._database.save(RowChange("conversation", None, values))

    def add_user(
        self, conversation: int, parent: int | None, message: Message, figures: str = ""
    ) -> int:
        """Add a message of the user after `parent`, None at the beginning; return its id. It becomes the leaf.

        A conversation without a title gets what was typed, as far as a list has room for it.
        """
        return self._add(conversation, parent, message, "complete", figures=figures)

    def add_result(
        self, conversation: int, parent: int | None, message: Message, name: str, figures: str
    ) -> int:
        """Add the result of a call of the function `name`; see `add_user`."""
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
        begun = message_of(self._row(message))
        return ReplyRecorder(self._database, message, begun, clock=self._stopwatch)

    def conversation(self, conversation: int) -> StoredConversation:
        """Return the record of a conversation.

        Raises:
            HistoryError: it is not there.
        """
        rows: list[Values] = []
        if conversation <= _LARGEST_ID:
            rows = self._database.rows("conversation", "id", conversation)
        if not rows or "created_s" not in rows[0]:
            raise HistoryError(f"there is no conversation {conversation}")
        n_messages = len(self._database.rows("message", "conversation", conversation))
        tags = tuple(self._tags(conversation))
        return StoredConversation(**rows[0], n_messages=n_messages, tags=tags)

    def conversations(self, query: str = "", limit: int = 200) -> list[StoredConversation]:
        """Return those that hold every word of a query, newest first; without one, all that are not empty.

        What could not be saved yet is not among them.
        """
        return search.search(self._database, storable(query), limit)

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
        if leaf is None:
            rows = self._database.rows("conversation", "id", conversation)
            leaf = rows[0]["leaf"] if rows else None
        rows = self._database.rows("message", "conversation", conversation)
        left: dict[int | None, Values] = {row["id"]: row for row in rows}
        line = list[int]()
        while row := left.pop(leaf, None):
            line.append(row["id"])
            leaf = row["parent"]
        return _stored(rows, line[::-1])

    def messages(self, conversation: int) -> list[StoredMessage]:
        """Return the messages of all branches, oldest first."""
        rows = self._database.rows("message", "conversation", conversation)
        return _stored(rows, [row["id"] for row in rows])

    def show(self, conversation: int, message: int) -> list[StoredMessage]:
        """Switch to the branch that goes through a message, and on to the newest of what follows it.

        Raises:
            HistoryError: there is no such message.
        """
        leaf = int(self._row(message)["id"])
        rows = self._database.rows("message", "conversation", conversation)
        newest = {row["parent"]: row["id"] for row in rows if (row["parent"] or 0) < row["id"]}
        while leaf in newest:
            leaf = newest[leaf]
        self.go_back(conversation, leaf)
        return self.branch(conversation, leaf)

    def go_back(self, conversation: int, message: int | None) -> None:
        """Show a conversation up to a message, or none of it; what follows stays."""
        self._database.save(RowChange("conversation", conversation, {"leaf": message}))

    def questions(self, most: int) -> list[str]:
        """Return the user's last questions, each once, oldest first; without the files that went along."""
        last = "SELECT content FROM message WHERE role = 'user' AND acts || figures = '' ORDER BY id DESC LIMIT ?"
        rows = self._database.read(last, (most,))
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
            self._database.change(*((sql, (conversation, name)) for sql, name in pairs))
        return self._tags(conversation)

    def update(self, conversation: int, **changes: str | None) -> None:
        """RowChange `title`, `system`, `pair` or `settings`."""
        values = {name: value and storable(value) for name, value in changes.items()}
        self._database.save(RowChange("conversation", conversation, values))

    def delete(self, conversation: int) -> None:
        """Remove a conversation, what the search and the store know of it, and the models' state of it.

        Its bytes are overwritten in the database (`secure_delete`) and in the store; the state is a file that is unlinked.

        Raises:
            HistoryError: the history or the store cannot be written.
        """
        if self._store.exists():
            self._forget(conversation)
        shutil.rmtree(self._states / str(conversation), ignore_errors=True)
        its = (conversation,)
        if self._database.read("SELECT 1 FROM conversation WHERE id = ?", its):
            self._database.change(
                ("UPDATE conversation SET leaf = NULL WHERE id = ?", its),
                ("DELETE FROM message WHERE conversation = ?", its),
                ("DELETE FROM tag WHERE conversation = ?", its),
                ("DELETE FROM conversation WHERE id = ?", its),
                # The index only marks what is deleted, until its parts are merged.
                ("INSERT INTO found(found) VALUES ('optimize')", ()),
            )
        self._database.forget(conversation)

    def state_directory(self, conversation: int) -> Path | None:
        """Return where the models' state of a conversation belongs; None where nothing is saved."""
        return self._states / str(conversation) if self.trouble is None else None

    def close(self) -> None:
        """Close the database; closing twice is harmless."""
        self._database.close()

    def _forget(self, conversation: int) -> None:
        from localspec.storage.token_log import TokenLog, of_conversation  # noqa: PLC0415 - few have one

        try:
            TokenLog(self._store).forget(of_conversation(conversation))
        except OSError as error:
            raise HistoryError(
                f"the store of what was said cannot be changed ({error.strerror}), so nothing was deleted: "
                f"check {self._store}"
            ) from error

    def _row(self, message: int) -> Values:
        rows = self._database.rows("message", "id", message)
        if not rows:
            raise HistoryError(f"message {message} is no longer in the history")
        return rows[0]

    def _tags(self, conversation: int) -> list[str]:
        rows = self._database.read(
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
        }
        leaf: Values = {"leaf": NEW, "updated_s": now_s}
        if any(
            not row.get("title", "-")
            for row in self._database.rows("conversation", "id", conversation)
        ):
            words = " ".join(storable(message.typed or message.text).split())
            leaf["title"] = cut_at_word(words, _TITLE_CHARS)
        return self._database.save(
            RowChange("message", None, values), RowChange("conversation", conversation, leaf)
        )


def _stored(rows: Sequence[Values], ids: Sequence[int]) -> list[StoredMessage]:
    """Return messages of a conversation with all its rows."""
    siblings = defaultdict[int | None, list[int]](list)
    for row in rows:
        siblings[row["parent"]].append(row["id"])
    by_id = {row["id"]: row for row in rows}
    return [
        StoredMessage(
            **{key: row[key] for key in ("id", "parent", "state", "created_s", "model", "figures")},
            message=message_of(row),
            siblings=tuple(siblings[row["parent"]]),
        )
        for row in map(by_id.__getitem__, ids)
    ]


def cut_at_word(text: str, most: int) -> str:
    """Return one line in `most` characters: what is cut ends with a word, unless that is very long, and a `…`."""
    if len(text) <= most:
        return text
    start = text[: most - 1]
    whole, _, _ = start.rpartition(" ") if text[most - 1] != " " else (start, "", "")
    return (whole if len(whole) > most // 2 else start).rstrip() + "…"
