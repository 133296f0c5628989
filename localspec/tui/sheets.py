"""Sheets: the small screens that everything else is made of: a list to choose from, a line to write, a text to read, a call to allow."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.console import RenderableType
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec.display import clean, clean_line
from localspec.session.approval import Access, CallQuestion, Decision
from localspec.session.microphone import BLOCK_S, Microphone
from localspec.tui.colours import keys_of


@dataclass(frozen=True, slots=True)
class SheetRow:
    """One thing to choose.

    Args:
        key: what choosing it returns; empty where it cannot be chosen.
        text: its name.
        hint: a line below that.
    """

    key: str
    text: str
    hint: str = ""


def having(rows: Sequence[SheetRow], words: str) -> list[SheetRow]:
    """Return the rows with all of some words, in any order."""
    return [row for row in rows if all(each in row.text.lower() for each in words.lower().split())]


class Frame(Vertical):
    """What a sheet is in.

    Args:
        title: on its border.
        keys: what can be pressed, on its border below.
        classes: of its style.
    """

    def __init__(self, title: str, keys: str, classes: str = "") -> None:
        super().__init__(classes=f"sheet {classes}")
        self.border_title = Content(clean_line(title))
        self.border_subtitle = keys_of(keys)


class ListSheet(ModalScreen[str | None]):
    """Lets the user choose one of several things.

    Args:
        title: what is chosen.
        rows: what there is.
        note: a sentence below the title.
        keys: what can be pressed.
        marked: key of the row that is marked to begin with; the first one where there is no such row.
        search: given what the user types, returns what fits; None shows no line to type into.
        typed: stands there to begin with, and the rows fit it.
        plain: whether a row is one line of columns, cut where there is no room.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Close"),
        Binding("down", "move('down')", "Down", show=False),
        Binding("up", "move('up')", "Up", show=False),
    ]

    def __init__(
        self,
        title: str,
        rows: Sequence[SheetRow],
        *,
        note: str = "",
        keys: str = "Enter chooses · Esc closes",
        marked: str = "",
        search: Callable[[str], Sequence[SheetRow]] | None = None,
        typed: str = "",
        plain: bool = False,
    ) -> None:
        super().__init__()
        self._title, self._note, self._keys, self._search = title, note, keys, search
        self._typed, self._begin = typed, marked
        self.rows = list(rows)
        self._news = Static(classes="news", markup=False)
        self._news.display = False
        self.list = OptionList(compact=True, classes="lines" if plain else "")

    def compose(self) -> ComposeResult:
        """Return the sheet."""
        with Frame(self._title, self._keys):
            if self._note:
                yield Static(clean(self._note), classes="hint", markup=False)
            if self._search is not None:
                yield Input(self._typed, placeholder="type to search", compact=True)
            yield self._news
            yield self.list

    def report(self, text: str) -> None:
        """Show one line of news: the chat's own is out of sight."""
        self._news.update(clean_line(text))
        self._news.display = True

    def on_mount(self) -> None:
        """Fill the list."""
        self.fill(self.rows)
        if self._search is None:
            self.list.focus()

    def fill(self, rows: Sequence[SheetRow]) -> None:
        """Show these rows."""
        self.rows = list(rows)
        keys = [row.key for row in self.rows]
        at = self.list.highlighted
        if at is None:
            at = keys.index(self._begin) if self._begin in keys else 0
        self.list.set_options([Option(_row(each)) for each in self.rows])
        if self.rows:
            self.mark(min(at, len(self.rows) - 1))

    def mark(self, at: int) -> None:
        """Mark a row, and have it in sight."""
        self.list.highlighted = at
        self.call_after_refresh(self.list.scroll_to_highlight)

    def on_resize(self) -> None:
        """Have the marked row in sight."""
        self.call_after_refresh(self.list.scroll_to_highlight)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show what fits."""
        if self._search is not None:
            self.fill(self._search(event.value))
            if self.rows and event.value:
                self.mark(0)

    def on_input_submitted(self) -> None:
        """Take what is marked."""
        self.choose()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take what was chosen."""
        self.list.highlighted = event.option_index
        self.choose()

    @property
    def marked(self) -> SheetRow | None:
        """The row that is marked, if it can be chosen."""
        at = self.list.highlighted
        row = self.rows[at] if at is not None and at < len(self.rows) else None
        return row if row is not None and row.key else None

    def action_move(self, way: str) -> None:
        """Mark the row `down` or `up` of here, also while the user types."""
        (self.list.action_cursor_down if way == "down" else self.list.action_cursor_up)()

    def choose(self) -> None:
        """Return what is marked."""
        if self.marked is not None:
            self.dismiss(self.marked.key)


def _row(row: SheetRow) -> Content:
    content = Content(clean_line(row.text))
    if not row.hint:
        return content
    return content.stylize("bold") + Content(f"\n{clean_line(row.hint)}").stylize("dim")


