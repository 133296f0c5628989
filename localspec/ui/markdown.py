"""Markdown and code as Rich lays them out, without links and without a ground of their own."""

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Markdown
from rich.padding import Padding
from rich.syntax import Syntax

_CODE_INDENT = 2


def markdown(text: str, theme: str) -> Markdown:
    """Return a message, ready to be laid out."""
    return _Message(text, theme, hyperlinks=False)


def code(text: str, language: str, theme: str) -> Padding:
    """Return lines of code, set in a little; their ground is that of the screen."""
    syntax = Syntax(
        text, language or "text", theme=theme, word_wrap=True, background_color="default"
    )
    return Padding(syntax, (0, 0, 0, _CODE_INDENT))


class _Fence(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield code(str(self.text).rstrip(), self.lexer_name, str(self.theme))


class _Message(Markdown):
    elements = {**Markdown.elements, "fence": _Fence, "code_block": _Fence}  # noqa: RUF012
