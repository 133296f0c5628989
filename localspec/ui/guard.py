"""LineGuard: the last gate before the terminal. No widget's text leaves with a control character."""

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from localspec.display import clean


class LineGuard(LineFilter):
    """Replaces what a terminal would obey, in every line of every widget.

    Links are taken off, too: a terminal opens them, and their addresses come from a model.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002
        """Return the segments as they may be written."""
        return [_guarded(segment) for segment in segments]


def _guarded(segment: Segment) -> Segment:
    text, style, control = segment
    if style is not None and style.link:
        segment = Segment(text, style.update_link(None), control)
    if control is not None or text.isprintable():
        return segment
    cleaned = clean(text).replace("\n", " ")
    return segment if cleaned == text else Segment(cleaned, segment.style)
