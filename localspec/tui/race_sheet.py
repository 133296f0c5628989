"""RaceSheet: one prompt, answered with and without drafting, side by side."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from localspec.display import clean, clean_line
from localspec.tui.exchange import Exchange
from localspec.tui.race import Race
from localspec.tui.sheets import Frame, Hanging

_REDRAW_S = 0.2
_NAMES = ("with drafting", "without")


class RaceSheet(ModalScreen[None]):
    """Shows a race.

    Args:
        race: has been started; the session feeds it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "leave", "Stop, then close")]

    def __init__(self, race: Race) -> None:
        super().__init__()
        self._race = race
        self._heads = [Static(markup=False, classes="head") for _ in _NAMES]
        self._lanes = [Hanging() for _ in _NAMES]
        self._sheet = Frame("Race", "", "race")
        self._verdict = Static(classes="verdict", markup=False)

    def compose(self) -> ComposeResult:
        """Return the verdict, and two lanes."""
        with self._sheet:
            with Horizontal(classes="heads"):
                yield from self._heads
            yield self._verdict
            with VerticalScroll(classes="lanes"), Horizontal(classes="texts"):
                yield from self._lanes

    def on_mount(self) -> None:
        """Draw, five times a second."""
        self.draw()
        self.set_interval(_REDRAW_S, self.draw)
        self.query_one(VerticalScroll).focus()

    def draw(self) -> None:
        """Show what there is."""
        race = self._race
        fork = race.fork() if race.done else None
        lanes = [*race.lanes, *[None] * (len(_NAMES) - len(race.lanes))]
        for name, head, view, lane in zip(_NAMES, self._heads, self._lanes, lanes, strict=True):
            head.update(Content(f"{name}\n{_figures(lane)}").stylize("bold", 0, len(name)))
            view.show(_text(lane, fork))
        self._sheet.tell_keys("Esc closes" if race.done else "Esc stops")
        self._verdict.update(clean_line(race.verdict()))
        if not race.done:
            self.query_one(VerticalScroll).scroll_end(animate=False)

    def action_leave(self) -> None:
        """Stop the race, or close the sheet when it is over."""
        if self._race.done:
            self.dismiss(None)
        else:
            self._race.stop()


def _figures(lane: Exchange | None) -> str:
    """Return how fast a lane wrote, and how long."""
    if lane is None:
        return "waits"
    took = "" if lane.finished is None else f" in {lane.finished.reply.decode_s:.1f} s"
    speed = f"{lane.tokens_per_s:.1f} tokens/s · " if lane.tokens_per_s else ""
    return f"{speed}{lane.tokens} tokens{took}"


def _text(lane: Exchange | None, fork: int | None) -> Content:
    """Return a lane's text, with a mark where it forks from the other's."""
    text = "" if lane is None else lane.thoughts + lane.answer
    if fork is None:
        return Content(clean(text))
    return Content.assemble(
        clean(text[:fork]), ("≠", "bold reverse"), (clean(text[fork:]), "$text-warning")
    )
