"""Pictures in cells of the terminal: two pixels a cell, one above the other, by the colours of a half block."""

from functools import lru_cache

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from localspec.errors import UsageError
from localspec.media import picture

# Not textual-image's: it asks the terminal as it is imported and as it draws, where Textual reads the keys.
_CELL = "▀"
PICTURE = "picture"
"""In the meta of cells: they are no text, and are not copied."""


@lru_cache(256)
def picture_strips(data: bytes, columns: int, rows: int) -> tuple[Strip, ...]:
    """Return a picture in so many cells at most; nothing of a damaged one."""
    try:
        width, height, rgb = picture(data, "a picture", (columns, 2 * rows))
    except UsageError:
        return ()
    pixels = [
        [Color.from_rgb(*rgb[at : at + 3]) for at in range(y * width * 3, (y + 1) * width * 3, 3)]
        for y in range(height)
    ]
    below: list[list[Color] | list[None]] = [*pixels[1::2], [None] * width]  # under an odd row
    return tuple(
        Strip(
            [
                Segment(_CELL, Style(color=upper, bgcolor=lower, meta={PICTURE: True}))
                for upper, lower in zip(*pair, strict=True)
            ],
            width,
        )
        for pair in zip(pixels[::2], below, strict=False)
    )
