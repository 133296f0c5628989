"""Markdown and code become strips of a given width. Everything is laid out here, so it is cleaned here."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from rich.console import Console, RenderableType
from rich.segment import Segment, Segments
from rich.style import Style
from rich.text import Text
from textual.color import Color
from textual.strip import Strip
from textual.theme import Theme

from localspec.display import clean
from localspec.tui.blocks import Block


def code_theme(theme: Theme, no_color: bool) -> str:
    """Return the pygments style of code that goes with the colours of the screen."""
    if theme.ansi or no_color:
        return "ansi_dark" if theme.dark else "ansi_light"
    return "monokai" if theme.dark else "default"


def speaker_styles(variables: Mapping[str, str]) -> Mapping[str, Style]:
    """Return how names of speakers look, by the kind of their message.

    Args:
        variables: colours of a theme, by name.
    """
    colours = {
        "question": "text-accent",
        "reply": "text-primary",
        "result": "text-secondary",
        "greeting": "text-primary",
    }
    return {
        kind: Style(bold=True, color=Color.parse(variables[name]).rich_color)
        for kind, name in colours.items()
    }


@dataclass(frozen=True, slots=True)
class Typesetter:
    """Lays text out.

    Args:
        console: knows colours and widths.
        code_theme: pygments style of code.
        speakers: how names look, by kind of message; bold where it is not said.
    """

    console: Console
    code_theme: str
    speakers: Mapping[str, Style] = field(default_factory=dict)

    def markdown(self, text: str, width: int) -> list[Strip]:
        """Lay out a whole message, or a block of one."""
        # Imported late: the greeting has no Markdown, and its parser takes 40 ms.
        from localspec.tui.markdown import markdown  # noqa: PLC0415

        return self.strips(markdown(clean(text), self.code_theme), width)

    def block(self, block: Block, width: int) -> list[Strip]:
        """Lay out a piece of a message that is still growing; `edge` ends the frame of code."""
        if block.language is None:
            return self.markdown(block.text, width)
        from localspec.tui.markdown import Code  # noqa: PLC0415

        begins, text = not block.goes_on, clean(block.text)
        code = Code(text, clean(block.language), self.code_theme, begins=begins, ends=False)
        return self.strips(code, width)

    def edge(self, width: int) -> list[Strip]:
        """Lay out the end of the frame of code."""
        from localspec.tui.markdown import foot  # noqa: PLC0415

        return self.strips(Segments(foot(width)), width)

    def heading(self, text: str, kind: str, width: int) -> list[Strip]:
        """Lay out who speaks, and with less weight what else stands there."""
        name, dot, rest = clean(text).partition(" · ")
        speaker = self.speakers.get(kind, Style(bold=True))
        return self.strips(Text.assemble((name, speaker), (dot + rest, "dim")), width)

    def keys(self, text: str, width: int) -> list[Strip]:
        """Lay out lines that begin with a key and two blanks at least; a line without stays as it is."""
        lines = []
        for line in clean(text).split("\n"):
            key, gap, rest = line.partition("  ")
            style = self.speakers.get("question", Style(bold=True)) if gap else ""
            lines.append(Text.assemble((key, style), gap + rest))
        return self.strips(Text("\n").join(lines), width)

    def plain(self, text: str, width: int, style: str | Style = "") -> list[Strip]:
        """Lay out text as it is, wrapped."""
        return self.strips(Text(clean(text), style=style), width)

    def strips(self, renderable: RenderableType, width: int) -> list[Strip]:
        """Lay out anything that Rich can."""
        options = self.console.options.update(width=max(width, 1), height=None)
        lines = self.console.render_lines(renderable, options, pad=False)
        return [Strip([_on_any_ground(segment) for segment in line]) for line in lines]


def prepare() -> None:
    """Import what Markdown and code need, which the start does not wait for."""
    from localspec.tui.markdown import Code, markdown  # noqa: PLC0415

    console = Console(file=io.StringIO(), width=20)
    console.print(markdown("*text*", "monokai"), Code("x = 1", "python", "monokai"))


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
