"""Composer: where the user writes, many lines at a time, with recall; above it, what may be completed."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static, TextArea
from textual.widgets.option_list import Option

from localspec.display import clean_input, clean_line
from localspec.session.attachments import completions
from localspec.tui.commands import BY_NAME, Command, goes_on, matching
from localspec.tui.keys import IN_COMPOSER

_PATH = re.compile(r'(?:^|\s)@("?)([^\s"]*)$')
_ARGUMENT = re.compile(r"/(\w+) (\S*)$")


@dataclass(frozen=True, slots=True)
class Completion:
    """One thing that the text may become.

    Args:
        text: what is shown.
        hint: what it means, or how large it is.
        before: the text in front of what is replaced.
        insert: what replaces it.
        after: the text behind the cursor.
        whole: whether nothing is missing then, so that it may be sent.
    """

    text: str
    hint: str
    before: str
    insert: str
    after: str
    whole: bool = False

    def applied(self) -> str:
        """Return the text with the completion in it."""
        return self.before + self.insert + self.after


def complete(text: str, offset: int, folder: Path) -> list[Completion]:
    """Return what the text may become.

    Args:
        text: all that is written.
        offset: where the cursor is.
        folder: what paths are relative to.
    """
    before, after = text[:offset], text[offset:]
    if before.startswith("/") and not after:
        found = [_command(each) for each in matching(before)]
        return found or _arguments(before)
    path = _PATH.search(before)
    return [] if path is None else _paths(before, after, path, folder)


def _command(command: Command) -> Completion:
    shown = f"/{command.name} {command.usage}".rstrip()
    insert = f"/{command.name}{' ' if command.usage else ''}"
    return Completion(shown, command.summary, "", insert, "", whole=not command.needs_more)


def _arguments(before: str) -> list[Completion]:
    match = _ARGUMENT.match(before)
    command = BY_NAME.get(match[1]) if match else None
    if match is None or command is None:
        return []
    return [
        Completion(word, "", before[: match.start(2)], f"{word} ", "")
        for word in command.arguments
        if word.startswith(match[2]) and word != match[2]
    ]


def _paths(before: str, after: str, match: re.Match[str], folder: Path) -> list[Completion]:
    typed = match[2]
    found = []
    for name, size in completions(typed, folder):
        quote = '"' if " " in name else ""
        insert = f"@{quote}{name}{'' if name.endswith('/') else quote + ' '}"
        start = before[: match.start(1) - 1]
        if name != typed:
            found.append(Completion(clean_line(name), size, start, insert, after))
    return found


_ROWS = 6  # of the list of completions, as app.tcss has it
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

    async def on_key(self, event: events.Key) -> None:
        """Take the keys of an open list, of earlier texts and of the app; the rest is typed."""
        at_first, at_last = self.cursor_at_first_line, self.cursor_at_last_line
        if self.list_open and event.key in {"up", "down", "tab", "escape"}:
            self.post_message(self.Chose(event.key))
        elif event.key == "tab":
            pass  # nothing to complete: what is typed next must not be for somebody else
        elif (event.key == "up" and at_first and self._recall(-1)) or (
            event.key == "down" and at_last and self._recall(1)
        ):
            pass
        elif not await self._run_binding(event):
            return
        event.stop()
        event.prevent_default()

    async def _run_binding(self, event: events.Key) -> bool:
        """Run what a key is bound to; return whether there was something.

        At once, and not when the key went through all parents: letters that follow it would come before it.
        """
        bound = None if event.is_printable else self.screen.active_bindings.get(event.key)
        if bound is not None and await self.app.run_action(bound.binding.action, bound.node):
            return True
        if event.key == "enter":
            event.prevent_default()  # a binding sends, be it of another key
        return False

    def on_paste(self, event: events.Paste) -> None:
        """Write what is pasted, without what a terminal would obey."""
        event.stop()
        event.prevent_default()
        self.type(event.text)

    def on_text_area_changed(self) -> None:
        """Look for what may be completed now."""
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


class Entry(Vertical):
    """Composer and, above it, what may be completed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(id="entry")
        self.composer = Composer(folder)
        self._list = OptionList(id="completions", compact=True)
        self._more = Static(id="more", markup=False)
        self._completions: list[Completion] = []

    def compose(self) -> ComposeResult:
        """Return the list, how much of it is out of sight, and the composer."""
        self._list.can_focus = False
        self._open(False)
        yield self._list
        yield self._more
        yield self.composer

    def on_composer_completing(self, event: Composer.Completing) -> None:
        """Show what fits what is being typed."""
        event.stop()
        self._completions = event.completions
        self._list.clear_options()
        width = max((len(each.text) for each in event.completions), default=0)
        self._list.add_options(
            Option(Content(f"{each.text:<{width}}  {each.hint}")) for each in event.completions
        )
        self._more.update(f"{_ROWS} of {len(event.completions)} · ↑↓ shows the others")
        self._open(bool(event.completions))
        if event.completions:
            self._list.highlighted = 0

    def on_composer_chose(self, event: Composer.Chose) -> None:
        """Move in the list, take what is marked, or close it."""
        event.stop()
        if event.key == "escape":
            self._open(False)
        elif event.key == "up":
            self._list.action_cursor_up()
        elif event.key == "down":
            self._list.action_cursor_down()
        else:
            self._take(self._list.highlighted or 0, send=event.key == "enter")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take what was clicked on."""
        event.stop()
        self._take(event.option_index, send=False)
        self.composer.focus()

    def _take(self, index: int, *, send: bool) -> None:
        completion = self._completions[index]
        text, whole = completion.applied(), completion.whole
        self._open(False)
        # What is whole already needs no second Enter.
        if send and (text.strip() == self.composer.text.strip() or whole):
            self.composer.fill(text.rstrip())
            self._open(False)
            # Posted from here: what a parent has a child post stops at the parent.
            self.post_message(Composer.Sent(text.rstrip()))
            return
        self.composer.fill(text)

    def _open(self, is_open: bool) -> None:
        self._list.display = self.composer.list_open = is_open
        self._more.display = is_open and len(self._completions) > _ROWS
