"""Picker: the pairs that this machine can run, the tiny one a keystroke away."""

from textual import work

from localspec.ui.pairs import PairChoice, choices, judged
from localspec.ui.sheets import ListSheet, SheetRow

_FIRST = (
    "Nothing is installed yet. Enter fetches what is marked; the first is tiny and runs anywhere."
)
_LATER = "Enter loads what is marked, and fetches what is not here."
_OFFLINE = "You are offline: these are here."


class Picker(ListSheet):
    """Pairs to choose from. Returns the name of one.

    Args:
        loaded: name of the pair that is loaded; empty where none is.
        first: whether nothing is installed.
        offline: whether only what is here can be chosen.
    """

    def __init__(self, loaded: str, *, first: bool = False, offline: bool = False) -> None:
        self._loaded = loaded
        self._pairs = [each for each in choices() if each.here or not offline]
        note = _OFFLINE if offline else _FIRST if first else _LATER
        super().__init__("Models", self._rows(), note=note, marked=loaded)

    def on_mount(self) -> None:
        """Show what is known at once, and find out the rest."""
        super().on_mount()
        self._judge()

    @work(thread=True, exclusive=True)
    def _judge(self) -> None:
        for each in judged(list(self._pairs)):
            if not self.is_attached:
                return
            self.app.call_from_thread(self._learn, each)

    def _learn(self, choice: PairChoice) -> None:
        self._pairs = [choice if each.name == choice.name else each for each in self._pairs]
        self.fill(self._rows())

    def _rows(self) -> list[SheetRow]:
        rows = []
        for each in self._pairs:
            loaded = " (loaded)" if each.name == self._loaded else ""
            rows.append(SheetRow(each.name, each.name + loaded, each.hint))
        return rows or [SheetRow("", "no pair is here", "go online, or give a file with --target")]

    def _choose(self) -> None:
        if self.marked is not None and self.marked.key:
            self.dismiss(self.marked.key)
