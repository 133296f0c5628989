"""MessageView: one message on the screen, as a widget: laid out once for a width, drawn, selected, clicked on, focused.

A finished message costs nothing until it is scrolled into sight. While it grows, only the block at its end is laid out
again. Lines are stored as they go to the terminal: where text scrolls, Textual fetches all that are in sight, and most
have not changed.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import Reactive
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from localspec.display import counted
from localspec.tui.composer import Composer
from localspec.tui.keys import ON_MESSAGE
from localspec.tui.message_text import MessageText
from localspec.tui.pictures import PICTURE
from localspec.tui.typeset import Block, BlockCutter, Typesetter

# Of a long question, so many lines stay at its beginning and at its end: what matters may stand behind a paste.
_FIRST_LINES, _LAST_LINES = 8, 4
# Keys in the meta of styles; the first two are set by `markdown`.
_FRAME, _CODE, _FOLD = "frame", "code", "fold"
_FOLDED = Style(dim=True, italic=True, meta={_FOLD: True})


class MessageLayout:
    """The lines of one message.

    Args:
        text: what they show.
        typesetter: returns what lays them out; another one after the colours changed.
        growing: whether more text is to come.

    Attributes:
        strips: the lines; none before `fit`.
        unfolded: whether thoughts, or a long question, are visible in full.
    """

    def __init__(
        self, text: MessageText, typesetter: Callable[[], Typesetter], *, growing: bool
    ) -> None:
        self.text = text
        self.strips: list[Strip] = []
        self.unfolded = False
        self._typesetter = typesetter
        self._cutter = BlockCutter() if growing else None
        if self._cutter is not None:
            self._cutter.feed(text.text)
        self._settled = self._blocks = self._width = 0

    @property
    def growing(self) -> bool:
        """Whether more text is to come."""
        return self._cutter is not None

    def fit(self, width: int) -> bool:
        """Lay the message out for a width; return whether that was not done before."""
        if width == self._width:
            return False
        self._width, typesetter, text = width, self._typesetter(), self.text
        self.strips = self._head(typesetter)
        self._settled, self._blocks = len(self.strips), 0
        if self._cutter is not None:
            self._extend(self._cutter)
            return True
        if text.kind == "reply":
            self.strips += typesetter.markdown(text.text, width) if text.text else []
        else:
            self.strips += self._question(typesetter)
        self.strips += self._foot(typesetter)
        return True

    def grow(self, text: MessageText) -> int:
        """Show more: the text begins with what is there already. Return the first line that is another now."""
        assert self._cutter is not None  # noqa: S101 - only a growing one grows
        before, self.text = self.text, text
        self._cutter.feed(text.text[len(before.text) :])
        if not self._width:
            return 0
        if (text.heading, text.thoughts) != (before.heading, before.thoughts):
            width, self._width = self._width, 0
            self.fit(width)
            return 0
        settled = self._settled
        self._extend(self._cutter)
        return settled

    def settle(self, text: MessageText) -> None:
        """Show what the message has become; nothing more will come."""
        self.text, self._cutter = text, None
        self.forget()

    def forget(self) -> None:
        """Have `fit` lay everything out again: the colours changed, or what is folded."""
        self._width = 0

    def _head(self, typesetter: Typesetter) -> list[Strip]:
        text, width = self.text, self._width
        lines = typesetter.heading(text.heading, text.kind, width)
        if text.thoughts:
            mark = "▾" if self.unfolded else "▸"
            title = f"{mark} thoughts, {counted(len(text.thoughts.split()), 'word')}"
            lines += typesetter.plain(title, width, _FOLDED)
        if text.thoughts and self.unfolded:
            lines += typesetter.plain(f"{text.thoughts}\n", width, "dim")
        return lines

    def _question(self, typesetter: Typesetter) -> list[Strip]:
        """Lay out a question; of a long one, only the beginning and the end until it is unfolded."""
        lines, most = self.text.text.split("\n"), _FIRST_LINES + _LAST_LINES
        folds = len(lines) > most + 1 and not self.unfolded
        ends = [*lines[:_FIRST_LINES], *lines[-_LAST_LINES:]] if folds else lines
        strips = typesetter.plain("\n".join(ends), self._width)
        hidden = (len(lines) if folds else len(strips)) - most  # one of few lines may be long
        if hidden <= 1 or self.unfolded:
            return strips
        more = typesetter.plain(f"▸ {hidden} more lines", self._width, _FOLDED)
        return strips[:_FIRST_LINES] + more + strips[-_LAST_LINES:]

    def _foot(self, typesetter: Typesetter) -> list[Strip]:
        lines = [
            line
            for part, about in self.text.media
            for line in typesetter.attachment(part, f"+ {about}", self._width)
        ]
        note = self.text.note
        return [*lines, *(typesetter.plain(note, self._width, "dim") if note else [])]

    def _extend(self, cutter: BlockCutter) -> None:
        """Lay out the blocks that are done since, and the one that is not."""
        typesetter = self._typesetter()
        del self.strips[self._settled :]
        before = cutter.done[self._blocks - 1] if self._blocks else None
        for block in cutter.done[self._blocks :]:
            self.strips += self._block(typesetter, before, block)
            before = block
        self._blocks, self._settled = len(cutter.done), len(self.strips)
        if cutter.open.is_visible:
            self.strips += self._block(typesetter, before, cutter.open)
            before = cutter.open
        self.strips += self._edge(typesetter, before) + self._foot(typesetter)

    def _block(self, typesetter: Typesetter, before: Block | None, block: Block) -> list[Strip]:
        strips = typesetter.block(block, self._width)
        if before is None or block.goes_on:
            return strips
        return [*self._edge(typesetter, before), Strip.blank(self._width), *strips]

    def _edge(self, typesetter: Typesetter, before: Block | None) -> list[Strip]:
        """End the frame of code that does not go on."""
        is_code = before is not None and before.info is not None
        return typesetter.edge(self._width) if is_code else []


# Longer lines are hard to read.
_WIDEST = 108
# Columns between text and the scroll bar.
_APART = 1


class MessageView(Widget, can_focus=True):
    """One message; its keys are those of `keys.ON_MESSAGE`.

    Args:
        text: what it shows.
        typesetter: returns what lays it out; another one after the colours changed.
        message_id: of the message in the history; None until it has one.
        growing: whether more text is to come.

    Attributes:
        copied: how many times its key copied a block of code, the last one first.
    """

    BINDINGS: ClassVar[list[BindingType]] = ON_MESSAGE
    FOCUS_ON_CLICK = False  # who gets `Clicked` decides
    # As Textual has it, but without having the screen laid out and drawn a second time for every new line.
    virtual_size: Reactive[Size] = Reactive(Size(0, 0), repaint=False)

    class Clicked(Message):
        """The user clicked on the message, or on what copies the code of a block."""

        def __init__(self, view: "MessageView", code: str | None) -> None:
            self.view, self.code = view, code
            super().__init__()

    def __init__(
        self,
        text: MessageText,
        typesetter: Callable[[], Typesetter],
        message_id: int | None = None,
        *,
        growing: bool = False,
    ) -> None:
        super().__init__(classes=text.kind)
        self.message_id = message_id
        self.copied = 0
        self.laid_out = MessageLayout(text, typesetter, growing=growing)
        self._drawn: dict[int, Strip] = {}
        self._drawn_like: tuple[object, ...] = ()
        self._style = Style()

    @property
    def text(self) -> MessageText:
        """What it shows."""
        return self.laid_out.text

    def grow(self, text: MessageText) -> int:
        """Show more: the text begins with what is there already. Return how many lines it got more."""
        before = len(self.laid_out.strips)
        first = self.laid_out.grow(text)
        if not before:
            return 0  # not laid out yet
        self._forget_drawn(first)
        after = len(self.laid_out.strips)
        changed = Region(0, first, self.size.width, max(before, after) - first)
        self.refresh(changed, layout=after != before)
        return after - before

    def settle(self, text: MessageText, message_id: int | None) -> None:
        """Show what the message has become; nothing more will come."""
        self.message_id = message_id
        self.laid_out.settle(text)
        self.refresh(layout=True)

    def lay_out_again(self) -> None:
        """Lay it out again: the colours changed, or what is folded."""
        self.laid_out.forget()
        self.refresh(layout=True)

    def toggle_fold(self) -> None:
        """Fold or unfold the thoughts, or a long question."""
        self.laid_out.unfolded = not self.laid_out.unfolded
        self.lay_out_again()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """Return the number of lines; lays the message out if that was not done for this width."""
        self._fit(width)
        return len(self.laid_out.strips)

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
        if y >= len(self.laid_out.strips):
            return Strip.blank(width, style)
        strip = self.laid_out.strips[y]
        span = None if self.text_selection is None else self.text_selection.get_span(y)
        if span is not None:
            selected = Style.from_color(None, None) + self.screen.get_component_rich_style(
                "screen--selection"
            )
            end = strip.cell_length if span[1] == -1 else span[1]
            parts = list(strip.divide([span[0], end, strip.cell_length]))
            parts[1:2] = [part.apply_style(selected) for part in parts[1:2]]
            strip = Strip.join(parts)
        return strip.adjust_cell_length(width).apply_style(style).apply_offsets(0, y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the text that is selected, without the frames of code."""
        return selection.extract("\n".join(map(_text, self.laid_out.strips))), "\n"

    def selection_updated(self, selection: Selection | None) -> None:  # noqa: ARG002 - Textual's signature
        """Show another selection."""
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Fold it, or report that it was clicked on, and what copies a block of code there."""
        event.stop()
        meta = self._meta_at(event)
        if _FOLD in meta:
            self.toggle_fold()
        else:
            self.post_message(self.Clicked(self, meta.get(_CODE)))

    def _meta_at(self, event: events.Click) -> dict[str, Any]:
        """Return the meta of the text at a place."""
        at = event.get_content_offset(self)
        if at is None or at.y >= len(self.laid_out.strips):
            return {}
        segments = list(self.laid_out.strips[at.y].crop(at.x, at.x + 1))
        style = segments[0].style if segments else None
        return {} if style is None else style.meta

    def on_key(self, event: events.Key) -> None:
        """Hand on what is typed and no command of a message, also if the focus went on in the meantime."""
        bound = self.has_focus and event.key in self.screen.active_bindings
        if event.character is not None and event.is_printable and not bound:
            event.stop()
            # At once, without a message: the next key may be on its way here already.
            self.screen.query_one(Composer).type(event.character)

    def on_paste(self, event: events.Paste) -> None:
        """Hand on what is pasted."""
        event.stop()
        self.screen.query_one(Composer).paste(event.text)

    def _fit(self, width: int) -> None:
        # Not by margins: Textual would cut every line where the message ends, at every drawing.
        if self.laid_out.fit(min(max(width - _APART, 1), _WIDEST)):
            self._forget_drawn(0)

    def _forget_drawn(self, first: int) -> None:
        """Forget how the lines from one on were drawn."""
        self._drawn = {y: strip for y, strip in self._drawn.items() if y < first}


def _text(strip: Strip) -> str:
    """Return a line as it is copied: without frames and pictures."""
    parts = (
        " " * segment.cell_length
        if segment.style and (_FRAME in segment.style.meta or PICTURE in segment.style.meta)
        else segment.text
        for segment in strip
    )
    return "".join(parts).rstrip()
