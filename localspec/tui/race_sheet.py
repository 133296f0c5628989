"""RaceSheet: one prompt, answered with and without drafting, side by side."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from localspec.display import clean, clean_line, shortened
from localspec.tui.exchange import Exchange
from localspec.tui.race import Race
from localspec.tui.sheets import Frame, Hanging

_REDRAW_S = 0.2
_NAMES = ("with drafting", "without")
_COLOURS = ("$primary", "$secondary")
_FIGURES = len(" 1234.5 tokens/s")


class RaceSheet(ModalScreen[None]):
    """Shows a race.

    Args:
        race: has been started; somebody else feeds it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "leave", "Stop, then close")]

    def __init__(self, race: Race) -> None:
        super().__init__()
        self._race = race
        self._lanes = [Hanging(), Hanging()]
        self._heads = [Static(markup=False, classes="head"), Static(markup=False, classes="head")]
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
        fastest = max((each.tokens_per_s or 0.0 for each in race.lanes), default=0.0)
        for index, head in enumerate(self._heads):
            lane = race.lanes[index] if index < len(race.lanes) else None
            room = head.content_size.width - _FIGURES
            bar = speed_bar(lane, fastest, room, _COLOURS[index])
            line = head_line(_NAMES[index], lane, head.content_size.width)
            head.update(Content("\n").join([line, bar]))
            self._lanes[index].show(text_of(lane, fork))
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


def head_line(name: str, lane: Exchange | None, width: int) -> Content:
    """Return what stands above a lane: its name, and how long it wrote, as far as there is room."""
    if lane is None:
        told = "waits"
    elif lane.finished is None:
        told = f"{lane.tokens} tokens"
    else:
        told = f"{lane.tokens} tokens in {lane.finished.reply.decode_s:.1f} s"
    return Content(shortened(f"{name} · {told}", width)).stylize("bold", 0, len(name))


def speed_bar(lane: Exchange | None, fastest: float, width: int, colour: str) -> Content:
    """Return the speed of a lane, as a bar and in figures; that of the fastest fills the width."""
    speed = None if lane is None else lane.tokens_per_s
    if not speed or not fastest:
        return Content("")
    bar = "█" * max(round(speed / fastest * width), 1)
    return Content.assemble((bar, colour), f" {speed:.1f} tokens/s")


def text_of(lane: Exchange | None, fork: int | None) -> Content:
    """Return a lane's text, with a mark where it forks from the other's."""
    if lane is None:
        return Content("")
    text = lane.thoughts + lane.answer
    if fork is None:
        return Content(clean(text))
    return Content.assemble(
        clean(text[:fork]), ("≠", "bold reverse"), (clean(text[fork:]), "$text-warning")
    )
