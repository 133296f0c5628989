"""Text whose lines keep their indentation where they wrap, as code needs it."""

from textual.content import Content
from textual.widgets import Static

# A line that is indented by more than this share of the width would have no room left.
_MOST = 0.5


def hanging(text: Content, width: int) -> Content:
    """Return a text broken at words into lines of a width; what goes on is indented like the line that it belongs to."""
    lines: list[Content] = []
    for line in text.split("\n", allow_blank=True):
        indent = len(line.plain) - len(line.plain.lstrip(" "))
        if line.cell_length <= width or indent > width * _MOST:
            lines += line.wrap(width) if line.cell_length > width else [line]
        else:
            blanks = line[:indent]
            lines += [blanks + each for each in line[indent:].wrap(width - indent)]
    return Content("\n").join(lines)


class Hanging(Static):
    """Shows such a text."""

    def __init__(self, text: Content | str = "", *, classes: str | None = None) -> None:
        super().__init__(markup=False, classes=classes)
        self._text = Content(text) if isinstance(text, str) else text
        self._width = 0

    def show(self, text: Content) -> None:
        """Show another one."""
        self._text = text
        self._wrap()

    def on_resize(self) -> None:
        """Wrap it for another width."""
        if self.content_size.width != self._width:
            self._wrap()

    def _wrap(self) -> None:
        self._width = self.content_size.width
        self.update(hanging(self._text, self._width) if self._width else self._text)
