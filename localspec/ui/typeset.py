"""Markdown and code become strips of a given width. Everything is laid out here, so it is cleaned here."""

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import CodeBlock, Markdown
from rich.padding import Padding
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text
from textual.strip import Strip

from localspec.ui.blocks import Block
from localspec.ui.clean import clean

_CODE_INDENT = 2


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
        return self.strips(_Markdown(clean(text), self.code_theme, hyperlinks=False), width)

    def block(self, block: Block, width: int) -> list[Strip]:
        """Lay out a piece of a message that is still growing."""
        if block.language is None:
            return self.markdown(block.text, width)
        return self.strips(_code(clean(block.text), block.language, self.code_theme), width)

    def plain(self, text: str, width: int, style: str | Style = "") -> list[Strip]:
        """Lay out text as it is, wrapped."""
        return self.strips(Text(clean(text), style=style), width)

    def strips(self, renderable: RenderableType, width: int) -> list[Strip]:
        """Lay out anything that Rich can."""
        options = self.console.options.update(width=max(width, 1), height=None)
        lines = self.console.render_lines(renderable, options, pad=False)
        return [Strip(line) for line in lines]


def _code(text: str, language: str, theme: str) -> Padding:
    syntax = Syntax(
        text, language or "text", theme=theme, word_wrap=True, background_color="default"
    )
    return Padding(syntax, (0, 0, 0, _CODE_INDENT))


class _Fence(CodeBlock):
    """Code, set in a little instead of on a ground of its own: the ground is the theme's."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield _code(str(self.text).rstrip(), self.lexer_name, str(self.theme))


class _Markdown(Markdown):
    elements = {**Markdown.elements, "fence": _Fence, "code_block": _Fence}  # noqa: RUF012
