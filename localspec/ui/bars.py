"""The narrow parts of the main screen: figures, news, what lies below, and the stats."""

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from localspec.display import clean_line, shortened
from localspec.ui.colours import Line, content_of, keys_of
from localspec.ui.engine_state import STARTING
from localspec.ui.figures import FREE, FULL

_GAP = "  "
# With less of it, nobody would know what it says.
_LEAST_LEFT = 8


def fitted(left: Sequence[str], right: Sequence[str], width: int) -> str:
    """Return a line of a width.

    Args:
        left: begins it: forms of one thing, the longest first, of which the first is taken beside which any form of
            the other fits.
        right: ends it, likewise: the first that fits beside it.
        width: in cells.
    """
    for form in left:
        room = width - cell_len(form) - len(_GAP)
        figures = next((each for each in right if cell_len(each) <= room), None)
        if figures is not None:
            return form + " " * (width - cell_len(form) - cell_len(figures)) + figures
    least = min(cell_len(left[-1]), _LEAST_LEFT) + len(_GAP)
    figures = right[-1] if right and least + cell_len(right[-1]) <= width else ""
    room = width - cell_len(figures) - (len(_GAP) if figures else 0)
    form = shortened(left[0] if not figures else left[-1], room)
    return form + " " * max(width - cell_len(form) - cell_len(figures), 0) + figures


class StatusLine(Static):
    """State to the left, figures to the right, in a form that fits."""

    def __init__(self) -> None:
        super().__init__(id="status", markup=False)
        self._left: tuple[str, ...] = (STARTING,)
        self._right: tuple[str, ...] = ()

    def tell(self, left: Sequence[str], right: Sequence[str]) -> None:
        """Show forms of the state and of the figures; nothing is drawn where nothing changed."""
        if (tuple(left), tuple(right)) != (self._left, self._right):
            self._left, self._right = tuple(left), tuple(right)
            self.refresh()

    def render(self) -> Content:
        """Return the line for the width that there is."""
        line = fitted(self._left, self._right, self.content_size.width)
        bar = next((at for at, each in enumerate(line) if each in FULL + FREE), len(line))
        return Content(line).stylize("$text-muted", bar)


class Notice(Static):
    """News, of which there is room for a few lines; errors among them."""

    def __init__(self) -> None:
        super().__init__(id="notice", markup=False)
        self.display = False

    def tell(self, text: str) -> None:
        """Show it until the next; an empty text takes it away."""
        self.update(clean_line(text))
        self.display = bool(text)


class Below(Static):
    """Says that the transcript goes on below, and how to get there."""

    def __init__(self) -> None:
        super().__init__("↓ more below, Ctrl+End goes there", id="below", markup=False)
        self.display = False

    def on_click(self) -> None:
        """Go there."""
        self.app.simulate_key("ctrl+end")


class KeyHint(Static):
    """The keys of the message that has the focus."""

    def __init__(self) -> None:
        super().__init__(id="keys", markup=False)
        self.display = False
        self._keys = ""

    def tell(self, text: str) -> None:
        """Show them, as far as there is room; an empty text takes the line away."""
        self._keys, self.display = text, bool(text)
        self.refresh()

    def render(self) -> Content:
        """Return the line for the width that there is."""
        return keys_of(shortened(self._keys, self.content_size.width))


class StatsPanel(VerticalScroll, can_focus=False):
    """What drafting does, as it does it; beside the conversation where there is room, else below it."""

    def __init__(self) -> None:
        self._text = Static(markup=False)
        super().__init__(self._text, id="stats")
        self.display = False
        self._lines: Callable[[int], Sequence[Line]] = lambda _: ()
        self._width = 0

    def tell(self, lines: Callable[[int], Sequence[Line]]) -> None:
        """Show the lines that are made for its width."""
        self._lines, self._width = lines, self.scrollable_content_region.width
        self._text.update(content_of(lines(self._width)))

    def on_resize(self) -> None:
        """Make them for another width."""
        if self.scrollable_content_region.width != self._width:
            self.tell(self._lines)
