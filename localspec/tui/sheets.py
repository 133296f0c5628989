"""Sheets: the small screens that everything else is made of: a list to choose from, a line to write, a text to read."""

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

from localspec.display import clean, clean_line, shortened
from localspec.tui.colours import keys_of

# A line that is indented by more than this share of the width would have no room left.
_MOST = 0.5


def hanging(text: Content, width: int) -> Content:
    """Return a text broken at words into lines of a width; what goes on is indented like the line that it belongs to."""
    lines: list[Content] = []
    for line in text.split("\n", allow_blank=True):
        indent = len(line.plain) - len(line.plain.lstrip(" "))
        if line.cell_length <= width or indent > width * _MOST:
            lines += line.wrap(width) if line.cell_length > width else [line]
        else:
            blanks = line[:indent]
            lines += [blanks + each for each in line[indent:].wrap(width - indent)]
    return Content("\n").join(lines)


class Hanging(Static):
    """Shows such a text."""

    def __init__(self, text: Content | str = "", *, classes: str | None = None) -> None:
        super().__init__(markup=False, classes=classes)
        self._text = Content(text) if isinstance(text, str) else text
        self._width = 0

    def show(self, text: Content) -> None:
        """Show another one."""
        self._text = text
        self._wrap()

    def on_resize(self) -> None:
        """Wrap it for another width."""
        if self.content_size.width != self._width:
            self._wrap()

    def _wrap(self) -> None:
        self._width = self.content_size.width
        self.update(hanging(self._text, self._width) if self._width else self._text)


_TEXT = 30
_BESIDE_KEYS = len("╰─  ─╯")


@dataclass(frozen=True, slots=True)
class SheetRow:
    """One thing to choose.

    Args:
        key: what choosing it returns.
        text: what it is called.
        hint: what is to be known of it, below that.
        aside: the same, in the same line, as far as there is room.
    """

    key: str
    text: str
    hint: str = ""
    aside: str = ""


class Frame(Vertical):
    """What a sheet is in.

    Args:
        title: on its border.
        keys: what can be pressed, on its border below, as far as there is room.
        classes: of its style.
    """

    def __init__(self, title: str, keys: str, classes: str = "") -> None:
        super().__init__(classes=f"sheet {classes}")
        self.border_title = Content(clean_line(title))
        self._keys = keys

    def tell_keys(self, keys: str) -> None:
        """Say what can be pressed now."""
        self._keys = keys
        self.border_subtitle = keys_of(shortened(keys, self.outer_size.width - _BESIDE_KEYS))

    def on_resize(self) -> None:
        """Say as much of it as there is room for."""
        self.tell_keys(self._keys)


class ListSheet(ModalScreen[str | None]):
    """Lets the user choose one of several things.

    Args:
        title: what is chosen.
        rows: what there is.
        note: a sentence below the title.
        keys: what can be pressed.
        marked: key of the row that is marked to begin with; the first one where there is no such row.
        search: given what the user types, returns what fits; None shows no line to type into.
        typed: stands there to begin with, and is what the rows fit.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Close"),
        Binding("down", "down", "Down", show=False),
        Binding("up", "up", "Up", show=False),
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
    ) -> None:
        super().__init__()
        self._typed = typed
        self._title, self._note, self._keys, self._search = title, note, keys, search
        self.rows = list(rows)
        self._begin_at = next((at for at, row in enumerate(rows) if row.key == marked), 0)
        self.list = OptionList(compact=True)
        self._said = Static(classes="said", markup=False)
        self._said.display = False

    def compose(self) -> ComposeResult:
        """Return the sheet."""
        with Frame(self._title, self._keys):
            if self._note:
                yield Static(Content(clean(self._note)), classes="hint")
            if self._search is not None:
                yield Input(self._typed, placeholder="type to search", compact=True)
            yield self._said
            yield self.list

    def say(self, text: str) -> None:
        """Show one line of news: the chat's own is out of sight."""
        self._said.update(clean_line(text))
        self._said.display = True

    def on_mount(self) -> None:
        """Fill the list."""
        self.fill(self.rows)
        if self._search is None:
            self.list.focus()

    def fill(self, rows: Sequence[SheetRow]) -> None:
        """Show these rows."""
        self.rows = list(rows)
        marked = self._begin_at if self.list.highlighted is None else self.list.highlighted
        self.list.clear_options()
        # One long text does not push aside what is to be known of the others.
        width = max((min(len(each.text), _TEXT) for each in self.rows if each.aside), default=0)
        for row in self.rows:
            content = Content(clean_line(row.text))
            if row.hint:
                hint = Content(f"\n{clean_line(row.hint)}").stylize("dim")
                content = content.stylize("bold") + hint
            if row.aside:
                gap = " " * (max(width - content.cell_length, 0) + 2)
                content += Content(gap + clean_line(row.aside)).stylize("dim")
            self.list.add_option(Option(content))
        if self.rows:
            self.mark(min(marked, len(self.rows) - 1))

    def mark(self, at: int) -> None:
        """Mark a row, and have it in sight."""
        self.list.highlighted = at
        self.call_after_refresh(self.list.scroll_to_highlight)

    def on_resize(self) -> None:
        """Keep the marked row in sight."""
        self.call_after_refresh(self.list.scroll_to_highlight)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show what fits."""
        if self._search is not None:
            self.fill(self._search(event.value))
            if self.rows and event.value:
                self.mark(0)

    def on_input_submitted(self) -> None:
        """Take what is marked."""
        self._choose()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take what was chosen."""
        self.list.highlighted = event.option_index
        self._choose()

    @property
    def marked(self) -> SheetRow | None:
        """The row that is marked."""
        at = self.list.highlighted
        return self.rows[at] if at is not None and at < len(self.rows) else None

    def action_down(self) -> None:
        """Mark the next row, also while the user types."""
        self.list.action_cursor_down()

    def action_up(self) -> None:
        """Mark the row before."""
        self.list.action_cursor_up()

    def _choose(self) -> None:
        if self.marked is not None:
            self.dismiss(self.marked.key)


class LineSheet(ModalScreen[str | None]):
    """Lets the user write one line.

    Args:
        title: what it is for.
        value: what stands there to begin with.
        note: a sentence below the title.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Close")]

    def __init__(self, title: str, value: str, note: str = "") -> None:
        super().__init__()
        self._title, self._value, self._note = title, value, note

    def compose(self) -> ComposeResult:
        """Return the sheet."""
        with Frame(self._title, "Enter saves · Esc cancels"):
            if self._note:
                yield Static(Content(clean(self._note)), classes="hint")
            yield Input(clean_line(self._value), compact=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take it."""
        self.dismiss(event.value)


class TextSheet(ModalScreen[None]):
    """Shows a text.

    Args:
        title: what it is.
        body: plain text, or what Rich can lay out.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss(None)", "Close"),
    ]

    def __init__(self, title: str, body: str | RenderableType) -> None:
        super().__init__()
        self._title = title
        self._body = Text(clean(body)) if isinstance(body, str) else body

    def compose(self) -> ComposeResult:
        """Return the sheet."""
        with VerticalScroll(classes="sheet") as frame:
            frame.border_title = Content(clean_line(self._title))
            frame.border_subtitle = keys_of("Esc closes")
            yield Static(self._body)

    def on_mount(self) -> None:
        """Let keys scroll."""
        self.query_one(VerticalScroll).focus()

    def on_click(self, event: events.Click) -> None:
        """Close when the user clicks beside it."""
        if event.widget is self:
            self.dismiss(None)
