"""Transcript: the messages of a conversation; only the last ones are widgets until the user scrolls up to others.

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
from localspec.tui.message_text import MessageText
from localspec.tui.typeset import Typesetter

_MOUNTED = 30
_MORE = 15


@dataclass(frozen=True, slots=True)
class TranscriptItem:
    """A message of the transcript, and its id in the history."""

    id: int | None
    text: MessageText


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
        self._first = 0  # of those that are widgets; all after it are, too
        self._live: MessageView | None = None
        self._fetching = False

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
        return max(self.scroll_y, 0) >= self.max_scroll_y - 1

    async def show(self, items: Sequence[TranscriptItem]) -> None:
        """Show these messages, the last ones in sight; what is there already stays."""
        if self._live is not None:
            await self._live.remove()
            self._live = None
            del self._items[-1]
        before, self._items = self._items, list(items)
        if before and before == self._items[: len(before)]:
            await self.mount_all(self._view(each) for each in self._items[len(before) :])
            await self._trim()
        else:
            await self._show_from(max(len(self._items) - _MOUNTED, 0))
        self.anchor()

    def show_changes(self, items: Sequence[TranscriptItem]) -> None:
        """Show what lines of the same messages say now."""
        for at, item in enumerate(items[: len(self._items)]):
            if item.id == self._items[at].id and item.id is not None:
                self._items[at] = item
                if at >= self._first and self.views[at - self._first].text != item.text:
                    self.views[at - self._first].settle(item.text, item.id)

    async def reveal(self, message_id: int) -> None:
        """Give the focus to a message, mounted if it was not."""
        at = next((at for at, each in enumerate(self._items) if each.id == message_id), None)
        if at is None:
            return
        if at < self._first:
            await self._show_from(max(at - _MORE, 0))
        self.views[at - self._first].focus()

    async def begin(self, text: MessageText) -> None:
        """Add a message that grows at the end."""
        self._live = MessageView(text, self._typesetter, growing=True)
        self._items.append(TranscriptItem(None, text))
        await self.mount(self._live)
        self.to_end()

    def grow(self, text: MessageText) -> None:
        """Show more of the message that grows."""
        if self._live is None:
            return
        followed = self.follows
        lines = self._live.grow(text)
        if lines and followed and self.show_vertical_scrollbar:
            self._make_room(lines)

    def _make_room(self, lines: int) -> None:
        """Be as high already as the next layout will be: set only then, the scroll bar would be drawn after all else, alone."""
        size = Size(self.virtual_size.width, self.virtual_size.height + lines)
        self.set_reactive(Widget.virtual_size, size)
        self.set_reactive(Widget.scroll_y, float(self.max_scroll_y))
        self.vertical_scrollbar.window_virtual_size = size.height

    def settle(self, item: TranscriptItem) -> None:
        """Show what the growing message has become."""
        if self._live is not None:
            self._live.settle(item.text, item.id)
            self._items[-1] = item
            self._live = None

    def to_end(self) -> None:
        """Show the end and follow it again."""
        self.anchor()
        self.call_after_refresh(self._trim)

    def toggle_folds(self) -> None:
        """Unfold thoughts and long questions, or fold them if any is unfolded."""
        unfold = not any(view.laid_out.unfolded for view in self.views)
        for view in self.views:
            if view.laid_out.unfolded != unfold:
                view.toggle_fold()

    def lay_out_again(self) -> None:
        """Lay everything out again."""
        for view in self.views:
            view.lay_out_again()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return ground, and nothing else: it is fetched for behind all lines whenever text scrolls."""
        ground = Strip.blank(crop.width, self.visual_style.rich_style)
        for gate in self.get_line_filters():
            ground = ground.apply_filter(gate, self.background_colors[1])
        return [ground] * crop.height

    async def _show_from(self, first: int) -> None:
        self._first = first
        async with self.batch():
            await self.remove_children()
            await self.mount_all(self._view(each) for each in self._items[first:])

    async def _trim(self) -> None:
        """Take away the first widgets where the end is in sight and there are many."""
        surplus = len(self._items) - self._first - _MOUNTED - _MORE
        if surplus > 0 and self.follows:
            self._first += surplus
            await self.remove_children(self.views[:surplus])

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Fetch more messages where the user comes to the first of those that are there."""
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Followed())
        near = new_value < min(self.size.height, round(old_value))
        if near and self._first > 0 and not self._fetching:
            self._fetching = True
            self.call_next(self._fetch_earlier)

    async def _fetch_earlier(self) -> None:
        start, before, place = max(self._first - _MORE, 0), self.virtual_size.height, self.scroll_y
        new = [self._view(each) for each in self._items[start : self._first]]
        self._first = start
        await self.mount_all(new, before=0)
        self.call_after_refresh(self._stay, before, place)

    def _stay(self, height_before: int, place: float) -> None:
        self._fetching = False
        self.scroll_to(y=place + self.virtual_size.height - height_before, animate=False)

    def _view(self, item: TranscriptItem) -> MessageView:
        return MessageView(item.text, self._typesetter, item.id)
