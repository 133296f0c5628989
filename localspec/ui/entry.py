"""Entry: the composer and, above it, the list of what may be completed."""

from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from localspec.ui.completion import Completion
from localspec.ui.composer import Composer


class Entry(Vertical):
    """Composer and, above it, what may be completed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(id="entry")
        self.composer = Composer(folder)
        self._list = OptionList(id="completions", compact=True)
        self._completions: list[Completion] = []

    def compose(self) -> ComposeResult:
        """Return the two."""
        self._list.can_focus = False
        self._list.display = False
        yield self._list
        yield self.composer

    def on_composer_completing(self, event: Composer.Completing) -> None:
        """Show what fits what is being typed."""
        event.stop()
        self._completions = event.completions
        self._list.clear_options()
        width = max((len(each.text) for each in event.completions), default=0)
        self._list.add_options(
            Option(Content(f"{each.text:<{width}}  {each.hint}")) for each in event.completions
        )
        self._open(bool(event.completions))
        if event.completions:
            self._list.highlighted = 0

    def on_composer_chose(self, event: Composer.Chose) -> None:
        """Move in the list, take what is marked, or close it."""
        event.stop()
        if event.key == "escape":
            self._open(False)
        elif event.key == "up":
            self._list.action_cursor_up()
        elif event.key == "down":
            self._list.action_cursor_down()
        else:
            self._take(self._list.highlighted or 0, send=event.key == "enter")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take what was clicked on."""
        event.stop()
        self._take(event.option_index, send=False)
        self.composer.focus()

    def _take(self, index: int, *, send: bool) -> None:
        completion = self._completions[index]
        text, whole = completion.applied(), completion.whole
        self._open(False)
        # What is whole already needs no second Enter.
        if send and (text.strip() == self.composer.text.strip() or whole):
            self.composer.fill(text.rstrip())
            self._open(False)
            # Posted from here: what a parent has a child post stops at the parent.
            self.post_message(Composer.Sent(text.rstrip()))
            return
        self.composer.fill(text)

    def _open(self, is_open: bool) -> None:
        self._list.display = is_open
        self.composer.list_open = is_open
