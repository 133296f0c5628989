"""Markdown and code as Rich lays them out, without links and without a ground of their own; code in a frame.

Every letter of a text is drawn: what Rich would leave out or cut off has an element of its own here.
"""

from collections.abc import Iterator

from markdown_it.token import Token
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markdown import BlockQuote, CodeBlock, ListElement, ListItem, Markdown, TableElement
from rich.panel import Panel
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from localspec.markup import LABEL, TARGET, code_text, language_of, parsed

FRAME = "frame"
"""Meta of a style: what is drawn round code and is no part of it."""
CODE = "code"
"""Meta of a style: the code that a click copies."""
_EDGE = Style(dim=True, meta={FRAME: True})
# Narrower than this, lines around code would take too much of it, and so would what stands before a list or a quotation.
_LEAST = 16
_LEAST_COLUMN = 8
_BETWEEN_COLUMNS = 3


def markdown(text: str, theme: str) -> Markdown:
    """Return a message, ready to be laid out."""
    return _Message(text, theme)


def code(
    text: str,
    info: str,
    theme: str,
    console: Console,
    width: int,
    *,
    whole: bool = True,
    label: bool = True,
) -> RenderableType:
    """Return code in a frame, or as it is where there is no room for one.

    Args:
        text: the code.
        info: what stands behind its opening fence, such as a language; empty where nothing does.
        theme: pygments style.
        console: knows widths.
        width: of the frame, in cells.
        whole: whether all of the code is there, so that it can be copied.
        label: whether `info` is drawn.
    """
    framed = width >= _LEAST
    syntax = Syntax("", language_of(info) or "text", theme=theme, background_color="default")
    body = syntax.highlight(text.lstrip("\n"))
    body.rstrip()
    body = _hanging(body, console, width - 4 if framed else width)
    title = Text(info if label else "", _EDGE + Style(bold=True))
    above = [] if framed and title.cell_len <= width - 6 else [title]
    if not framed:
        return Group(*above[: bool(title)], body)
    copy = Text("k copy", _EDGE + Style(meta={CODE: code_text(text)})) if whole else None
    panel = Panel(
        body,
        box.ROUNDED,
        title=None if above or not title else title,
        title_align="left",
        subtitle=copy,
        subtitle_align="right",
        border_style=_EDGE,
        width=width,
    )
    return Group(*above, panel)


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
    info = ""

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> "_Fence":
        made = cls(language_of(token.info), markdown.code_theme)
        made.info = token.info
        return made

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield code(str(self.text).rstrip(), self.info, str(self.theme), console, options.max_width)


class _Quotation(BlockQuote):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sign = Segment("▌ ", console.get_style(self.style))
        yield from _beside(sign, sign, self, console, options)


class _List(ListElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        items = [each for each in self.items if isinstance(each, _Item)]
        width = max((cell_len(each.mark) for each in items), default=0)
        kind = "bullet" if self.list_type == "bullet_list_open" else "number"
        style = console.get_style(f"markdown.item.{kind}", default="none")
        blank = Segment(" " * (width + 2), style)
        for each in items:
            yield from _beside(
                Segment(f" {each.mark:>{width}} ", style), blank, each, console, options
            )


class _Item(ListItem):
    """An item with the number that it was given: `1.` may be followed by `1.`, or by `3.`."""

    mark = "•"

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> "_Item":  # noqa: ARG003
        made = cls()
        made.mark = f"{token.info}{token.markup}" if token.info else cls.mark
        return made


def _beside(
    first: Segment,
    others: Segment,
    item: BlockQuote | ListItem,
    console: Console,
    options: ConsoleOptions,
) -> Iterator[Segment]:
    """Yield what is in a list or a quotation behind a sign on each line; below the first where there is no room."""
    room = options.max_width - first.cell_length
    is_narrow = room < _LEAST_COLUMN
    width = options.max_width if is_narrow else room
    lines = console.render_lines(item.elements, options.update(width=width), style=item.style)
    if is_narrow or not lines:
        yield from (first, Segment.line())
    for at, line in enumerate(lines):
        if not is_narrow:
            yield others if at else first
        yield from line
        yield Segment.line()


class _Table(TableElement):
    """A table, or where its columns find no room, a line for each row."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        head = self.header.row if self.header else None
        rows = [*([head] if head else []), *(self.body.rows if self.body else [])]
        cells = [[cell.content for cell in row.cells] for row in rows]
        least = (
            min(max(cell_len(word) for text in column for word in [*text.plain.split(), ""]), _LEAST_COLUMN)
            for column in zip(*cells, strict=True)
        )  # fmt: skip
        if sum(each + _BETWEEN_COLUMNS for each in least) > options.max_width:
            yield from (Text(" | ").join(row) for row in cells)
            return
        for table in super().__rich_console__(console, options):
            assert isinstance(table, Table)  # noqa: S101 - what Rich makes
            for column in table.columns:
                column.overflow = "fold"
            yield table


class _Message(Markdown):
    elements = {  # noqa: RUF012
        **Markdown.elements,
        "fence": _Fence,
        "code_block": _Fence,
        "blockquote_open": _Quotation,
        "bullet_list_open": _List,
        "ordered_list_open": _List,
        "list_item_open": _Item,
        "table_open": _Table,
    }
    inlines = {*Markdown.inlines, LABEL, TARGET}  # noqa: RUF012

    def __init__(self, text: str, theme: str) -> None:
        super().__init__("", theme, hyperlinks=False)
        self.parsed = parsed(text)
