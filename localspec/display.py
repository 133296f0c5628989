"""Values as people read them, wherever a terminal shows them: text that it cannot obey, lines broken between words, durations, bars."""

import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TextIO

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*(.*?)\s*")
_MARKDOWN = {"markdown", "md"}
_LIST = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s")
# What may stand before a fence in a list or a quotation.
_BEFORE_FENCE = re.compile(r"^(?:[\s>]|[-*+]\s|\d{1,9}[.)]\s)*")
_BARS = "▁▂▃▄▅▆▇█"
_USUAL_COLUMNS = 80
TIMES = "\u00d7"
_PREVIEWED_LINES = 8
_TAB = 8
_LEAST_COLUMNS = 20
_ZERO_WIDTH = {"Mn", "Me", "Cf"}
_JOINER = "\u200d"
_SKIN_TONES = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
# In scripts without blanks, what may not begin a line, and what may not end one.
_NEVER_FIRST = set("!?,.;:)]}'\"%…’”»、。，．・：；？！）］｝」』】〉》ー々" + _SKIN_TONES)  # noqa: RUF001
_NEVER_LAST = set("([{'\"‘“«（［｛「『【〈《" + _JOINER)  # noqa: RUF001


MEASURED_AGAIN = " again: the machine was busy last time"
"""Stands behind the name of a model that is measured once more."""
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_PICTURES = 0x2400  # ␀ ␁ … ␛: a control character is shown, as what it is
_REPLACED: dict[int, str | None] = {
    **{code: chr(_PICTURES + code) for code in range(32)},
    0x09: "    ",
    0x0A: "\n",
    0x0D: None,  # half of a Windows line end, which may be cut between two chunks
    0x7F: "\u2421",
    **dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000)), "\ufffd"),
    **{code: f"\\u{code:04x}" for code in _DIRECTIONS},
    0x2028: "\n",
    0x2029: "\n",
}
_REPLACED_BUT_TABS = {**_REPLACED, 0x09: "\t"}


def cell_len(text: str) -> int:
    """Return how many columns a text takes."""
    if text.isascii() and text.isprintable():
        return len(text)
    from rich.cells import cell_len as measured  # noqa: PLC0415 - most texts need no table

    return measured(text)


def clean(text: str, *, tabs: bool = False) -> str:
    """Return text with nothing in it that a terminal would obey, and no mark of direction but as an escape; line ends stay.

    Every character from models and files passes here: in the screens before it is laid out, so that widths are right, and once more in every
    line on its way out (`tui/app.py`).

    Args:
        text: any.
        tabs: whether tabs stay, too.
    """
    return text.translate(_REPLACED_BUT_TABS if tabs else _REPLACED)


def clean_line(text: str) -> str:
    """Return text as one line: for titles, names and messages."""
    return " ".join(clean(text).split("\n")).strip()


def clean_input(text: str) -> str:
    """Return a pasted text without what only a terminal would understand; tabs and line ends stay."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(each for each in text if each in "\t\n" or clean(each) == each)


def printable(text: str, allowed: str = "") -> str:
    """Return a text with `?` for all that a terminal could obey, but for the characters in `allowed`."""
    return "".join(each if each.isprintable() or each in allowed else "?" for each in text)


def printable_line(text: str) -> str:
    """Return a text as one line that a terminal cannot obey, white space as blanks."""
    return printable(" ".join(text.split()))


def duration_text(seconds: float, decimals: int = 0) -> str:
    """Return a time as people tell it, seconds with so many decimals."""
    if abs(seconds) < 100:
        return f"{seconds:.{decimals}f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def bar(share: float, cells: int = 20) -> str:
    """Return a share as a bar, with its figure."""
    done = round(cells * min(1.0, share))
    return f"[{'#' * done}{'.' * (cells - done)}] {min(1.0, share):.0%}"


def gain_text(ratio: float | None, why: str = "") -> str:
    """Return what drafting gained: time without it over time with it; None is not known, and why."""
    return f"drafting {TIMES}{ratio:.1f}" if ratio else f"drafting {unknown_gain_text(why)}"


def unknown_gain_text(why: str) -> str:
    """Return that a gain is not known, and why, if that is known."""
    return f"gain not known yet{why and f': {why}'}"


def gain_interval_text(ratio: float, interval: tuple[float, float]) -> str:
    """Return what drafting gained, as `gain_text` but to two decimals, with its 95 % interval."""
    low, high = interval
    return f"{TIMES}{ratio:.2f} ({low:.2f} to {high:.2f})"


def average_gain_text(
    answers: int,
    least: int,
    ratio: float | None,
    interval: tuple[float, float] | None,
    period: str = "",
) -> str:
    """Return what drafting gained over several answers, as a clause.

    Args:
        answers: how many have something drafted in them, and a known gain.
        least: how many it takes.
        ratio: as for `gain_text`; None of too few.
        interval: its 95 % interval.
        period: of which answers these are, behind their number.
    """
    if ratio is None or interval is None:
        return f"average gain not known yet: {answers} of {least} drafted answers{period}"
    clear = "" if interval[0] > 1 or interval[1] < 1 else ", no clear difference"
    return f"drafting {gain_interval_text(ratio, interval)} over {counted(answers, 'drafted answer')}{period}{clear}"


def counted(count: int, noun: str) -> str:
    """Return how many there are of something that takes an s: 1 file, 2 files."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def drafting_text(drafted: int, accepted: int, ratio: float | None, why: str) -> str:
    """Return what drafting did in an answer, for the line under it.

    Args:
        drafted: tokens that were drafted.
        accepted: how many of them were accepted.
        ratio: as for `gain_text`.
        why: nothing was drafted, or the gain is not known; empty where that is not known either.
    """
    if not drafted:
        return why or "nothing drafted"
    return f"{gain_text(ratio, why)} · {accepted} of {counted(drafted, 'drafted token')} accepted"


