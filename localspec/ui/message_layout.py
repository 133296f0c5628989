"""MessageLayout: the lines of one message at a width, while it grows and when it is done. No widget.

Laid out once for a width and kept as strips; while it grows, only the block at its end is laid out again.
"""

from collections.abc import Callable

from rich.style import Style
from textual.strip import Strip

from localspec.ui.blocks import FOLD, Block, BlockCutter
from localspec.ui.shown import Shown
from localspec.ui.typeset import Typesetter

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
