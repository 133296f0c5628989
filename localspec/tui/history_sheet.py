"""HistorySheet: earlier conversations, to search, take up, rename, delete and export."""

import time
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input
from textual.worker import get_current_worker

from localspec.display import counted
from localspec.errors import LocalspecError
from localspec.session.conversation import StoredConversation
from localspec.tui.session import Session
from localspec.tui.sheets import LineSheet, ListSheet, SheetRow


def row_of(stored: StoredConversation, now_s: float) -> SheetRow:
    """Return the row of a conversation."""
    messages = counted(stored.n_messages, "message")
    tags = " ".join(f"#{each}" for each in stored.tags)
    parts = (age(now_s - stored.updated_s), messages, tags, stored.pair, stored.excerpt)
    return SheetRow(str(stored.id), stored.title or "untitled", " · ".join(filter(None, parts)))


def age(seconds: float) -> str:
    """Return how long ago something was, for people."""
    for size, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"


class HistorySheet(ListSheet):
    """Earlier conversations. Returns the one to take up.

    Args:
        session: has them.
        query: what to search for to begin with.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "rename", "Rename", priority=True),
        Binding("ctrl+x", "delete", "Delete", priority=True),
        Binding("ctrl+e", "export", "Export", priority=True),
    ]

    def __init__(self, session: Session, query: str) -> None:
        self._session, self._history, self._query = session, session.talk.history, query
        keys = "Enter opens · Ctrl+R renames · Ctrl+X deletes · Ctrl+E exports"
        super().__init__("Conversations", [], keys=keys, search=lambda _: [], typed=query)

    def on_mount(self) -> None:
        """Look for what fits."""
        super().on_mount()
        self._look()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Look for what fits now."""
        self._query = event.value
        self._look(marks_first=bool(event.value))

    def _look(self, *, marks_first: bool = False) -> None:
        """Show what fits as soon as it is found, by a thread: the screen waits for none of it."""
        query, now = self._query, time.time()

        def look() -> None:
            rows = [row_of(each, now) for each in self._history.found(query)]
            nothing = self._history.trouble or "no conversations yet"
            rows = rows or [SheetRow("", "nothing matches" if query else nothing)]
            if not get_current_worker().is_cancelled:
                self.app.call_from_thread(show, rows)

        def show(rows: list[SheetRow]) -> None:
            if query == self._query and self.is_mounted:
                self.fill(rows)
                if marks_first:
                    self.mark(0)

        self.run_worker(look, thread=True, exclusive=True)

    def action_rename(self) -> None:
        """Give the marked conversation another title."""
        if row := self.marked:

            def rename(title: str | None) -> None:
                if title:
                    self._history.rename(int(row.key), title)
                    self._look()

            self.app.push_screen(LineSheet("Title", row.text), rename)

    def action_delete(self) -> None:
        """Delete the marked conversation, if the user means it."""
        if row := self.marked:

            async def delete(answer: str | None) -> None:
                if answer == "yes":
                    try:
                        await self._session.delete(int(row.key))
                    except LocalspecError as error:
                        self.report(str(error))
                    self._look()

            self.app.push_screen(deletion(row.text), delete)

    def action_export(self) -> None:
        """Write the marked conversation to a file."""
        if row := self.marked:
            try:
                self.report(self._session.export(int(row.key)))
            except LocalspecError as error:
                self.report(str(error))


def deletion(title: str) -> ListSheet:
    """Return what asks whether a conversation is to be deleted; chosen is `yes`, or something else."""
    rows = [SheetRow("no", "keep it"), SheetRow("yes", "delete it, in all its branches, for good")]
    return ListSheet(f"Delete “{title}”?", rows)
