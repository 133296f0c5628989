"""Markdown as models write it: one parser for what the screen draws, what is copied, and what `--code` prints.

CommonMark with tables, but for the rules by which text would vanish or become another: HTML, entities and definitions of
links stay as they were written, a list keeps its numbers, and a line end is one.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, blockquote, list_block, table
from markdown_it.rules_inline import StateInline, emphasis, image, link, newline
from markdown_it.token import Token

from localspec.display import OpenFences

LABEL, TARGET = "link", "link_url"
"""Tags of the text of a link, and of its address as it was written."""
_SWITCHED_OFF = ["html_block", "html_inline", "autolink", "entity", "reference"]
_DEEPEST = 20
"""Levels of lists and quotations; what is nested deeper is text of the innermost."""
# What a model escapes for Markdown's sake. Elsewhere a backslash belongs to a formula, a path or a pattern: `\\(`, `\\.`, `\\|`, `\\<`.
_ESCAPABLE = frozenset("*_`#")
_LANGUAGE = re.compile(r"[^\s{,:]*")
# Small models copy the tags around an attached file.
_TAGS = re.compile(r'\A<file name="[^"\n]*">\n|\n?</file>\Z')


class CodeBlock(NamedTuple):
    """A block of code.

    Args:
        language: in lower case; empty if none is named.
        text: its lines, without fences, the indentation of a list, and an attached file's tags.
        is_fenced: whether it stands between fences; else it is indented.
    """

    language: str
    text: str
    is_fenced: bool


def code_blocks(text: str) -> list[CodeBlock]:
    """Return the blocks of code in an answer, those in lists and quotations, too."""
    return [
        CodeBlock(language_of(each.info).lower(), code_text(each.content), each.type == "fence")
        for each in parsed(text)
        if each.type in {"fence", "code_block"}
    ]


def code_text(content: str) -> str:
    """Return the code of a block without what is no code: empty lines at its end, and the tags of a file."""
    return _TAGS.sub("", content.rstrip("\n"))


def language_of(info: str) -> str:
    """Return the language in what stands behind the opening fence of a block; empty if it names none."""
    match = _LANGUAGE.match(info.strip())
    return match[0] if match else ""


def parsed(text: str) -> list[Token]:
    """Return the tokens of a text."""
    return _parser().parse(text)


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 10 * _DEEPEST})
    parser.enable(["strikethrough", "table"]).disable(_SWITCHED_OFF)
    blocks, inlines = parser.block.ruler, parser.inline.ruler
    every = ["paragraph", "blockquote", "list"]  # what the rule may interrupt
    blocks.at("fence", _fence, {"alt": every})
    blocks.at("blockquote", _bounded(blockquote), {"alt": every})
    blocks.at("list", _bounded(list_block), {"alt": ["paragraph", "blockquote"]})
    blocks.at("table", _table, {"alt": ["paragraph"]})
    for name, rule in (
        ("newline", _newline), ("escape", _escape), ("emphasis", _emphasis), ("link", _link), ("image", _image)
    ):  # fmt: skip
        inlines.at(name, rule)
    return parser


BlockRule = Callable[[StateBlock, int, int, bool], bool]


def _bounded(rule: BlockRule) -> BlockRule:
    """Return a rule that leaves what is nested too deep to the other rules: the parser would skip it."""

    def bounded(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        return state.level < _DEEPEST and rule(state, start, end, silent)

    return bounded


def _fence(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Take a block between fences; one of Markdown may hold others."""
    fences = OpenFences()
    fences.take(_line(state, start))
    if state.is_code_block(start) or not fences:
        return False
    if silent:
        return True
    at = start + 1
    while at < end and state.bMarks[at] + state.tShift[at] < len(state.src):
        line = _line(state, at)
        if line and state.sCount[at] < state.blkIndent:
            break  # ends the list that the block stands in
        at += 1
        if not state.is_code_block(at - 1):
            fences.take(line)
        if not fences:
            break
    opening, inner_end = _line(state, start), at if fences else at - 1
    token = state.push("fence", "code", 0)
    token.markup = opening[: len(opening) - len(opening.lstrip(opening[0]))]
    token.info = opening[len(token.markup) :].strip()
    token.content = state.getLines(start + 1, inner_end, state.sCount[start], keepLastLF=True)
    token.map = [start, at]
    state.line = at
    return True


def _line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Take a table, unless cells beyond its columns would be lost."""
    count = len(state.tokens)
    if silent or not table(state, start, end, silent):
        return silent and table(state, start, end, silent)
    cells = (each.content for each in state.tokens[count:] if each.type == "inline")
    lines = (_line(state, number) for number in range(start, state.line))
    if _letters("".join(cells)) == _letters("".join(lines)):
        return True
    del state.tokens[count:]
    state.line = start
    return False


def _letters(text: str) -> list[str]:
    return [each for each in text if each.isalnum()]


def _newline(state: StateInline, silent: bool) -> bool:
    """Take a line end, which is one, and the blanks behind it: of verses, addresses and HTML."""
    start = state.pos
    if not newline(state, silent):
        return False
    if not silent:
        state.tokens[-1].type = "hardbreak"
        state.pending += state.src[start + 1 : state.pos]
    return True


def _escape(state: StateInline, silent: bool) -> bool:
    """Take a backslash before what it keeps from being Markdown, and two of them, which stay."""
    pair = state.src[state.pos : state.pos + 2]
    if not (pair == "\\\\" or (pair[:1] == "\\" and pair[1:] in _ESCAPABLE)):
        return False
    if not silent:
        state.pending += pair if pair == "\\\\" else pair[1]
    state.pos += 2
    return True


def _emphasis(state: StateInline, silent: bool) -> bool:
    """Take asterisks and underscores, unless they are of code: `2*3*4`, `x**2`, `__init__`."""
    marker = state.src[state.pos]
    if silent or marker not in "*_":
        return False
    rest = state.src[state.pos : state.posMax]
    run = rest[: len(rest) - len(rest.lstrip(marker))]
    after = rest[len(run) : len(run) + 1]
    in_word = state.pos > 0 and _is_of_word(state.src[state.pos - 1])
    if (marker == "_" and len(run) > 1) or (in_word and after.isdecimal()):
        state.pending += run
        state.pos += len(run)
        return True
    emphasis.tokenize(state, silent)
    if in_word and _is_of_word(after):
        for each in state.delimiters[-len(run) :]:
            each.open = False
    return True


def _is_of_word(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _link(state: StateInline, silent: bool) -> bool:
    """Take a link: its text, and behind it address and title as they were written."""
    start, count = state.pos, len(state.tokens)
    if not link(state, silent):
        return False
    if not silent:
        opening = next(each for each in state.tokens[count:] if each.type == "link_open")
        for each in (opening, state.tokens[-1]):
            each.type, each.tag = each.type.replace("link", "label"), LABEL
        end = state.md.helpers.parseLinkLabel(state, start, True)
        state.push("target", TARGET, 0).content = " " + state.src[end + 1 : state.pos]
    return True


def _image(state: StateInline, silent: bool) -> bool:
    """Take a picture, as it was written."""
    start = state.pos
    if not image(state, silent):
        return False
    if not silent:
        token = state.tokens[-1]
        token.type, token.tag, token.children = "target", TARGET, None
        token.content = state.src[start : state.pos]
    return True