def measuring_text(name: str) -> str:
    """Return which model is measured, and why once more."""
    return f"measuring {name}{'' if name.endswith(MEASURED_AGAIN) else ' on this machine'}"


def reading_text(done: int, total: int) -> str:
    """Return how many tokens of a prompt are read; short prompts are read in one pass, which begins at none and ends with all."""
    return f"reading {f'{done:,} of ' * (done > 0)}{total:,} token{'' if total == 1 else 's'}"


def sparkline(values: Sequence[float | None], low: float, high: float) -> str:
    """Return a bar for each value, from `low` to `high`; a blank where there is none."""
    span, top = high - low, len(_BARS) - 1
    return "".join(
        " " if value is None else _BARS[round((value - low) / span * top) if span else top]
        for value in values
    )


def cut(text: str, width: int) -> str:
    """Return as much of the beginning as so many cells of a terminal show; `…` marks a cut."""
    if cell_len(text) <= width:
        return text
    characters, cells = [], 1
    for character in text:
        cells += cell_len(character)
        if cells > width:
            break
        characters.append(character)
    return "".join(characters) + "…" if width > 0 else ""


def shortened(line: str, room: int) -> str:
    """Return what fits of a line into so many cells: whole parts of it, which ` · ` divides; of the first part whole words.

    Only a word that alone is too long is cut within; `…` stands where words are missing.
    """
    parts = line.split(" · ")
    words = parts[0].split(" ")
    forms = [" · ".join(parts[:count]) for count in range(len(parts), 0, -1)]
    forms += [" ".join(words[:count]) + "…" for count in range(len(words) - 1, 0, -1)]
    return next(
        (form for form in forms if cell_len(form) <= room),
        cut(words[0] + "…" * (len(words) > 1), room),
    )


def wrapped(text: str, stream: TextIO) -> str:
    """Return a text as a stream takes it: for a terminal in lines that end between words."""
    if not stream.isatty():
        return text
    wrapping = Wrapping(lambda: columns_of(stream))
    return wrapping.feed(text) + wrapping.flush()


def notice(*texts: str) -> None:
    """Write lines about the program itself on stderr; on a terminal in lines that end between words."""
    for text in texts:
        say(f"localspec: {text}")


def say(text: str) -> None:
    """Write a line on stderr; on a terminal in lines that end between words."""
    print(wrapped(text, sys.stderr), file=sys.stderr, flush=True)


def table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield rows as lines whose columns stand below each other, two blanks apart."""
    every = list(rows)
    widths = [max(map(cell_len, column)) for column in zip(*every, strict=True)]
    for row in every:
        cells = (
            text + " " * (width - cell_len(text)) for text, width in zip(row, widths, strict=True)
        )
        yield "  ".join(cells).rstrip()


def columns_of(stream: TextIO) -> int:
    """Return how many cells a line of a terminal has; 80 if the stream is none that says."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):  # no file behind it
        columns = 0
    return columns or _USUAL_COLUMNS


class Fence(NamedTuple):
    """A line that begins or ends a block of code.

    Args:
        marks: three or more backticks, or tildes.
        info: what stands behind them, such as a language; empty where nothing does.
    """

    marks: str
    info: str


