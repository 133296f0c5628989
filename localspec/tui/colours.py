"""Colours by what they mean, so that a drafter looks the same wherever it is drawn; the theme defines them.

Styles are Textual's, with the names of a theme's colours in them. Without colours they are only bold or not.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from textual.content import Content
from textual.theme import Theme

from localspec.decoding.drafters.register import drafters
from localspec.decoding.round import OFF
from localspec.display import clean
from localspec.tui.lens import Mark
from localspec.tui.stats import Span

DARK, LIGHT = "dark", "light"
_NAMES = "primary secondary accent warning error success foreground background surface panel"
_DARK = "6cb0f2 8a93a6 c6a0f6 e5b567 ef7a85 7cc38a dde1e8 14161b 1b1e25 242832 3b4252 181b21"
_LIGHT = "0a5ea8 5b6472 7d3fb5 8f5b00 b3261e 1f7a37 1f2328 fcfcfa f2f2ee e5e5df c4c4bc f2f2ee"


def _theme(name: str, colours: str) -> Theme:
    *main, bar, ground = [f"#{each}" for each in colours.split()]
    named: dict[str, Any] = dict(zip(_NAMES.split(), main, strict=True))
    variables = {"scrollbar": bar, "scrollbar-background": ground}
    return Theme(name, **named, variables=variables, dark=name == DARK)


THEMES = (_theme(DARK, _DARK), _theme(LIGHT, _LIGHT))
"""Ours, beside those that Textual brings."""

_MEANINGS: Mapping[str, str] = {
    "title": "bold",
    "dim": "dim",
    "good": "bold $text-success",
    "bad": "bold $text-error",
    "draft": "$success",
    "verify": "$secondary",
    "other": "dim",
    OFF: "dim",
}


def style_of(meaning: str) -> str:
    """Return how text of a meaning is written; as usual where the meaning is not known."""
    if meaning in drafters():
        return f"${drafters()[meaning].colour}"
    return _MEANINGS.get(meaning, "")


def tinted(text: str, mark: Mark, theme: Theme | None) -> Content:
    """Return a text in the colour of its origin, as by a felt pen; between marks without a theme."""
    if theme is None:
        return Content.assemble((mark.open, "dim"), text, (mark.close, "dim"))
    pale = "" if theme.ansi else f" on ${mark.colour}-muted"  # a terminal's own have no pale ones
    return Content.styled(text, f"$text-{mark.colour}{pale}" if mark.colour else "")


def keys_of(text: str) -> Content:
    """Return what keys do, each part of it a key and words behind it, so that the keys are seen first."""
    parts = [part.partition(" ") for part in text.split(" · ")]
    bold = "bold $text-accent"
    return Content(" · ").join(
        Content.assemble((key, bold), gap + words) for key, gap, words in parts
    )


def content_of(lines: Iterable[Sequence[Span]]) -> Content:
    """Return lines as a widget shows them."""
    return Content("\n").join(
        Content.assemble(*((clean(text), style_of(meaning)) for text, meaning in line))
        for line in lines
    )
