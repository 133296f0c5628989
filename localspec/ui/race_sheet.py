"""RaceSheet: one prompt, answered with and without drafting, side by side."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from localspec.ui.clean import clean, clean_line
from localspec.ui.exchange import Exchange
from localspec.ui.race import Race

_REDRAW_S = 0.2
_NAMES = ("with drafting", "without")


class RaceSheet(ModalScreen[None]):
    """Shows a race.

    Args:
        race: has been started; somebody else feeds it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "leave", "Stop, then close")]

    def __init__(self, race: Race) -> None:
        super().__init__()
        self._race = race
        self._lanes = [Static(markup=False), Static(markup=False)]
        self._heads = [Static(markup=False, classes="head"), Static(markup=False, classes="head")]
        self._verdict = Static(classes="hint", markup=False)

    def compose(self) -> ComposeResult:
        """Return two lanes and a verdict."""
        with Vertical(classes="sheet race"):
            with Horizontal(classes="heads"):
                yield from self._heads
            with VerticalScroll(classes="lanes"), Horizontal(classes="texts"):
                yield from self._lanes
            yield self._verdict

    def on_mount(self) -> None:
        """Draw, five times a second."""
        self.draw()
        self.set_interval(_REDRAW_S, self.draw)
        self.query_one(VerticalScroll).focus()

    def draw(self) -> None:
        """Show what there is."""
        fork = self._race.fork() if self._race.done else None
        for index, head in enumerate(self._heads):
            lane = self._race.lanes[index] if index < len(self._race.lanes) else None
            head.update(head_line(_NAMES[index], lane))
            self._lanes[index].update(text_of(lane, fork))
        self._verdict.update(clean_line(self._race.verdict()))
        if not self._race.done:
            self.query_one(VerticalScroll).scroll_end(animate=False)

    def action_leave(self) -> None:
        """Stop the race, or close the sheet when it is over."""
        if self._race.done:
            self.dismiss(None)
        else:
            self._race.stop()


def head_line(name: str, lane: Exchange | None) -> str:
    """Return what stands above a lane."""
    if lane is None:
        return f"{name} · waits"
    parts = [name]
    if lane.finished is not None:
        seconds = lane.finished.reply.decode_s + lane.finished.reply.prefill_s
        parts.append(f"{seconds:.1f} s")
    if lane.tokens_per_s is not None:
        parts.append(f"{lane.tokens_per_s:.1f} tokens/s")
    return " · ".join(parts)


def text_of(lane: Exchange | None, fork: int | None) -> Text:
    """Return a lane's text, with a mark where it forks from the other's."""
    if lane is None:
        return Text("")
    text = lane.thoughts + lane.answer
    if fork is None:
        return Text(clean(text))
    return Text.assemble(
        clean(text[:fork]), ("⑂", "bold reverse"), (clean(text[fork:]), "underline")
    )
