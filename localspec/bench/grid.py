"""Columns of text that fit a width: one line a row, or several where the width does not hold them."""

from collections.abc import Sequence

_GAP = "  "
_INDENT = "    "


def grid(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return lines: headers, then a line for each row; the first column is flush left.

    Where a line would be wider than `width`, the columns that do not fit follow on lines of their
    own, indented under the first column.
    """
    sizes = [max(len(row[at]) for row in [headers, *rows]) for at in range(len(headers))]
    parts = _parts(sizes, width)
    lines = []
    for row in [headers, *rows]:
        for number, part in enumerate(parts):
            cells = [
                row[at].ljust(sizes[at]) if at == 0 else row[at].rjust(sizes[at]) for at in part
            ]
            if any(cell.strip() for cell in cells):
                lines.append(((_INDENT if number else "") + _GAP.join(cells)).rstrip())
    return lines


def _parts(sizes: Sequence[int], width: int) -> list[list[int]]:
    parts: list[list[int]] = [[]]
    used = 0
    for at, size in enumerate(sizes):
        if parts[-1] and used + len(_GAP) + size > width:
            parts.append([])
            used = len(_INDENT) - len(_GAP)
        used += size + (len(_GAP) if parts[-1] or len(parts) > 1 else 0)
        parts[-1].append(at)
    return parts
