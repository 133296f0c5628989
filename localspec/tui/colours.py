"""Colours by what they mean, so that a drafter looks the same wherever it is shown; the theme says how.

Styles are Textual's, with the names of a theme's colours in them. Without colours they are only bold or not.
"""

from collections.abc import Mapping, Sequence

from textual.content import Content
from textual.theme import Theme

from localspec.decoding.drafters.register import DRAFTERS
from localspec.decoding.round import OFF
from localspec.display import clean

DARK, LIGHT = "dark", "light"

THEMES = (
    Theme(
        name=DARK,
        primary="#6cb0f2",
        secondary="#8a93a6",
        accent="#c6a0f6",
        warning="#e5b567",
        error="#ef7a85",
        success="#7cc38a",
        foreground="#dde1e8",
        background="#14161b",
        surface="#1b1e25",
        panel="#242832",
        variables={"scrollbar": "#3b4252", "scrollbar-background": "#181b21"},
        dark=True,
    ),
    Theme(
        name=LIGHT,
        primary="#0a5ea8",
        secondary="#5b6472",
        accent="#7d3fb5",
        warning="#8f5b00",
        error="#b3261e",
        success="#1f7a37",
        foreground="#1f2328",
        background="#fcfcfa",
        surface="#f2f2ee",
        panel="#e5e5df",
        variables={"scrollbar": "#c4c4bc", "scrollbar-background": "#f2f2ee"},
        dark=False,
    ),
)
"""Ours, beside those that Textual brings."""

_MEANINGS: Mapping[str, str] = {
    "title": "bold",
    "dim": "dim",
    "good": "bold $text-success",
    "bad": "bold $text-error",
    "gain": "$success",
    "loss": "$error",
    "draft": "$success",
    "verify": "$secondary",
    "other": "dim",
    OFF: "dim",
}

Line = Sequence[tuple[str, str]]
"""Texts with what they mean: a drafter, or a name above; empty for text as it is."""


def style_of(meaning: str) -> str:
    """Return how text of a meaning is written; as usual where the meaning is not known."""
    if meaning in DRAFTERS:
        return f"${DRAFTERS[meaning].colour}"
    return _MEANINGS.get(meaning, "")


def tint_of(colour: str, theme: Theme) -> str:
    """Return how text is marked with a colour of the theme, as by a felt pen; a terminal's own have no pale ones."""
    return f"$text-{colour}" if theme.ansi else f"$text-{colour} on ${colour}-muted"


def keys_of(text: str) -> Content:
    """Return what keys do, each part of it a key and words behind it, so that the keys are seen first."""
    parts = []
    for part in text.split(" · "):
        key, gap, words = part.partition(" ")
        parts.append(Content.assemble((key, "bold $text-accent"), gap + words))
    return Content(" · ").join(parts)


def content_of(lines: Sequence[Line]) -> Content:
    """Return lines as a widget shows them."""
    parts = [
        Content.assemble(*((clean(text), style_of(meaning)) for text, meaning in line))
        for line in lines
    ]
    return Content("\n").join(parts)
