"""Paints what a terminal would show as pixels: the lines of a screen become a picture, and pictures one sheet.

Needs Pillow and a DejaVu Sans Mono, in which every sign of the screens is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual._compositor import LayoutUpdate
from textual.app import App

FONTS = Path("/usr/share/fonts/truetype/dejavu")
_FILES = {
    (False, False): "DejaVuSansMono.ttf",
    (True, False): "DejaVuSansMono-Bold.ttf",
    (False, True): "DejaVuSansMono-Oblique.ttf",
    (True, True): "DejaVuSansMono-BoldOblique.ttf",
}
# Blocks fill their cell, which letters of a font do only nearly: share of the height from below, and of the width.
_BLOCKS: Mapping[str, tuple[float, float]] = {
    **{mark: (eighths / 8, 1.0) for eighths, mark in enumerate("▁▂▃▄▅▆▇█", 1)},
    **{mark: (1.0, eighths / 8) for eighths, mark in enumerate("▏▎▍▌▋▊▉", 1)},
}
_SHADES = {"░": 0.25, "▒": 0.5, "▓": 0.75}
# How much of a dim letter is its own colour, and not its ground's.
_DIM = 0.6
_GAP = 16
_CAPTION = 14
_SHEET = (92, 96, 104)
_COLOURS = 128

Rgb = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Ground:
    """What a terminal shows where no colour is said.

    Args:
        ink: of letters.
        paper: behind them.
    """

    ink: Rgb
    paper: Rgb


BLACK = Ground((204, 204, 204), (0, 0, 0))


def lines_of(app: App[None]) -> list[list[Segment]]:
    """Return what is on an app's screen, sheets and what lies below them; as `App.export_screenshot` finds it."""
    compositor = app.screen._compositor  # noqa: SLF001 - there is no other way to it
    below = app._background_screens  # noqa: SLF001
    update = compositor.render_update(full=True, screen_stack=below)
    assert isinstance(update, LayoutUpdate)
    return [[part for strip in row for part in strip] for row in update.strips]


def painted(
    lines: Sequence[Sequence[Segment]], ground: Ground = BLACK, size: int = 10
) -> "Image.Image":
    """Return a picture of lines.

    Args:
        lines: in segments, each line as wide as the terminal.
        ground: what is shown where no colour is said.
        size: of the letters, in pixels; a cell has 0.6 of it in width and 1.2 in height.
    """
    width, height = round(size * 0.6), round(size * 1.2)
    columns = max((sum(each.cell_length for each in line) for line in lines), default=1)
    picture = Image.new("RGB", (columns * width, len(lines) * height), ground.paper)
    draw = ImageDraw.Draw(picture)
    for y, line in enumerate(lines):
        x = 0
        for segment in line:
            if not segment.cell_length:
                continue
            look = _Look.of(segment.style or Style(), ground)
            cells = segment.cell_length
            end = (x + cells) * width
            draw.rectangle((x * width, y * height, end - 1, (y + 1) * height - 1), fill=look.paper)
            for each in segment.text:
                _letter(draw, each, (x * width, y * height, width, height), look, size)
                x += cell_len(each)
            for row in look.rules(height):
                draw.line(
                    (end - cells * width, y * height + row, end - 1, y * height + row), look.ink
                )
    return picture


def sheet(rows: Sequence[Sequence[tuple[str, "Image.Image"]]]) -> "Image.Image":
    """Return rows of pictures, each with its caption above it, on one sheet of few colours."""
    width = max(sum(each.width + _GAP for _, each in row) for row in rows) + _GAP
    heights = [max(each.height for _, each in row) + _CAPTION + _GAP for row in rows]
    whole = Image.new("RGB", (width, sum(heights) + _GAP), _SHEET)
    draw, y = ImageDraw.Draw(whole), _GAP
    for row, height in zip(rows, heights, strict=True):
        x = _GAP
        for caption, picture in row:
            draw.text((x, y), caption, fill=(255, 255, 255), font=_font(False, False, 11))
            whole.paste(picture, (x, y + _CAPTION))
            x += picture.width + _GAP
        y += height
    # The method that keeps rare colours: most of a screen is ground.
    return whole.quantize(_COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)


@dataclass(frozen=True, slots=True)
class _Look:
    """How letters look: their colour, the one behind them, and the rest of a style."""

    ink: Rgb
    paper: Rgb
    bold: bool
    italic: bool
    underline: bool
    strike: bool

    @classmethod
    def of(cls, style: Style, ground: Ground) -> "_Look":
        ink, paper = _rgb(style.color, ground.ink), _rgb(style.bgcolor, ground.paper)
        if style.reverse:
            ink, paper = paper, ink
        if style.dim:
            ink = _mixed(ink, paper, _DIM)
        return cls(
            ink,
            paper,
            bool(style.bold),
            bool(style.italic),
            bool(style.underline),
            bool(style.strike),
        )

    def rules(self, height: int) -> list[int]:
        """Return at which heights of a cell a line runs through it."""
        return [height - 1] * self.underline + [height // 2] * self.strike


def _letter(
    draw: "ImageDraw.ImageDraw", sign: str, cell: tuple[int, int, int, int], look: _Look, size: int
) -> None:
    x, y, width, height = cell
    if sign in _BLOCKS:
        high, wide = _BLOCKS[sign]
        top = y + height - max(round(high * height), 1)
        right = x + max(round(wide * width), 1) - 1
        draw.rectangle((x, top, right, y + height - 1), fill=look.ink)
    elif sign in _SHADES:
        fill = _mixed(look.ink, look.paper, _SHADES[sign])
        draw.rectangle((x, y, x + width - 1, y + height - 1), fill=fill)
    elif sign.strip():
        font = _font(look.bold, look.italic, size)
        draw.text((x, y + round(size * 0.95)), sign, fill=look.ink, font=font, anchor="ls")


def _rgb(color: Color | None, usual: Rgb) -> Rgb:
    return usual if color is None or color.is_default else tuple(color.get_truecolor())  # type: ignore[return-value]


def _mixed(one: Rgb, other: Rgb, share: float) -> Rgb:
    red, green, blue = (
        round(first * share + second * (1 - share))
        for first, second in zip(one, other, strict=True)
    )
    return red, green, blue


@cache
def _font(bold: bool, italic: bool, size: int) -> "ImageFont.FreeTypeFont":
    return ImageFont.truetype(FONTS / _FILES[bold, italic], size)