class LineSheet(ModalScreen[str | None]):
    """Lets the user write one line.

    Args:
        title: what it is for.
        value: stands there to begin with.
        note: a sentence below the title.
        does: what Enter does.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Close")]

    def __init__(self, title: str, value: str, note: str = "", does: str = "saves") -> None:
        super().__init__()
        self._title, self._value, self._note, self._does = title, value, note, does

    def compose(self) -> ComposeResult:
        """Return the sheet."""
        with Frame(self._title, f"Enter {self._does} · Esc cancels"):
            if self._note:
                yield Static(clean(self._note), classes="hint", markup=False)
            yield Input(clean_line(self._value), compact=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take it."""
        self.dismiss(event.value)


class TextSheet(ModalScreen[None]):
    """Shows a text.

    Args:
        title: what it is.
        body: plain text, or what Rich or Textual can lay out.
        legend: stays in sight above it; None without one.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "dismiss(None)", "Close")]

    def __init__(
        self, title: str, body: str | Content | RenderableType, legend: Content | None = None
    ) -> None:
        super().__init__()
        self._title, self._legend = title, legend
        self._body = Text(clean(body)) if isinstance(body, str) else body

    def compose(self) -> ComposeResult:
        """Return the sheet."""
        with VerticalScroll(classes="sheet" if self._legend is None else "sheet lens") as frame:
            frame.border_title = Content(clean_line(self._title))
            frame.border_subtitle = keys_of("Esc closes")
            if self._legend is not None:
                yield Static(self._legend, classes="legend")
            yield Static(self._body)

    def on_mount(self) -> None:
        """Let keys scroll."""
        self.query_one(VerticalScroll).focus()


class ListenSheet(ModalScreen[bool]):
    """Shows how loud it is while a microphone records; returns whether the user wants what it recorded."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "dismiss(True)", "End"),
        Binding("escape", "dismiss(False)", "Close"),
    ]

    def __init__(self, microphone: Microphone) -> None:
        super().__init__()
        self._microphone = microphone
        self._line = Static(markup=False)

    def compose(self) -> ComposeResult:
        """Return the sheet."""
        with Frame("Listening", "Enter ends · Esc cancels"):
            yield self._line

    def on_mount(self) -> None:
        """Draw, ten times a second."""
        self.draw()
        self.set_interval(BLOCK_S, self.draw)

    def on_unmount(self) -> None:
        """End the recording."""
        self._microphone.close()

    def draw(self) -> None:
        """Show how loud it is; end where no more is recorded."""
        self._line.update(self._microphone.line)
        if self._microphone.is_full:
            self.dismiss(True)


# A user who is typing when the sheet appears has not read it: no key counts before a pause of so long.
CALM_S = 0.8
_OF_DIFFS = {"+": "$text-success", "-": "$text-error", "@": "dim"}


class ApprovalSheet(ModalScreen[Decision | None]):
    """Lets the user allow a call, and shows what it would do; None stops the answer."""

    def __init__(self, question: CallQuestion) -> None:
        super().__init__()
        self.question = question
        self._last_s = 0.0

    def compose(self) -> ComposeResult:
        """Return the sheet."""
        proposal, scope = self.question.proposal, clean(self.question.scope)
        is_diff = proposal.access is Access.WRITE
        lines = (
            Content(line).stylize(_OF_DIFFS.get(line[:1], "") if is_diff else "")
            for line in clean(proposal.preview).split("\n")
        )
        with Frame("Allow this?", "y once · a always · n no · Esc stops", "approval"):
            yield Static(Content(clean(proposal.summary)).stylize("bold"), classes="summary")
            with VerticalScroll():
                yield Static(Content("\n").join(lines))
            yield Static(Content(f"a: {scope}, in this conversation"), classes="hint")

    def on_mount(self) -> None:
        """Let keys scroll; begin to wait."""
        self.query_one(VerticalScroll).focus()
        self._last_s = time.monotonic()

    def on_key(self, event: events.Key) -> None:
        """Take an answer, unless the user is still typing."""
        now_s = time.monotonic()
        early, self._last_s = now_s - self._last_s < CALM_S, now_s
        if event.key not in {"y", "a", "n", "escape"}:
            return
        event.stop()
        event.prevent_default()
        if event.key == "escape":
            self.dismiss(None)
        elif early:
            return
        elif event.key == "n":
            note = "The model reads the reason; leave it empty to give none."
            line = LineSheet("Why not?", "", note, "sends")
            self.app.push_screen(line, self._refuse)
        else:
            self.dismiss(Decision(allowed=True, always=event.key == "a"))

    def _refuse(self, reason: str | None) -> None:
        if reason is not None:
            self.dismiss(Decision(allowed=False, reason=reason.strip()))
