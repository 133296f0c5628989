"""MessageView: one message on the screen, as a widget: laid out once for a width, drawn, selected, clicked on, focused.

A finished message costs nothing until it is scrolled into sight. While it grows, only the block at its end is laid out
again. Lines are kept as they go to the terminal: where text scrolls, Textual asks for all that are in sight, and most
have not changed.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.reactive import Reactive
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from localspec.tui.blocks import CODE, FOLD, FRAME, Block, BlockCutter
from localspec.tui.composer import Composer
from localspec.tui.keys import ON_MESSAGE
from localspec.tui.shown import Shown
from localspec.tui.typeset import Typesetter

# Of a long question, so many lines stay at its beginning and at its end: what is asked may stand behind a paste.
_FIRST_LINES, _LAST_LINES = 8, 4
_FOLD = Style(dim=True, italic=True, meta={FOLD: True})


class MessageLayout:
    """The lines of one message.

    Args:
        shown: what they show.
        typesetter: returns what lays them out; another one after the colours changed.
        growing: whether more text is to come.

    Attributes:
        strips: the lines; none before `fit`.
        unfolded: whether thoughts, or a long question, are shown in full.
    """

    def __init__(
        self, shown: Shown, typesetter: Callable[[], Typesetter], *, growing: bool
    ) -> None:
        self.shown = shown
        self.strips: list[Strip] = []
        self.unfolded = False
        self._typesetter = typesetter
        self._cutter = BlockCutter() if growing else None
        if self._cutter is not None:
            self._cutter.feed(shown.text)
        self._settled = 0
        self._blocks = 0
        self._width = 0

    @property
    def growing(self) -> bool:
        """Whether more text is to come."""
        return self._cutter is not None

    def fit(self, width: int) -> bool:
        """Lay the message out for a width; return whether that was not done before."""
        if width == self._width:
            return False
        self._lay_out(width)
        return True

    def grow(self, shown: Shown) -> int:
        """Show more: the text begins with what is shown already. Return the first line that is another now."""
        assert self._cutter is not None  # noqa: S101 - only a growing one grows
        added = shown.text[len(self.shown.text) :]
        head_changed = (shown.heading, shown.thoughts) != (self.shown.heading, self.shown.thoughts)
        self.shown = shown
        self._cutter.feed(added)
        if not self._width:
            return 0
        if head_changed:
            self._lay_out(self._width)
            return 0
        settled = self._settled
        self._extend(self._cutter, self._width)
        return settled

    def settle(self, shown: Shown) -> None:
        """Show what the message has become; nothing more will come."""
        self.shown, self._cutter = shown, None
        self.forget()

    def forget(self) -> None:
        """Have `fit` lay everything out anew: the colours changed, or what is folded."""
        self._width = 0

    def _lay_out(self, width: int) -> None:
        self._width = width
        self.strips = self._head(width)
        self._settled, self._blocks = len(self.strips), 0
        if self._cutter is not None:
            self._extend(self._cutter, width)
            return
        if self.shown.kind == "reply":
            text = self.shown.text
            self.strips += self._typesetter().markdown(text, width) if text else []
        elif self.shown.kind == "greeting":
            self.strips += self._typesetter().keys(self.shown.text, width)
        else:
            self.strips += self._question(width)
        self.strips += self._foot(width)

    def _question(self, width: int) -> list[Strip]:
        """Lay out a question; of a long one, only the beginning and the end until it is unfolded."""
        typesetter = self._typesetter()
        lines = self.shown.text.split("\n")
        left_out = len(lines) - _FIRST_LINES - _LAST_LINES
        if self.unfolded or left_out <= 1:  # then one of them may be long
            first = last = typesetter.plain(self.shown.text, width)
            left_out = len(first) - _FIRST_LINES - _LAST_LINES
            if self.unfolded or left_out <= 1:
                return first
        else:
            first = typesetter.plain("\n".join(lines[:_FIRST_LINES]), width)
            last = typesetter.plain("\n".join(lines[-_LAST_LINES:]), width)
        more = typesetter.plain(f"▸ {left_out} more lines", width, _FOLD)
        return first[:_FIRST_LINES] + more + last[-_LAST_LINES:]

    def _extend(self, cutter: BlockCutter, width: int) -> None:
        """Lay out the blocks that are done since, and the one that is not."""
        del self.strips[self._settled :]
        before = cutter.done[self._blocks - 1] if self._blocks else None
        for block in cutter.done[self._blocks :]:
            self.strips += self._block(before, block, width)
            before = block
        self._blocks, self._settled = len(cutter.done), len(self.strips)
        if cutter.open.text.strip():
            self.strips += self._block(before, cutter.open, width)
            before = cutter.open
        self.strips += self._edge(before, width) + self._foot(width)

    def _block(self, before: Block | None, block: Block, width: int) -> list[Strip]:
        strips = self._typesetter().block(block, width)
        if before is None or block.goes_on:
            return strips
        return [*self._edge(before, width), Strip.blank(width), *strips]

    def _edge(self, before: Block | None, width: int) -> list[Strip]:
        """End the frame of code that does not go on."""
        is_code = before is not None and before.language is not None
        return self._typesetter().edge(width) if is_code else []

    def _head(self, width: int) -> list[Strip]:
        typesetter, shown = self._typesetter(), self.shown
        lines = typesetter.heading(shown.heading, shown.kind, width)
        if not shown.thoughts:
            return lines
        words = len(shown.thoughts.split())
        if not self.unfolded:
            return lines + typesetter.plain(f"▸ thoughts, {words} words", width, _FOLD)
        lines += typesetter.plain(f"▾ thoughts, {words} words", width, _FOLD)
        return lines + typesetter.plain(shown.thoughts, width, "dim") + typesetter.plain("", width)

    def _foot(self, width: int) -> list[Strip]:
        note = self.shown.note
        return self._typesetter().plain(note, width, "dim") if note else []


# Longer lines are hard to read.
_WIDEST = 108
# Columns between text and the scroll bar.
_APART = 1


class MessageView(Widget, can_focus=True):
    """One message; its keys are those of `keys.ON_MESSAGE`.

    Args:
        shown: what it shows.
        typesetter: returns what lays it out; another one after the colours changed.
        message_id: of the message in the history; None until it has one.
        growing: whether more text is to come.

    Attributes:
        copied: how many times its key copied a block of code, the last one first.
    """

    BINDINGS: ClassVar[list[BindingType]] = ON_MESSAGE
    FOCUS_ON_CLICK = False  # whoever hears `Chosen` decides
    # As Textual has it, but without having the screen laid out and drawn a second time for every new line.
    virtual_size: Reactive[Size] = Reactive(Size(0, 0), repaint=False)

    class CodeChosen(Message):
        """The user clicked on what copies a block of code."""

        def __init__(self, code: str) -> None:
            self.code = code
            super().__init__()

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
        self.message_id = message_id
        self.copied = 0
        self._layout = MessageLayout(shown, typesetter, growing=growing)
        self._drawn: dict[int, Strip] = {}
        self._drawn_like: tuple[object, ...] = ()
        self._style = Style()

    @property
    def shown(self) -> Shown:
        """What it shows."""
        return self._layout.shown

    @property
    def growing(self) -> bool:
        """Whether more text is to come."""
        return self._layout.growing

    @property
    def unfolded(self) -> bool:
        """Whether thoughts, or a long question, are shown in full."""
        return self._layout.unfolded

    def grow(self, shown: Shown) -> int:
        """Show more: the text begins with what is shown already. Return how many lines it got more."""
        before = len(self._layout.strips)
        first = self._layout.grow(shown)
        if not before:
            return 0  # not laid out yet
        self._forget_drawn(first)
        after = len(self._layout.strips)
        changed = Region(0, first, self.size.width, max(before, after) - first)
        self.refresh(changed, layout=after != before)
        return after - before

    def settle(self, shown: Shown, message_id: int | None) -> None:
        """Show what the message has become; nothing more will come."""
        self._layout.settle(shown)
        self.message_id = message_id
        self.refresh(layout=True)

    def lay_out_again(self) -> None:
        """Lay it out anew: the colours changed."""
        self._layout.forget()
        self.refresh(layout=True)

    def toggle_fold(self) -> None:
        """Fold or unfold the thoughts, or a long question."""
        self._layout.unfolded = not self._layout.unfolded
        self.lay_out_again()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """Return the number of lines; lays the message out if that was not done for this width."""
        self._fit(width)
        return len(self._layout.strips)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of a region; what was drawn before, and like this, is not drawn again."""
        self._style = self.rich_style  # walks up the tree: once for all lines
        self._fit(self.size.width)  # may forget what was drawn
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
        self._fit(width)
        if y >= len(self._layout.strips):
            return Strip.blank(width, style)
        strip = self._layout.strips[y]
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
        """Return the text that is selected, without the frames of code."""
        return selection.extract("\n".join(map(_text, self._layout.strips))), "\n"

    def selection_updated(self, selection: Selection | None) -> None:  # noqa: ARG002 - Textual's signature
        """Show another selection."""
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Fold it, or tell that it was clicked on, or what copies a block of code."""
        event.stop()
        meta = self._meta_at(event.get_content_offset(self))
        if CODE in meta:
            self.post_message(self.CodeChosen(meta[CODE]))
        elif FOLD in meta:
            self.toggle_fold()
        else:
            self.post_message(self.Chosen(self))

    def _meta_at(self, at: Offset | None) -> dict[str, Any]:
        """Return what is known of the text at a place."""
        if at is None or at.y >= len(self._layout.strips):
            return {}
        segments = list(self._layout.strips[at.y].crop(at.x, at.x + 1))
        style = segments[0].style if segments else None
        return {} if style is None else style.meta

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

    def _fit(self, width: int) -> None:
        # Not by margins: Textual would cut every line where the message ends, at every drawing.
        if self._layout.fit(min(max(width - _APART, 1), _WIDEST)):
            self._forget_drawn(0)

    def _forget_drawn(self, first: int) -> None:
        """Forget how the lines from one on were drawn."""
        self._drawn = {y: strip for y, strip in self._drawn.items() if y < first}


def _text(strip: Strip) -> str:
    """Return a line as it is copied."""
    parts = (
        " " * segment.cell_length if segment.style and FRAME in segment.style.meta else segment.text
        for segment in strip
    )
    return "".join(parts).rstrip()
