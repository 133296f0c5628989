"""MessageView: one message on the screen, while it grows and when it is done.

Laid out once for a width and kept as strips; while it grows, only the block at its end is laid out
again. A finished message costs nothing until it is scrolled into sight. Lines are also kept as they go
to the terminal: where text scrolls, Textual asks for all that are in sight, and most have not changed.
"""

from collections.abc import Callable
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import Reactive
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from localspec.ui.blocks import Block, BlockCutter
from localspec.ui.composer import Composer
from localspec.ui.keys import ON_MESSAGE
from localspec.ui.shown import Shown
from localspec.ui.typeset import Typesetter

_FOLDED_LINES = 12


class MessageView(Widget, can_focus=True):
    """One message; its keys are those of `keys.ON_MESSAGE`.

    Args:
        shown: what it shows.
        typesetter: returns what lays it out; another one after the colours changed.
        message_id: of the message in the history; None until it has one.
        growing: whether more text is to come.
    """

    BINDINGS: ClassVar[list[BindingType]] = ON_MESSAGE
    FOCUS_ON_CLICK = False  # whoever hears `Chosen` decides
    # As Textual has it, but without having the screen laid out and drawn a second time for every new line.
    virtual_size: Reactive[Size] = Reactive(Size(0, 0), repaint=False)

    class Chosen(Message):
        """The user clicked on the message."""

        def __init__(self, view: "MessageView") -> None:
            self.view = view
            super().__init__()

    def __init__(
        self,
        shown: Shown,
        typesetter: Callable[[], Typesetter],
        message_id: int | None = None,
        *,
        growing: bool = False,
    ) -> None:
        super().__init__(classes=shown.kind)
        self.shown = shown
        self.message_id = message_id
        self.unfolded = False
        self._typesetter = typesetter
        self._cutter: BlockCutter | None = None
        if growing:
            self._cutter = BlockCutter()
            self._cutter.feed(shown.text)
        self._strips: list[Strip] = []
        self._drawn: dict[int, Strip] = {}
        self._drawn_like: tuple[object, ...] = ()
        self._settled = 0
        self._blocks = 0
        self._width = 0
        self._style = Style()

    @property
    def growing(self) -> bool:
        """Whether more text is to come."""
        return self._cutter is not None

    def grow(self, shown: Shown) -> None:
        """Show more: the text begins with what is shown already."""
        assert self._cutter is not None  # noqa: S101 - only a growing one grows
        added = shown.text[len(self.shown.text) :]
        head_changed = (shown.heading, shown.thoughts) != (self.shown.heading, self.shown.thoughts)
        self.shown = shown
        self._cutter.feed(added)
        if not self._width:
            return
        before, settled = len(self._strips), self._settled
        if head_changed:
            self._lay_out(self._width)
            settled = 0
        else:
            self._extend(self._cutter, self._width)
        if len(self._strips) != before:
            self.refresh(layout=True)
        else:
            self.refresh(Region(0, settled, self._width, before - settled))

    def settle(self, shown: Shown, message_id: int | None) -> None:
        """Show what the message has become; nothing more will come."""
        self.shown, self.message_id, self._cutter = shown, message_id, None
        self.lay_out_again()

    def lay_out_again(self) -> None:
        """Lay it out anew: the colours changed, or what is folded."""
        self._width = 0
        self.refresh(layout=True)

    def toggle_fold(self) -> None:
        """Fold or unfold the thoughts, or a long question."""
        self.unfolded = not self.unfolded
        self.lay_out_again()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """Return the number of lines; lays the message out if that was not done for this width."""
        if width != self._width:
            self._lay_out(width)
        return len(self._strips)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of a region; what was drawn before, and like this, is not drawn again."""
        self._style = self.rich_style  # walks up the tree: once for all lines
        like = (
            crop.column_span,
            self._style,
            self.background_colors,
            self.styles.border,
            self.styles.padding,
            self.text_selection if self.is_attached else None,
            *self.get_line_filters(),
        )
        if like != self._drawn_like:
            self._drawn, self._drawn_like = {}, like
        missing = [y for y in crop.line_range if y not in self._drawn]
        if missing:
            first, count = missing[0], missing[-1] + 1 - missing[0]
            lines = super().render_lines(Region(crop.x, first, crop.width, count))
            self._drawn.update(enumerate(lines, first))
        return [self._drawn[y] for y in crop.line_range]

    def render_line(self, y: int) -> Strip:
        """Return a line, with what is selected of it."""
        width, style = self.size.width, self._style
        if width != self._width:
            self._lay_out(width)
        if y >= len(self._strips):
            return Strip.blank(width, style)
        strip = self._strips[y]
        span = None if self.text_selection is None else self.text_selection.get_span(y)
        if span is not None:
            selected = Style.from_color(None, None) + self.screen.get_component_rich_style(
                "screen--selection"
            )
            start, end = span[0], strip.cell_length if span[1] == -1 else span[1]
            parts = list(strip.divide([start, end, strip.cell_length]))
            parts[1:2] = [part.apply_style(selected) for part in parts[1:2]]
            strip = Strip.join(parts)
        return strip.adjust_cell_length(width).apply_style(style).apply_offsets(0, y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the text that is selected."""
        return selection.extract("\n".join(strip.text.rstrip() for strip in self._strips)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:  # noqa: ARG002 - Textual's signature
        """Show another selection."""
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Tell that it was clicked on."""
        event.stop()
        self.post_message(self.Chosen(self))

    def on_key(self, event: events.Key) -> None:
        """Hand on what is typed and no command of a message, also if the focus went on in the meantime."""
        bound = self.has_focus and event.key in self.screen.active_bindings
        if event.character is not None and event.is_printable and not bound:
            event.stop()
            self._type(event.character)

    def on_paste(self, event: events.Paste) -> None:
        """Hand on what is pasted."""
        event.stop()
        self._type(event.text)

    def _type(self, text: str) -> None:
        # At once, without a message: the next key may be on its way here already.
        self.screen.query_one(Composer).type(text)

    def _cut(self, first: int) -> None:
        """Forget the lines from one on."""
        del self._strips[first:]
        self._drawn = {y: strip for y, strip in self._drawn.items() if y < first}

    def _lay_out(self, width: int) -> None:
        self._width = width
        self._cut(0)
        self._strips = self._head(width)
        self._settled, self._blocks = len(self._strips), 0
        if self._cutter is not None:
            self._extend(self._cutter, width)
            return
        typesetter, shown = self._typesetter(), self.shown
        if shown.kind == "reply":
            self._strips += typesetter.markdown(shown.text, width) if shown.text else []
        else:
            self._strips += self._question(width)
        self._strips += self._foot(width)

    def _question(self, width: int) -> list[Strip]:
        """Lay out a question; of a long one, a paste say, only the beginning until it is unfolded."""
        typesetter = self._typesetter()
        lines = self.shown.text.split("\n")
        if self.unfolded or len(lines) <= _FOLDED_LINES + 1:
            return typesetter.plain(self.shown.text, width)
        more = f"▸ {len(lines) - _FOLDED_LINES} more lines"
        shown = typesetter.plain("\n".join(lines[:_FOLDED_LINES]), width)
        return shown + typesetter.plain(more, width, "dim italic")

    def _extend(self, cutter: BlockCutter, width: int) -> None:
        """Lay out the blocks that are done since, and the one that is not."""
        self._cut(self._settled)
        for index in range(self._blocks, len(cutter.done)):
            self._strips += self._block(cutter.done[index], width, first=index == 0)
        self._blocks, self._settled = len(cutter.done), len(self._strips)
        if cutter.open.text.strip():
            self._strips += self._block(cutter.open, width, first=not cutter.done)
        self._strips += self._foot(width)

    def _block(self, block: Block, width: int, *, first: bool) -> list[Strip]:
        apart = [] if first or block.goes_on else [Strip.blank(width)]
        return apart + self._typesetter().block(block, width)

    def _head(self, width: int) -> list[Strip]:
        typesetter, shown = self._typesetter(), self.shown
        lines = typesetter.plain(shown.heading, width, "bold")
        if not shown.thoughts:
            return lines
        words = len(shown.thoughts.split())
        if not self.unfolded:
            return lines + typesetter.plain(f"▸ thoughts, {words} words", width, "dim italic")
        lines += typesetter.plain(f"▾ thoughts, {words} words", width, "dim italic")
        return lines + typesetter.plain(shown.thoughts, width, "dim") + typesetter.plain("", width)

    def _foot(self, width: int) -> list[Strip]:
        note = self.shown.note
        return self._typesetter().plain(note, width, "dim") if note else []
