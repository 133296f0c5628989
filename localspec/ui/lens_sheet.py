"""LensSheet: an answer under the token lens, and above it, always in sight, what its colours mean."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from localspec.chat.events import RoundDone
from localspec.ui.hanging import Hanging
from localspec.ui.sheets import Frame
from localspec.ui.texts import lens_legend, lens_text


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
