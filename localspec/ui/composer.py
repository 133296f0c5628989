"""Composer: where the user writes. Many lines, safe to paste into, with completion and recall."""

from pathlib import Path
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message
from textual.widgets import TextArea

from localspec.display import clean_input
from localspec.ui.completion import Completion, complete
from localspec.ui.keys import IN_COMPOSER
from localspec.ui.quoted import goes_on

_PLACEHOLDER = "Ask something. / for commands, @ for files, F1 for keys."


class Composer(TextArea):
    """The text area itself.

    Enter sends; Ctrl+J, Alt+Enter and, where the terminal tells them apart, Shift+Enter begin a line.
    """

    BINDINGS: ClassVar[list[BindingType]] = IN_COMPOSER

    class Sent(Message):
        """The user sent a text."""

        def __init__(self, text: str) -> None:
            self.text = text
            super().__init__()

    class Completing(Message):
        """What may be completed has changed."""

        def __init__(self, completions: list[Completion]) -> None:
            self.completions = completions
            super().__init__()

    class Chose(Message):
        """A key that the open list of completions takes."""

        def __init__(self, key: str) -> None:
            self.key = key
            super().__init__()

    def __init__(self, folder: Path) -> None:
        super().__init__(
            soft_wrap=True,
            show_line_numbers=False,
            compact=True,
            tab_behavior="focus",
            placeholder=_PLACEHOLDER,
        )
        self.cursor_blink = False  # the screen would be drawn twice a second for it
        self.folder = folder
        self.recall: list[str] = []
        self.list_open = False
        self._at: int | None = None
        self._draft = ""

    def action_send(self) -> None:
        """Send what is written, or take the completion that is marked."""
        if self.list_open:
            self.post_message(self.Chose("enter"))
            return
        text = self.text.strip("\n")
        if goes_on(text):
            self.insert("\n")
            return
        if not text.strip():
            return
        self.post_message(self.Sent(text))

    def accept(self, text: str) -> None:
        """Take note that a text was sent: it can be recalled, and what was typed behind it stays."""
        self._remember(text)
        written = self.text
        self.fill(written[len(text) :].lstrip("\n") if written.startswith(text) else "")

    def put_aside(self) -> None:
        """Keep what is being written where it can be recalled: something else takes its place."""
        self._leave_recall()
        self._remember(self.text)

    def type(self, text: str) -> None:
        """Take the focus, and write what was typed or pasted elsewhere."""
        self.screen.set_focus(self)  # at once: `focus` would wait its turn behind the next key
        result = self.replace(clean_input(text), *self.selection)
        self.move_cursor(result.end_location)

    def fill(self, text: str) -> None:
        """Put a text into the composer, the cursor behind it."""
        if self._at is not None:
            self._at = None
            self._remember(self._draft)
        self.load_text(text)
        self.move_cursor(self.document.end)

    async def action_leave_or_delete(self) -> None:
        """Leave, as Ctrl+D does where nothing is written; else delete what is right of the cursor."""
        if self.text:
            self.action_delete_right()
        else:
            await self.run_action("app.quit")

    def action_newline(self) -> None:
        """Begin a new line."""
        self.insert("\n")

    async def _on_key(self, event: events.Key) -> None:
        if self.list_open and event.key in {"up", "down", "tab", "escape"}:
            event.stop()
            event.prevent_default()
            self.post_message(self.Chose(event.key))
            return
        if (
            event.key == "tab"
        ):  # nothing to complete: what is typed next must not be for somebody else
            event.stop()
            event.prevent_default()
            return
        if event.key == "up" and self.cursor_at_first_line and self._recall(-1):
            event.stop()
            event.prevent_default()
            return
        if event.key == "down" and self.cursor_at_last_line and self._recall(1):
            event.stop()
            event.prevent_default()
            return
        # At once, and not when the key went through all parents: letters that follow it would come before it.
        bound = None if event.is_printable else self.screen.active_bindings.get(event.key)
        if bound is not None and await self.app.run_action(bound.binding.action, bound.node):
            event.stop()
            event.prevent_default()
        elif event.key == "enter":
            event.prevent_default()  # a binding sends, be it of another key
        else:
            await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.type(event.text)

    def _on_text_area_changed(self) -> None:
        self.post_message(self.Completing(complete(self.text, self._offset(), self.folder)))

    def _offset(self) -> int:
        row, column = self.cursor_location
        return sum(len(self.document.get_line(each)) + 1 for each in range(row)) + column

    def _recall(self, step: int) -> bool:
        """Show an earlier text, or a later one; return whether there was one."""
        self._leave_recall()
        at = len(self.recall) if self._at is None else self._at
        if self._at is None:
            self._draft = self.text
        to = at + step
        if not 0 <= to <= len(self.recall) or (self._at is None and step > 0):
            return False
        self._at = None
        self.fill(self._draft if to == len(self.recall) else self.recall[to])
        self._at = None if to == len(self.recall) else to
        return True

    def _leave_recall(self) -> None:
        """Where a recalled text was changed, it is a new one, and the one before the recall can be recalled, too."""
        if self._at is not None and self.text != self.recall[self._at]:
            self._at = None
            self._remember(self._draft)

    def _remember(self, text: str) -> None:
        if text in self.recall:
            self.recall.remove(text)
        if text.strip():
            self.recall.append(text)
