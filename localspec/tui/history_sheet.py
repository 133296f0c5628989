"""HistorySheet: earlier conversations, to search, take up, rename, delete and export."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType

from localspec.errors import HistoryError
from localspec.session.conversation import History, StoredConversation
from localspec.tui.sheets import LineSheet, ListSheet, SheetRow

_DAY_S = 86_400


def row_of(stored: StoredConversation, now_s: float) -> SheetRow:
    """Return what the list says of a conversation."""
    messages = f"{stored.n_messages} message{'' if stored.n_messages == 1 else 's'}"
    parts = [age(now_s - stored.updated_s), messages]
    named = " ".join(f"#{each}" for each in stored.tags)
    parts += [each for each in (named, stored.pair, stored.excerpt) if each]
    return SheetRow(str(stored.id), stored.title or "untitled", " · ".join(parts))


def age(seconds: float) -> str:
    """Return how long ago something was, for people."""
    if seconds < 60:
        return "just now"
    for size, name in ((_DAY_S, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    raise AssertionError("a minute at least")


class HistorySheet(ListSheet):
    """Earlier conversations. Returns the one to take up.

    Args:
        history: where they are.
        query: what to search for to begin with.
        export: writes a conversation to a file, and returns what to say of it.
        delete: deletes a conversation.
        clock: seconds since 1970.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "rename", "Rename", priority=True),
        Binding("ctrl+x", "delete", "Delete", priority=True),
        Binding("ctrl+e", "export", "Export", priority=True),
    ]

    def __init__(
        self,
        history: History,
        query: str,
        export: Callable[[int], str],
        delete: Callable[[int], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._history, self._query, self._clock = history, query, clock
        self._export, self._delete = export, delete
        keys = "Enter opens · Ctrl+R renames · Ctrl+X deletes · Ctrl+E exports"
        rows = self._found(query)
        super().__init__("Conversations", rows, keys=keys, search=self._found, typed=query)

    def _found(self, query: str) -> list[SheetRow]:
        self._query = query
        now = self._clock()
        rows = [row_of(each, now) for each in self._history.conversations(query)]
        return rows or [SheetRow("", "nothing here" if not query else "nothing fits")]

    def _choose(self) -> None:
        if self.marked is not None and self.marked.key:
            self.dismiss(self.marked.key)

    def action_rename(self) -> None:
        """Give the marked conversation another title."""
        row = self.marked
        if row is not None and row.key:

            def rename(title: str | None) -> None:
                if title:
                    self._history.rename(int(row.key), title)
                    self.fill(self._found(self._query))

            self.app.push_screen(LineSheet("Title", row.text), rename)

    def action_delete(self) -> None:
        """Delete the marked conversation, if the user means it."""
        row = self.marked
        if row is not None and row.key:

            def delete(answer: str | None) -> None:
                if answer == "yes":
                    try:
                        self._delete(int(row.key))
                    except HistoryError as error:
                        self.say(str(error))
                    self.fill(self._found(self._query))

            sure = [
                SheetRow("no", "keep it"),
                SheetRow("yes", "delete it, in all its branches, for good"),
            ]
            self.app.push_screen(ListSheet(f"Delete “{row.text}”?", sure), delete)

    def action_export(self) -> None:
        """Write the marked conversation to a file."""
        if self.marked is not None and self.marked.key:
            self.say(self._export(int(self.marked.key)))
