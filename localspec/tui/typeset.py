"""Typeset: text becomes strips of a given width. Everything is laid out here, so it is cleaned here.

Markdown that still grows is cut into blocks: one that is done need not be laid out again while the rest streams in. Long
code is cut inside its fence, too. A finished message is laid out whole.
"""

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import zip_longest

from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.color import Color
from textual.strip import Strip
from textual.theme import Theme

from localspec.display import OpenFences, clean
from localspec.messages import MediaPart
from localspec.tui.pictures import picture_strips

# What belongs to the block before it although an empty line lies between: list items, and what is indented.
_GOES_ON = re.compile(r"\s+\S|([-*+]|\d{1,9}[.)])\s")
_CODE_LINES = 8
_PICTURE_ROWS = 8
_GAP = Strip.blank(2)
_LEAST_BESIDE = 20
"""Columns that a line about a picture takes beside it, at least."""


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a message: Markdown, or lines of code.

    Args:
        text: of the piece.
        info: what stands behind the opening fence of code, such as a language; None for Markdown.
        goes_on: whether it belongs right below the piece before.
    """

    text: str
    info: str | None = None
    goes_on: bool = False

    @property
    def is_visible(self) -> bool:
        """Whether there is anything to draw: text, or what stands behind an opening fence."""
        return bool(self.text.strip() or (self.info and not self.goes_on))


class BlockCutter:
    """Takes text as it grows; `done` are blocks that will not change, `open` is the rest."""

    def __init__(self) -> None:
        self.done: list[Block] = []
        self._lines: list[str] = []
        self._partial = ""
        self._fences = OpenFences()
        self._indent = 0
        self._info: str | None = None
        self._goes_on = False

    @property
    def open(self) -> Block:
        """What may still change."""
        partial = self._unindented(self._partial)
        return Block("\n".join([*self._lines, partial]), self._info, self._goes_on)

    def feed(self, text: str) -> None:
        """Take the next text."""
        *lines, self._partial = (self._partial + clean(text)).split("\n")
        for line in lines:
            self._take(line)

    def _take(self, line: str) -> None:
        if self._fences:
            if self._fences.take(line):
                self._finish()
            else:
                self._lines.append(self._unindented(line))
                if len(self._lines) >= _CODE_LINES:
                    self._finish(self._info)
            return
        if self._begins_code(line) and self._fences.take(line):
            fence = self._fences.outer
            self._finish(fence and fence.info)
            self._indent = len(line) - len(line.lstrip(" "))
            return
        after_blank = bool(self._lines) and not self._lines[-1].strip()
        if after_blank and line.strip() and not _GOES_ON.match(line):
            self._finish()
        self._lines.append(line)

    def _begins_code(self, line: str) -> bool:
        """Return whether a line is the opening fence of a block that stands in no list."""
        if not OpenFences().take(line):
            return False
        # Imported late, as below.
        from localspec.markup import parsed  # noqa: PLC0415

        tokens = parsed("\n".join([*self._lines, line]))
        last = tokens[-1]
        return last.type == "fence" and last.map == [len(self._lines), len(self._lines) + 1]

    def _unindented(self, line: str) -> str:
        """Return a line of code without the indentation of its opening fence."""
        if self._info is None:
            return line
        return line[min(self._indent, len(line) - len(line.lstrip(" "))) :]

    def _finish(self, info: str | None = None) -> None:
        """End a block; what follows is code behind an opening fence, or Markdown."""
        block, self._lines = Block("\n".join(self._lines), self._info, self._goes_on), []
        if block.is_visible:
            self.done.append(block)
        in_code = self._info is not None and info is not None
        self._goes_on = in_code and (self._goes_on or block.is_visible)
        self._info = info


def code_theme(theme: Theme, no_color: bool) -> str:
    """Return the pygments style of code that goes with the colours of the screen."""
    if theme.ansi or no_color:
        return "ansi_dark" if theme.dark else "ansi_light"
    return "monokai" if theme.dark else "default"


_SPEAKERS = {"question": "accent", "reply": "primary", "result": "secondary"}


def speaker_styles(variables: Mapping[str, str]) -> Mapping[str, Style]:
    """Return how names of speakers look, by the kind of their message; `variables` are colours of a theme, by name."""
    return {
        kind: Style(bold=True, color=Color.parse(variables[f"text-{name}"]).rich_color)
        for kind, name in _SPEAKERS.items()
    }


@dataclass(frozen=True, slots=True)
class Typesetter:
    """Lays text out.

    Args:
        console: knows colours and widths.
        code_theme: pygments style of code.
        speakers: how names look, by kind of message; the others are bold.
        pictures: whether pictures are drawn, for which there must be colours.
    """

    console: Console
    code_theme: str
    speakers: Mapping[str, Style] = field(default_factory=dict)
    pictures: bool = True

    def markdown(self, text: str, width: int) -> list[Strip]:
        """Lay out a whole message, or a block of one."""
        # Imported late: the greeting has no Markdown, and its parser takes 40 ms.
        from localspec.tui.markdown import markdown  # noqa: PLC0415

        return self.strips(markdown(clean(text), self.code_theme), width)

    def block(self, block: Block, width: int) -> list[Strip]:
        """Lay out a piece of a message that is still growing; `edge` ends the frame of code."""
        if block.info is None:
            return self.markdown(block.text, width)
        code = self._code(block.text, block.info, width, label=not block.goes_on)
        return code[block.goes_on : -1] if len(self.edge(width)) else code

    def edge(self, width: int) -> list[Strip]:
        """Lay out the end of the frame of code; none where there is no room for a frame."""
        frame = self._code("", "", width)
        return frame[-1:] if len(frame) > 1 else []

    def _code(self, text: str, info: str, width: int, *, label: bool = True) -> list[Strip]:
        from localspec.tui.markdown import code  # noqa: PLC0415 - as above

        made = code(
            clean(text), clean(info), self.code_theme, self.console, width, whole=False, label=label
        )
        return self.strips(made, width)

    def heading(self, text: str, kind: str, width: int) -> list[Strip]:
        """Lay out who speaks, and with less weight what else stands there."""
        name, dot, rest = clean(text).partition(" · ")
        speaker = self.speakers.get(kind, Style(bold=True))
        return self.strips(Text.assemble((name, speaker), (dot + rest, "dim")), width)

    def plain(self, text: str, width: int, style: str | Style = "") -> list[Strip]:
        """Lay out text as it is, wrapped."""
        return self.strips(Text(clean(text), style=style), width)

    def attachment(
        self, part: MediaPart, about: str, width: int, rows: int = _PICTURE_ROWS
    ) -> list[Strip]:
        """Lay out what goes with a message: a line about it, and to the left of that a picture, or above it where there is no room."""
        columns = min(width, 4 * rows)
        drawn = self.pictures and part.kind == "image" and columns > 0
        picture = picture_strips(part.data, columns, rows) if drawn else ()
        taken = picture[0].cell_length + _GAP.cell_length if picture else 0
        if width - taken < _LEAST_BESIDE:
            return [*picture, *self.plain(about, width, "dim")]
        lines = self.plain(about, width - taken, "dim")
        if not picture:
            return lines
        blank = Strip.blank(picture[0].cell_length)
        rows_of_both = zip_longest(picture, lines, fillvalue=blank)
        return [Strip.join([left, _GAP, right]) for left, right in rows_of_both]

    def strips(self, renderable: RenderableType, width: int) -> list[Strip]:
        """Lay out anything that Rich can."""
        options = self.console.options.update(width=max(width, 1), height=None)
        lines = self.console.render_lines(renderable, options, pad=False)
        return [Strip([_on_any_ground(segment) for segment in line]) for line in lines]


def prepare() -> None:
    """Import what Markdown and code need, which the start does not wait for."""
    Typesetter(Console(file=io.StringIO()), "monokai").markdown("*text*\n```python\nx = 1\n```", 40)


def _on_any_ground(segment: Segment) -> Segment:
    return Segment(segment.text, segment.style and _groundless(segment.style), segment.control)


@lru_cache(1024)
def _groundless(style: Style) -> Style:
    """Return a style on the ground of the widget, where Rich put it on the terminal's own."""
    if style.bgcolor is None or not style.bgcolor.is_default:
        return style
    names = ("color", "bold", "dim", "italic", "underline", "strike", "reverse")
    return Style(**{name: getattr(style, name) for name in names})
