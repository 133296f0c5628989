"""Passages: a text cut where its author cut it: at headings, at definitions, at blank lines. Knows no file."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

USUAL_CHARS, _MOST_CHARS, _LEAST_CHARS = 1200, 1600, 300
"""Of a passage: as long as short parts are joined, at most, and so short that the next section is joined to it."""
_MOST_HEADING = 200

_DEFINITION = re.compile(
    r"(?P<indent>[ \t]*)"
    r"(?:(?:abstract|async|const|default|export|final|private|protected|pub|public|static)(?:\(\w+\))?[ \t]+)*"
    r"(?:class|def|enum|fn|func|function|impl|interface|module|namespace|record|struct|trait|type)[ \t]+(?P<name>[^\s(:{<]+)"
    # C and C++: a type, a name, and an opening bracket at the beginning of a line.
    r"|(?!(?:assert|await|case|del|elif|else|for|if|raise|return|switch|throw|while|with|yield)\b)"
    r"[A-Za-z_][\w:<>,*& \t]*[ \t*&](?P<function>[A-Za-z_~][\w:~]*)\([^;]*$"
)
_ABOVE_DEFINITION = ("@", "#", "//", "/*", "*", "--", ";;")
_MARKDOWN = re.compile(r"(#{1,6})[ \t]+(.*?)[ \t#]*$")
_FENCE = re.compile(r"[ \t]*(```|~~~)")
_UNDERLINE = re.compile(r"([=\-~^*+])\1{2,}[ \t]*$")
_CAPITALS = re.compile(r"[A-Z][A-Z0-9 ,/&()'_-]{2,59}$")
_SUBHEADING = re.compile(r" {2,4}\S.{0,58}$")


class NumberedLine(NamedTuple):
    """A line, and its number in the file: of a line, a page or a paragraph, from 1 on."""

    number: int
    text: str


class Passage(NamedTuple):
    """A part of a text.

    Args:
        first: number of its first line; see `NumberedLine`.
        last: of its last one.
        heading: what it stands under, the outermost first, separated by ` > `; may be empty.
        text: what it says, headings included.
    """

    first: int
    last: int
    heading: str
    text: str


class _Mark(NamedTuple):
    """A heading, or a definition: where its part begins, how deep it is, and its name."""

    at: int
    level: int
    name: str


def passages(lines: Sequence[NumberedLine], *, code: bool) -> list[Passage]:
    """Cut a text into passages of about `USUAL_CHARS`, code at definitions; blank ends and blank passages are left out.

    Headings and definitions come first: two are in one passage only where the first is short. What is longer than a
    passage is cut before inner definitions, then at blank lines, then between lines.
    """
    lines = [piece for line in lines for piece in _short(line)]
    marks = list((_definitions if code else _headings)(lines))
    cut: list[Passage] = []
    for start, end, trail in _sections(len(lines), marks):
        for part in _parts(lines[start:end]):
            filled = [each for each in part if each.text.strip()]
            if filled:
                text = "\n".join(each.text for each in part).strip("\n")
                cut.append(
                    Passage(
                        filled[0].number, filled[-1].number, " > ".join(trail)[:_MOST_HEADING], text
                    )
                )
    return list(_joined(cut))


def _short(line: NumberedLine) -> Iterator[NumberedLine]:
    """Cut a line that is longer than a passage."""
    for at in range(0, max(len(line.text), 1), _MOST_CHARS):
        yield NumberedLine(line.number, line.text[at : at + _MOST_CHARS])


def _sections(count: int, marks: Sequence[_Mark]) -> Iterator[tuple[int, int, list[str]]]:
    """Yield where each section begins and ends, and the headings that it stands under, its own last."""
    trail: list[_Mark] = []
    starts = [_Mark(0, 0, ""), *marks, _Mark(count, 0, "")]
    for mark, following in pairwise(starts):
        if mark.name:
            trail = [each for each in trail if each.level < mark.level] + [mark]
        if following.at > mark.at:
            yield mark.at, following.at, [each.name for each in trail]


def _parts(lines: list[NumberedLine]) -> list[list[NumberedLine]]:
    """Cut a section that is longer than a passage at blank lines, and between lines where there are none."""
    if _size(lines) <= _MOST_CHARS:
        return [lines]
    blocks: list[list[NumberedLine]] = [[]]
    for line in lines:
        if line.text.strip() and blocks[-1] and not blocks[-1][-1].text.strip():
            blocks.append([])
        blocks[-1].append(line)
    pieces: list[list[NumberedLine]] = []
    for block in blocks:
        pieces += [block] if _size(block) <= _MOST_CHARS else _fill([line] for line in block)
    return _fill(pieces)


def _fill(pieces: Iterable[list[NumberedLine]]) -> list[list[NumberedLine]]:
    """Join pieces as far as `USUAL_CHARS` go."""
    parts, filled = list[list[NumberedLine]](), 0
    for piece in pieces:
        size = _size(piece)
        if not parts or filled + size > USUAL_CHARS:
            parts.append([])
            filled = 0
        parts[-1] += piece
        filled += size
    return parts


def _size(lines: Iterable[NumberedLine]) -> int:
    return sum(len(each.text) + 1 for each in lines)


def _joined(cut: Iterable[Passage]) -> Iterator[Passage]:
    """Join what is short with what follows it, as far as a passage goes."""
    last: Passage | None = None
    for each in cut:
        if last is None:
            last = each
        elif len(last.text) < _LEAST_CHARS and len(last.text) + len(each.text) <= USUAL_CHARS:
            heading = _common(last.heading, each.heading)
            last = Passage(last.first, each.last, heading, f"{last.text}\n\n{each.text}")
        else:
            yield last
            last = each
    if last is not None:
        yield last


def _common(first: str, second: str) -> str:
    """Return the heading of two sections in one passage: both, where neither stands under the other."""
    trail, other = (each.split(" > ") if each else [] for each in (first, second))
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(trail, other, strict=False))))
    rest = " > ".join(other[shared:])
    if shared == len(trail):
        return second
    return f"{first} · {rest}"[:_MOST_HEADING] if rest else first


def _headings(lines: Sequence[NumberedLine]) -> Iterator[_Mark]:
    """Yield headings: those of Markdown, underlined ones, and those in capitals at the margin, as manuals have them."""
    fence = ""
    for at, line in enumerate(lines):
        match = _FENCE.match(line.text)
        if match and fence in {"", match[1]}:
            fence = "" if fence else match[1]
        if fence:
            continue
        alone = at == 0 or not lines[at - 1].text.strip()
        below = lines[at + 1].text if at + 1 < len(lines) else ""
        if (heading := _MARKDOWN.match(line.text)) and heading[2]:
            yield _Mark(at, len(heading[1]), heading[2])
        elif level := _underlined_level(line.text.strip(), below):
            yield _Mark(at, level, line.text.strip())
        elif alone and _CAPITALS.match(line.text):
            yield _Mark(at, 1, line.text.strip())
        elif alone and _SUBHEADING.match(line.text) and _indent(below) > _indent(line.text) + 2:
            yield _Mark(at, 3, line.text.strip())


def _definitions(lines: Sequence[NumberedLine]) -> Iterator[_Mark]:
    for at, line in enumerate(lines):
        match = _DEFINITION.match(line.text)
        if not match:
            continue
        indent = len((match["indent"] or "").expandtabs(4))
        start = at
        while start and lines[start - 1].text.strip().startswith(_ABOVE_DEFINITION):
            start -= 1
        yield _Mark(start, 1 + indent, match["name"] or match["function"])


def _underlined_level(text: str, below: str) -> int:
    """Return the level of a heading that is underlined, 1 or 2; 0 where the line is none."""
    if not any(map(str.isalnum, text)) or not _UNDERLINE.match(below):
        return 0
    return 0 if len(below.rstrip()) < min(len(text), 8) else 1 if below[0] == "=" else 2


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
