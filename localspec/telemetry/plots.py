"""Plots as SVG, drawn by hand: nothing is fetched, and nothing runs."""

from collections.abc import Sequence
from html import escape

_WIDTH, _BAR, _GAP, _LABEL = 640, 18, 6, 190
_HEIGHT, _LEFT, _BOTTOM, _TOP = 180, 44, 22, 8


def bars(rows: Sequence[tuple[str, float, str]], most: float | None = None) -> str:
    """Return horizontal bars: label, value from 0 on, and what is written beside it."""
    if not rows:
        return ""
    most = max((value for _, value, _ in rows), default=0.0) if most is None else most
    room = _WIDTH - _LABEL - 110
    parts = []
    for at, (label, value, said) in enumerate(rows):
        y = at * (_BAR + _GAP)
        width = 0.0 if most <= 0 else max(0.0, min(value / most, 1.0)) * room
        parts.append(
            f'<text x="{_LABEL - 8}" y="{y + 14}" text-anchor="end">{escape(_cut(label))}</text>'
            f'<rect x="{_LABEL}" y="{y}" width="{width:.1f}" height="{_BAR}" class="bar"/>'
            f'<text x="{_LABEL + width + 6:.1f}" y="{y + 14}">{escape(said)}</text>'
        )
    return _svg(len(rows) * (_BAR + _GAP), "".join(parts))


def stacked(parts: Sequence[tuple[str, float]]) -> str:
    """Return one bar of shares, with a legend."""
    whole = sum(value for _, value in parts)
    if whole <= 0:
        return ""
    drawn, x = [], 0.0
    for at, (label, value) in enumerate(parts):
        width = value / whole * _WIDTH
        drawn.append(
            f'<rect x="{x:.1f}" y="0" width="{width:.1f}" height="28" class="part{at % 6}"/>'
        )
        left = (at % 3) * (_WIDTH / 3)
        y = 40 + (at // 3) * 20
        drawn.append(
            f'<rect x="{left:.1f}" y="{y}" width="12" height="12" class="part{at % 6}"/>'
            f'<text x="{left + 18:.1f}" y="{y + 11}">{escape(label)} {value / whole:.1%}</text>'
        )
        x += width
    return _svg(40 + 20 * ((len(parts) + 2) // 3), "".join(drawn))


def line(values: Sequence[float | None], labels: tuple[str, str], form: str = "{:.0%}") -> str:
    """Return a line through values at equal distances, broken where there is none.

    Args:
        values: at least one.
        labels: what is written below the first and the last.
        form: how a value is written at the axis.
    """
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    low, high = (low - 0.05, high + 0.05) if high - low < 1e-9 else (low, high)
    step = (_WIDTH - _LEFT - 8) / max(1, len(values) - 1)

    def place(at: int, value: float) -> tuple[float, float]:
        share = (value - low) / (high - low)
        return _LEFT + at * step, _TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM)

    parts = []
    for end, height in ((high, _TOP), (low, _HEIGHT - _BOTTOM)):
        parts.append(
            f'<line x1="{_LEFT}" y1="{height}" x2="{_WIDTH}" y2="{height}" class="axis"/>'
            f'<text x="{_LEFT - 4}" y="{height + 5}" text-anchor="end">{escape(form.format(end))}</text>'
        )
    run: list[str] = []
    for at, value in enumerate([*values, None]):
        if value is None:
            if run:
                parts.append(f'<polyline points="{" ".join(run)}" class="line"/>')
            run = []
            continue
        x, y = place(at, value)
        run.append(f"{x:.1f},{y:.1f}")
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" class="dot"/>')
    first, last = labels
    parts.append(
        f'<text x="{_LEFT}" y="{_HEIGHT - 4}">{escape(first)}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT - 4}" text-anchor="end">{escape(last)}</text>'
    )
    return _svg(_HEIGHT, "".join(parts))


def _svg(height: float, inner: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img">{inner}</svg>'


def _cut(label: str) -> str:
    return label if len(label) <= 28 else f"{label[:27]}…"
