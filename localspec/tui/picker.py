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
_KEYS = "Enter chooses · Esc closes"
_KEYS_FIRST = "Enter chooses · a all · n quits"

_FIRST = "These suit this machine best. Enter makes one your default model."
_OWN_FIRST = (
    "You have these, and others suit this machine best. Enter makes one your default model."
)
_LATER = "* on this machine · ★ suits it · ● loaded · size · tokens/s"
_LOOKING = "looking at this machine"
_OFFLINE = "You are offline: these models are on this machine."


class Picker(ListSheet):
    """Models to choose from. Returns the name of a pair.

    Args:
        loaded: name of the pair that is loaded; empty where none is.
        first: whether nobody ever chose: only what suits best is shown, the whole list by a key.
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
        owned = any(each.own for each in self._pairs)
        note = _OFFLINE if offline else _LATER
        if first and not offline:
            note = _OWN_FIRST if owned else _FIRST
        title = "Choose a model" if first else "Models"
        super().__init__(
            title,
            [],
            note=note,
            keys=_KEYS_FIRST if first else _KEYS,
            # Those few are chosen by single keys.
            search=None if first else self._fitting,
        )
        # What suits best is not known yet, and a list that is exchanged under the user's eyes is worse than none.
        self.rows = [SheetRow("", _LOOKING)] if first else self._rows()
        self._begin_at = next((n for n, row in enumerate(self.rows) if row.key == loaded), 0)

    def on_mount(self) -> None:
        """Show what is known at once, and find out the rest."""
        super().on_mount()
        self._measure()

    def action_show_all(self) -> None:
        """Show every model."""
        self._few = False
        self.fill(self._rows())

    def action_leave(self) -> None:
        """Choose none."""
        self.dismiss(LEAVE if self._first else None)

    @work(thread=True, exclusive=True)
    def _measure(self) -> None:
        found = measured_choices()
        if self.is_attached:
            self.app.call_from_thread(self._learn, found)

    def _learn(self, found: list[ModelRow]) -> None:
        places = {each.name: at for at, each in enumerate(self._pairs)}
        self._pairs = self._possible(found)
        if not self._few:  # figures are added to rows that stay where they are
            self._pairs.sort(key=lambda each: places.get(each.name, len(places)))
        self.fill(self._fitting(self._words))

    def _possible(self, found: list[ModelRow]) -> list[ModelRow]:
        return [each for each in found if each.here or not self._offline]

    def _fitting(self, words: str) -> list[SheetRow]:
        """Return the models whose name, or what is said of it, has all these words."""
        self._words = words
        rows = self._rows()
        wanted = words.lower().split()
        return [row for row in rows if all(word in row.text.lower() for word in wanted)]

    def _rows(self) -> list[SheetRow]:
        if not self._pairs:
            return [
                SheetRow("", "no models on this machine", "go online, or give a file with --target")
            ]
        best = [each for each in self._pairs if each.recommended or each.own]
        self.list.set_class(not (self._few and best), "lines")
        if self._few and best:
            rows = [SheetRow(each.name, each.name, each.hint) for each in best]
            return [*rows, SheetRow(_ALL, "all models")]
        width = max(len(each.name) for each in self._pairs)
        return [
            SheetRow(each.name, each.line(width, loaded=each.name == self._loaded))
            for each in self._pairs
        ]

    def _choose(self) -> None:
        if self.marked is None or not self.marked.key:
            return
        if self.marked.key == _ALL:
            self.action_show_all()
        else:
            self.dismiss(self.marked.key)
