"""Markdown and code as Rich lays them out, without links and without a ground of their own; code in a frame."""

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import CodeBlock, Markdown
from rich.panel import Panel
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text

FRAME = "frame"
"""Meta of a style: what is drawn round code and is no part of it."""
CODE = "code"
"""Meta of a style: the code that a click copies."""
_EDGE = Style(dim=True, meta={FRAME: True})
# Narrower than this, lines around code would take too much of it.
_LEAST = 16


def markdown(text: str, theme: str) -> Markdown:
    """Return a message, ready to be laid out."""
    return _Message(text, theme, hyperlinks=False)


def code(
    text: str, language: str, theme: str, console: Console, width: int, *, whole: bool = True
) -> RenderableType:
    """Return code in a frame, or as it is where there is no room for one.

    Args:
        text: the code.
        language: of it; empty where it has none.
        theme: pygments style.
        console: knows widths.
        width: of the frame, in cells.
        whole: whether all of the code is there, so that it can be copied.
    """
    framed = width >= _LEAST
    syntax = Syntax("", language or "text", theme=theme, background_color="default")
    body = syntax.highlight(text.lstrip("\n"))
    body.rstrip()
    body = _hanging(body, console, width - 4 if framed else width)
    if not framed:
        return body
    label = Text(language, _EDGE + Style(bold=True)) if language else None
    copy = Text("k copy", _EDGE + Style(meta={CODE: text})) if whole else None
    return Panel(
        body,
        box.ROUNDED,
        title=label,
        title_align="left",
        subtitle=copy,
        subtitle_align="right",
        border_style=_EDGE,
        width=width,
    )


def _hanging(text: Text, console: Console, width: int) -> Text:
    """Break lines at words; what goes on is indented like its line."""
    lines: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        indent = len(line.plain) - len(line.plain.lstrip(" "))
        if line.cell_len <= width or indent > width // 2:
            lines += line.wrap(console, width) if line.cell_len > width else [line]
        else:
            blanks, rest = line.divide([indent])
            lines += [blanks + each for each in rest.wrap(console, width - indent)]
    return Text("\n").join(lines)


class _Fence(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        language = "" if self.lexer_name == "text" else self.lexer_name
        yield code(str(self.text).rstrip(), language, str(self.theme), console, options.max_width)


class _Message(Markdown):
    elements = {**Markdown.elements, "fence": _Fence, "code_block": _Fence}  # noqa: RUF012