class OpenFences:
    """The fences that are open, in text that is taken line by line; false where none is.

    A block of Markdown may hold blocks of code: in it, a fence that names a language opens one, and a bare one closes the
    innermost. Every other block ends at the first bare fence that is as long as its own.
    """

    def __init__(self) -> None:
        self._open: list[Fence] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def outer(self) -> Fence | None:
        """The one that opened the block."""
        return self._open[0] if self._open else None

    def take(self, line: str) -> bool:
        """Take the next line, without its end; return whether it opens or closes the block."""
        match = _FENCE.fullmatch(line)
        fence = Fence(*match.groups()) if match else None
        if fence is None or ("`" in fence.marks and "`" in fence.info):  # which is code in a line
            return False
        if not self._open:
            self._open.append(fence)
            return True
        outer, inner = self._open[0], self._open[-1]
        if not fence.info and fence.marks.startswith(inner.marks):
            self._open.pop()
        elif fence.info and _is_markdown(inner) and fence.marks.startswith(outer.marks):
            self._open.append(fence)
        return not self._open


def _is_markdown(fence: Fence) -> bool:
    return fence.info.partition(" ")[0].lower() in _MARKDOWN


class Wrapping:
    """Breaks the lines of a text that streams to a terminal, between words. What is out is never written again.

    A word is held back until it ends, since only then is it known whether it fits. What is no prose is left as it is: code
    between fences or indented, and rows of tables.

    Args:
        columns: returns how many cells a line has; asked again for every line.
    """

    def __init__(self, columns: Callable[[], int]) -> None:
        self._columns = columns
        self._room = columns()
        self._cell = 0
        self._gap = self._word = self._line = ""
        self._fences = OpenFences()
        self._in_list = self._is_torn = False
        self._is_prose: bool | None = None  # of the line, known once its first word is

    def feed(self, text: str) -> str:
        """Return what can be written now that `text` follows."""
        out = ""
        for each in text:
            if each == "\n":
                out += self.flush() + each
            elif each.isspace():
                out += self._placed()
                self._gap += each
                self._line += each
                self._is_torn = False
            else:
                if self._word and _may_break(self._word[-1], each):
                    out += self._placed()
                self._word += each
                self._line += each
                if cell_len(self._word) > self._room:  # on no line is there room for it
                    out += self._placed()
                    self._is_torn = True
        return out

    def flush(self) -> str:
        """Return what was held back; the next text begins a line."""
        out = self._placed()
        self._gap, self._cell, self._is_torn = "", 0, False
        self._room = self._columns()
        self._end_line()
        return out

    def _end_line(self) -> None:
        """Take note of what a line means for those behind it: it may begin a list, or a block of code."""
        if self._line.strip():
            self._in_list = bool(_LIST.match(self._line)) or (
                self._in_list and self._line[0].isspace()
            )
        self._fences.take(_BEFORE_FENCE.sub("", self._line))
        self._line, self._is_prose = "", None

    def _looks_like_prose(self) -> bool:
        indented = self._line.startswith(("    ", "\t")) and not self._in_list
        line = _BEFORE_FENCE.sub("", self._line)
        return not (self._fences or indented or line.startswith("|") or OpenFences().take(line))

    def _placed(self) -> str:
        """Return the word behind the blanks before it, or on a new line in place of them."""
        word, gap = self._word, self._gap
        if not word:
            return ""
        self._word = self._gap = ""
        if self._is_prose is None:
            self._is_prose = self._looks_like_prose()
        at = self._cell
        for each in gap:
            at += _TAB - at % _TAB if each == "\t" else 1
        end = at + cell_len(word)
        wraps = self._is_prose and not self._is_torn and self._room >= _LEAST_COLUMNS
        if wraps and self._cell and end > self._room:
            gap, end = "\n", cell_len(word)
        self._cell = end if end <= self._room else (end - 1) % self._room + 1
        return gap + word


def _may_break(before: str, after: str) -> bool:
    """Return whether a line may end between two characters of a text without blanks: beside an ideograph."""
    if unicodedata.category(after) in _ZERO_WIDTH or after in _NEVER_FIRST or before in _NEVER_LAST:
        return False
    return _is_ideograph(before) or _is_ideograph(after)


def _is_ideograph(character: str) -> bool:
    hangul = "\uac00" <= character <= "\ud7a3"  # which has blanks between its words
    return unicodedata.east_asian_width(character) in "WF" and not hangul


def shortened_lines(text: str) -> list[str]:
    """Return the lines of a text; of a long one the first and the last."""
    lines = text.splitlines()
    left_out = len(lines) - 2 * _PREVIEWED_LINES
    if left_out <= 1:
        return lines
    return [*lines[:_PREVIEWED_LINES], f"[{left_out} more lines]", *lines[-_PREVIEWED_LINES:]]
