"""Ten answers full of HTML, generics and Markdown beside what the chat draws of them, at 60, 80 and 120 columns.

    python -m lab.as_written sheet.html

The answers are those of the tests; a line over each drawing counts the letters and digits that it lacks or has too many.
"""

import html
import io
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from localspec.tui.typeset import Typesetter

WIDTHS = 60, 80, 120
ANSWERS = Path("tests/tui/written")
_STYLE = "body{font:14px sans-serif} td{vertical-align:top;padding:0 1em 2em 0} pre{font:12px monospace;border:1px solid #ccc;padding:1em}"


def drawing(text: str, width: int) -> tuple[str, str]:
    """Return what the chat draws of an answer, and what of it is another."""
    typesetter = Typesetter(Console(file=io.StringIO(), width=width), "monokai")
    strips = typesetter.markdown(text, width)
    segments = (segment for strip in strips for segment in strip)
    drawn = "".join(e.text for e in segments if not (e.style and "code" in e.style.meta))
    lost, added = _letters(text) - _letters(drawn), _letters(drawn) - _letters(text)
    verdict = f"{width} columns: {lost.total()} letters and digits lost, {added.total()} added"
    return "\n".join(strip.text.rstrip() for strip in strips), verdict


def _letters(text: str) -> Counter[str]:
    return Counter(each for each in text if each.isalnum())


def sheet() -> Iterator[str]:
    """Yield the lines of the sheet."""
    yield f"<!DOCTYPE html><meta charset=utf-8><title>As written</title><style>{_STYLE}</style>"
    for file in sorted(ANSWERS.glob("*.md")):
        text = file.read_text()
        yield f"<h2>{file.stem}</h2><table><tr><td>as written<pre>{html.escape(text)}</pre>"
        for width in WIDTHS:
            drawn, verdict = drawing(text, width)
            print(f"{file.stem}: {verdict}")
            yield f"<td>{verdict}<pre>{html.escape(drawn)}</pre>"
        yield "</table>"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text("\n".join(sheet()))
