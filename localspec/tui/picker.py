"""Picker: the models to choose from, what suits this machine first; and a larger context for the one that is loaded."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType

from localspec.errors import LocalspecError
from localspec.launch.rows import ModelRow, choices, measured_choices
from localspec.models.entries import ModelEntry
from localspec.models.gguf import read_model
from localspec.models.memory import layer_kv_bytes, model_shape
from localspec.models.names import resolve
from localspec.models.registry import load_registry
from localspec.models.repository import local_file
from localspec.options import LoadOptions
from localspec.resources import free_ram_bytes
from localspec.tui.sheets import ListSheet, SheetRow

_MOST_OF_FREE = 0.5


@dataclass(frozen=True, slots=True)
class LargerContext:
    """A context that could be had.

    Args:
        n_ctx: its tokens.
        more_bytes: what it takes beyond the one that is loaded.
    """

    n_ctx: int
    more_bytes: int


def larger_context(target: str, n_ctx: int, kv_type: str) -> LargerContext | None:
    """Return twice the context, or what is left up to the one that the model was trained for.

    Args:
        target: name or path of the model.
        n_ctx: tokens of the context that is loaded.
        kv_type: type of its cache.

    Returns:
        None where there is no larger one, or half of the free memory does not hold what it takes.
    """
    try:
        found = resolve(target, load_registry())
        path = local_file(found) if isinstance(found, ModelEntry) else found
        shape = model_shape(read_model(path)) if isinstance(path, Path) else None
    except LocalspecError:
        return None
    free = free_ram_bytes()
    if shape is None or shape.n_ctx_train is None or free is None:
        return None
    larger = min(2 * n_ctx, shape.n_ctx_train)

    def cache_bytes(tokens: int) -> int:
        options = LoadOptions(tokens, kv_type)
        return sum(layer_kv_bytes(layer, options) for layer in shape.layers)

    more = cache_bytes(larger) - cache_bytes(n_ctx)
    return LargerContext(larger, more) if 0 < more <= _MOST_OF_FREE * free else None


LEAVE = "\0leave"
"""What the first picker returns where the user wants no model."""
_ALL = "\0all"
_FIRST = "These suit this machine best. Enter makes one your default model."
_OWN_FIRST = (
    "You have these, and others suit this machine best. Enter makes one your default model."
)
_LATER = "* on this machine · ★ suits it · ● loaded · size · tokens/s"
_OFFLINE = "You are offline: these models are on this machine."
_NONE = SheetRow("", "no models on this machine", "go online, or give a file with --target")


class Picker(ListSheet):
    """Models to choose from. Returns the name of a pair.

    Args:
        loaded: name of the pair that is loaded; empty where none is.
        first: whether none was ever chosen: only what suits best is visible, the whole list by a key.
        offline: whether only what is here can be chosen.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "show_all", "All models", show=False),
        Binding("n", "leave", "Leave", show=False),
        Binding("ctrl+c", "leave", "Leave", show=False, priority=True),
    ]

    def __init__(self, loaded: str, *, first: bool = False, offline: bool = False) -> None:
        self._loaded, self._few, self._first, self._offline = loaded, first, first, offline
        self._pairs, self._words = self._possible(choices()), ""
        note = _OWN_FIRST if any(each.own for each in self._pairs) else _FIRST
        super().__init__(
            "Choose a model" if first else "Models",
            # What suits best is not known yet, and a list that is exchanged under the user's eyes is worse than none.
            [SheetRow("", "looking at this machine")] if first else self._rows(),
            note=_OFFLINE if offline else note if first else _LATER,
            keys="Enter chooses · a all · n quits" if first else "Enter chooses · Esc closes",
            marked=loaded,
            search=None if first else self._matches,  # those few are chosen by single keys
            plain=not first,
        )

    def on_mount(self) -> None:
        """Show what is known at once, and measure the rest."""
        super().on_mount()
        self._measure()

    def action_show_all(self) -> None:
        """Show every model."""
        self._few = False
        self.list.add_class("lines")
        self.fill(self._rows())

    def action_leave(self) -> None:
        """Choose none."""
        self.dismiss(LEAVE if self._first else None)

    @work(thread=True, exclusive=True)
    def _measure(self) -> None:
        rows = measured_choices()
        if self.is_attached:
            self.app.call_from_thread(self._learn, rows)

    def _learn(self, rows: list[ModelRow]) -> None:
        places = {each.name: at for at, each in enumerate(self._pairs)}
        self._pairs = self._possible(rows)
        if not self._few:  # figures are added to rows that stay where they are
            self._pairs.sort(key=lambda each: places.get(each.name, len(places)))
        self.fill(self._matches(self._words))

    def _possible(self, rows: list[ModelRow]) -> list[ModelRow]:
        return [each for each in rows if each.here or not self._offline]

    def _matches(self, words: str) -> list[SheetRow]:
        """Return the models whose line has all these words."""
        self._words = words
        rows = self._rows()
        return [
            row for row in rows if all(word in row.text.lower() for word in words.lower().split())
        ]

    def _rows(self) -> list[SheetRow]:
        best = [each for each in self._pairs if each.recommended or each.own]
        if self._few and best:
            rows = [SheetRow(each.name, each.name, each.hint) for each in best]
            return [*rows, SheetRow(_ALL, "all models")]
        width = max((len(each.name) for each in self._pairs), default=0)
        return [
            SheetRow(each.name, each.line(width, loaded=each.name == self._loaded))
            for each in self._pairs
        ] or [_NONE]

    def choose(self) -> None:
        """Return what is marked, or show all."""
        if self.marked is not None and self.marked.key == _ALL:
            self.action_show_all()
        else:
            super().choose()
