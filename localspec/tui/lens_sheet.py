"""LensSheet: an answer under the token lens, and above it, always in sight, what its colours mean."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.theme import Theme
from textual.widgets import Static

from localspec.chat.events import RoundDone
from localspec.tui.colours import tint_of
from localspec.tui.lens import Mark, counts, pieces
from localspec.tui.sheets import Frame, Hanging


class LensSheet(ModalScreen[None]):
    """Shows where every token of an answer came from.

    Args:
        happened: its rounds.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "dismiss(None)", "Close")]

    def __init__(self, happened: Sequence[RoundDone]) -> None:
        super().__init__()
        self._happened = happened

    def compose(self) -> ComposeResult:
        """Return the sheet."""
        theme = None if self.app.no_color else self.app.current_theme
        with Frame("Token lens", "Esc closes", "lens"):
            yield Static(lens_legend(self._happened, theme), classes="legend", markup=False)
            with VerticalScroll():
                yield Hanging(lens_text(self._happened, theme))

    def on_mount(self) -> None:
        """Let keys scroll."""
        self.query_one(VerticalScroll).focus()


def lens_text(happened: Sequence[RoundDone], theme: Theme | None) -> Content:
    """Return an answer whose tokens show where they come from.

    Args:
        happened: its rounds.
        theme: whose colours show it; None for marks instead.
    """
    return Content("").join(_shown(text, mark, theme) for text, mark in pieces(happened))


def lens_legend(happened: Sequence[RoundDone], theme: Theme | None) -> Content:
    """Return what the colours mean, or the marks, and how many tokens come from there; a line each."""
    return Content("\n").join(
        Content.assemble(_shown("text", mark, theme), f"  {count:>4}  {mark.meaning}")
        for mark, count in counts(happened)
    )


def _shown(text: str, mark: Mark, theme: Theme | None) -> Content:
    if theme is None:
        return Content.assemble((mark.open, "dim"), text, (mark.close, "dim"))
    return Content.styled(text, tint_of(mark.colour, theme) if mark.colour else "")
