"""Markdown and code become strips of a given width. Everything is laid out here, so it is cleaned here."""

import io
from dataclasses import dataclass
from functools import lru_cache

from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip
from textual.theme import Theme

from localspec.ui.blocks import Block
from localspec.ui.clean import clean


def code_theme(theme: Theme, no_color: bool) -> str:
    """Return the pygments style of code that goes with the colours of the screen."""
    if theme.ansi or no_color:
        return "ansi_dark" if theme.dark else "ansi_light"
    return "monokai" if theme.dark else "default"


@dataclass(frozen=True, slots=True)
class Typesetter:
    """Lays text out.

    Args:
        console: knows colours and widths.
        code_theme: pygments style of code.
    """

    console: Console
    code_theme: str

    def markdown(self, text: str, width: int) -> list[Strip]:
        """Lay out a whole message, or a block of one."""
        # Imported late: the first frame has no Markdown, and its parser takes 40 ms.
        from localspec.ui.markdown import markdown  # noqa: PLC0415

        return self.strips(markdown(clean(text), self.code_theme), width)

    def block(self, block: Block, width: int) -> list[Strip]:
        """Lay out a piece of a message that is still growing."""
        if block.language is None:
            return self.markdown(block.text, width)
        from localspec.ui.markdown import code  # noqa: PLC0415

        return self.strips(code(clean(block.text), block.language, self.code_theme), width)

    def plain(self, text: str, width: int, style: str | Style = "") -> list[Strip]:
        """Lay out text as it is, wrapped."""
        return self.strips(Text(clean(text), style=style), width)

    def strips(self, renderable: RenderableType, width: int) -> list[Strip]:
        """Lay out anything that Rich can."""
        options = self.console.options.update(width=max(width, 1), height=None)
        lines = self.console.render_lines(renderable, options, pad=False)
        return [Strip([_on_any_ground(segment) for segment in line]) for line in lines]


def prepare() -> None:
    """Import what Markdown and code need, which the first frame did not wait for."""
    from localspec.ui.markdown import code, markdown  # noqa: PLC0415

    console = Console(file=io.StringIO(), width=20)
    console.print(markdown("*text*", "monokai"), code("x = 1", "python", "monokai"))


def _on_any_ground(segment: Segment) -> Segment:
    """Return a segment on the ground of its widget, where Rich put it on the terminal's own."""
    style = segment.style
    if style is None or style.bgcolor is None or not style.bgcolor.is_default:
        return segment
    return Segment(segment.text, _groundless(style), segment.control)


@lru_cache(1024)
def _groundless(style: Style) -> Style:
    return Style(
        color=style.color,
        bold=style.bold,
        dim=style.dim,
        italic=style.italic,
        underline=style.underline,
        strike=style.strike,
        reverse=style.reverse,
    )
