"""Markdown and code as Rich lays them out, without links and without a ground of their own; code in a frame."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Markdown
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text

from localspec.tui.blocks import CODE, FRAME

_COPY = " k copy "
# Narrower than this, lines around code would take too much of it.
_LEAST = 16


def markdown(text: str, theme: str) -> Markdown:
    """Return a message, ready to be laid out."""
    return _Message(text, theme, hyperlinks=False)


@dataclass(frozen=True, slots=True)
class Code:
    """Lines of code; their ground is that of the screen.

    Args:
        text: the code.
        language: of it; empty where that is not said.
        theme: pygments style.
        begins: whether the frame begins above.
        ends: whether it ends below; what streams in has an end only when all of it is there.
    """

    text: str
    language: str
    theme: str
    begins: bool = True
    ends: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        width = options.max_width
        language = self.language or "text"
        framed = width >= _LEAST
        inner = width - 4 if framed else width
        syntax = Syntax("", language, theme=self.theme, background_color="default")
        text = syntax.highlight(self.text.lstrip("\n"))
        text.rstrip()
        text = _hanging(text, console, inner)
        if not framed:
            yield text
            return
        if self.begins:
            yield from self._head(width)
        for line in console.render_lines(text, options.update(width=inner, height=None), pad=True):
            yield Segment("│ ", _EDGE)
            yield from line
            yield Segment(" │", _EDGE)
            yield Segment.line()
        if self.ends:
            yield from foot(width)

    def _head(self, width: int) -> Iterator[Segment]:
        label = f" {self.language} " if self.language else ""
        copy = _COPY if self.ends else ""
        if cell_len(label) + len(copy) + 6 > width:
            label = ""
        rest = width - cell_len(label) - len(copy) - 4
        yield Segment("╭─", _EDGE)
        yield Segment(label, _LABEL)
        yield Segment("─" * rest, _EDGE)
        yield Segment(copy, _EDGE + Style(meta={CODE: self.text}))
        yield Segment("─╮", _EDGE)
        yield Segment.line()


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


def foot(width: int) -> Iterator[Segment]:
    """Yield the end of a frame that `Code` began; none where there was no room for one."""
    if width >= _LEAST:
        yield Segment(f"╰{'─' * (width - 2)}╯", _EDGE)
        yield Segment.line()


_EDGE = Style(dim=True, meta={FRAME: True})
_LABEL = Style(bold=True, dim=True, meta={FRAME: True})


class _Fence(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        language = "" if self.lexer_name == "text" else self.lexer_name
        yield Code(str(self.text).rstrip(), language, str(self.theme))


class _Message(Markdown):
    elements = {**Markdown.elements, "fence": _Fence, "code_block": _Fence}  # noqa: RUF012
