"""Transcript: the messages of a conversation; few of them are widgets at a time.

Follows the end while text streams in, until the user scrolls; then it stays where it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual.containers import VerticalScroll
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import Reactive
from textual.strip import Strip
from textual.widget import Widget

from localspec.tui.message import MessageView
from localspec.tui.shown import Shown
from localspec.tui.typeset import Typesetter

_MOUNTED = 30
_MORE = 15


@dataclass(frozen=True, slots=True)
class TranscriptItem:
    """A message to be shown, and its id in the history."""

    id: int | None
    shown: Shown


class Transcript(VerticalScroll, can_focus=False):
    """Shows messages.

    Args:
        typesetter: returns what lays them out.
    """

    # As Textual has it, but without having the screen laid out and drawn a second time for every new line.
    virtual_size: Reactive[Size] = Reactive(Size(0, 0), repaint=False)

    class Followed(Message):
        """It began, or ceased, to follow the end."""

    def __init__(self, typesetter: Callable[[], Typesetter]) -> None:
        super().__init__(id="transcript")
        self._typesetter = typesetter
        self._items: list[TranscriptItem] = []
        self._first = 0
        self._last = 0
        self._live: MessageView | None = None
        self._moving = False

    @property
    def views(self) -> list[MessageView]:
        """The messages that are widgets now."""
        return [each for each in self.children if isinstance(each, MessageView)]

    @property
    def has_growing(self) -> bool:
        """Whether a message is growing."""
        return self._live is not None

    @property
    def follows(self) -> bool:
        """Whether the end is in sight."""
        # Following a short conversation, Textual sets it down at the bottom: above 0, so to speak.
        return self._last == len(self._items) and max(self.scroll_y, 0) >= self.max_scroll_y - 1

    async def show(self, items: Sequence[TranscriptItem]) -> None:
        """Show these messages, the last ones in sight; what is there already stays."""
        if self._live is not None:
            await self._live.remove()
            self._live = None
            del self._items[-1]
            self._last = min(self._last, len(self._items))
        kept, self._items = self._items, list(items)
        if kept and kept == self._items[: len(kept)] and self._last == len(kept):
            self._last = len(self._items)
            await self.mount_all(self._view(each) for each in self._items[len(kept) :])
            await self._trim_top()
            self.anchor()
        else:
            await self._show_end()

    async def reveal(self, message_id: int) -> None:
        """Give the focus to a message, mounted if it was not."""
        at = next((at for at, each in enumerate(self._items) if each.id == message_id), None)
        if at is None:
            return
        if not self._first <= at < self._last:
            await self._show_upto(min(at + _MORE, len(self._items)))
        self.views[at - self._first].focus()

    async def begin(self, shown: Shown) -> None:
        """Add a message that grows at the end."""
        if self._last < len(self._items):
            await self._show_end()
        self._live = MessageView(shown, self._typesetter, growing=True)
        self._items.append(TranscriptItem(None, shown))
        self._last = len(self._items)
        await self.mount(self._live)
        self.to_end()

    def grow(self, shown: Shown) -> None:
        """Show more of the message that grows."""
        if self._live is None:
            return
        followed = self.follows
        lines = self._live.grow(shown)
        if lines and followed and self.show_vertical_scrollbar:
            self._make_room(lines)

    def _make_room(self, lines: int) -> None:
        """Be as high already as the next layout will say: told only then, the scroll bar would be drawn after all else, alone."""
        size = Size(self.virtual_size.width, self.virtual_size.height + lines)
        self.set_reactive(Widget.virtual_size, size)
        self.set_reactive(Widget.scroll_y, float(self.max_scroll_y))
        self.vertical_scrollbar.window_virtual_size = size.height

    def settle(self, item: TranscriptItem) -> None:
        """Show what the growing message has become."""
        if self._live is not None:
            self._live.settle(item.shown, item.id)
            self._items[-1] = item
            self._live = None

    def to_end(self) -> None:
        """Show the end and follow it again."""
        if self._last < len(self._items):
            self.call_next(self._show_end)
        self.anchor()

    def toggle_folds(self) -> None:
        """Unfold thoughts and long questions, or fold them if any is unfolded."""
        unfold = not any(view.unfolded for view in self.views)
        for view in self.views:
            if view.unfolded != unfold:
                view.toggle_fold()

    def lay_out_again(self) -> None:
        """Lay everything out anew."""
        for view in self.views:
            view.lay_out_again()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return ground, and nothing else: it is asked for behind all lines whenever text scrolls."""
        ground = Strip.blank(crop.width, self.visual_style.rich_style)
        for gate in self.get_line_filters():
            ground = ground.apply_filter(gate, self.background_colors[1])
        return [ground] * crop.height

    async def _show_end(self) -> None:
        await self._show_upto(len(self._items))
        self.anchor()

    async def _show_upto(self, last: int) -> None:
        self._first, self._last = max(last - _MOUNTED, 0), last
        async with self.batch():
            await self.remove_children()
            await self.mount_all(self._view(each) for each in self._items[self._first : last])

    async def _trim_top(self) -> None:
        surplus = self._last - self._first - _MOUNTED - _MORE
        if surplus > 0:
            await self.remove_children(self.views[:surplus])
            self._first += surplus

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Fetch more messages where the user comes to the end of those that are there."""
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Followed())
        if self._moving or round(old_value) == round(new_value):
            return
        if new_value < old_value and new_value < self.size.height and self._first > 0:
            self._moving = True
            self.call_next(self._fetch_earlier)
        elif (
            new_value > old_value
            and self._last < len(self._items)
            and new_value > self.max_scroll_y - self.size.height
        ):
            self._moving = True
            self.call_next(self._fetch_later)

    async def _fetch_earlier(self) -> None:
        start = max(self._first - _MORE, 0)
        new = [self._view(each) for each in self._items[start : self._first]]
        before = self.virtual_size.height
        kept = self.scroll_y
        await self.mount_all(new, before=0)
        self._first = start
        self.call_after_refresh(self._keep_place, before, kept)

    def _keep_place(self, height_before: int, kept: float) -> None:
        self.scroll_to(y=kept + self.virtual_size.height - height_before, animate=False)
        self.call_after_refresh(self._trim_bottom)

    async def _trim_bottom(self) -> None:
        surplus = self._last - self._first - _MOUNTED - _MORE
        if surplus > 0 and self._live is None:
            await self.remove_children(self.views[-surplus:])
            self._last -= surplus
        self._moving = False

    async def _fetch_later(self) -> None:
        end = min(self._last + _MORE, len(self._items))
        await self.mount_all([self._view(each) for each in self._items[self._last : end]])
        self._last = end
        surplus = self._last - self._first - _MOUNTED - _MORE
        if surplus > 0:
            gone = self.views[:surplus]
            height = sum(each.outer_size.height for each in gone) + len(gone)
            kept = self.scroll_y
            await self.remove_children(gone)
            self._first += surplus
            self.call_after_refresh(self.scroll_to, y=kept - height, animate=False)
        self._moving = False

    def _view(self, item: TranscriptItem) -> MessageView:
        return MessageView(item.shown, self._typesetter, item.id)
