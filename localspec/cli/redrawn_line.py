"""RedrawnLine: one line of stderr that is drawn over again and again, and leaves nothing behind."""

import os
import sys

from localspec.display import columns_of, cut


class RedrawnLine:
    """Draws where stderr is a terminal that can, and nothing elsewhere.

    Args:
        enabled: False draws nothing at all.

    Attributes:
        drawn: whether it draws.
    """

    def __init__(self, *, enabled: bool) -> None:
        self.drawn = enabled and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def draw(self, text: str) -> None:
        """Draw a text, as much of it as there is room for: a line that wraps could not be drawn over."""
        if self.drawn:
            print(f"\r\x1b[K{cut(text, columns())}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Leave nothing behind."""
        self.draw("")


def columns() -> int:
    """Return how many cells a line may take; the last one is left free, since some terminals wrap there."""
    return columns_of(sys.stderr) - 1
