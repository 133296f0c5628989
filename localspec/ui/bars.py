"""The narrow parts of the main screen: figures, news, what lies below, and the stats."""

from collections.abc import Callable, Sequence

from rich.cells import cell_len, set_cell_size
from textual.content import Content
from textual.widgets import Static

from localspec.ui.clean import clean, clean_line

_GAP = "  "


def fitted(left: str, right: Sequence[str], width: int) -> str:
    """Return what fits into a line: all that is wanted most, `left` cut if even that is too long."""
    parts = list(right)
    while parts and cell_len(left) + len(_GAP) + cell_len(" · ".join(parts)) > width:
        parts.pop()
    figures = " · ".join(parts)
    room = width - cell_len(figures) - (len(_GAP) if figures else 0)
    if cell_len(left) > room:
        left = set_cell_size(left, max(room - 1, 0)) + "…"
    return left + " " * max(width - cell_len(left) - cell_len(figures), 0) + figures


class StatusLine(Static):
    """State to the left, figures to the right; what does not fit is left out, the least wanted first."""

    def __init__(self) -> None:
        super().__init__(id="status", markup=False)
        self._left = ""
        self._right: tuple[str, ...] = ()

    def tell(self, left: str, right: Sequence[str]) -> None:
        """Show state and figures; nothing is drawn where nothing changed."""
        if (left, tuple(right)) != (self._left, self._right):
            self._left, self._right = left, tuple(right)
            self.refresh()

    def render(self) -> Content:
        """Return the line for the width that there is."""
        return Content(fitted(self._left, self._right, self.content_size.width))


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

    def tell(self, text: str) -> None:
        """Show them; an empty text takes the line away."""
        self.update(text)
        self.display = bool(text)


class StatsPanel(Static):
    """What drafting does, as it does it."""

    def __init__(self) -> None:
        super().__init__(id="stats", markup=False)
        self.display = False
        self._lines: Callable[[int], Sequence[str]] = lambda _: ()

    def tell(self, lines: Callable[[int], Sequence[str]]) -> None:
        """Show the lines that are made for its width."""
        self._lines = lines
        self.update("\n".join(clean(each) for each in lines(self.content_size.width)))

    def on_resize(self) -> None:
        """Make them for another width."""
        self.tell(self._lines)
