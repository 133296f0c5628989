"""Picker: the models to choose from, what suits this machine first; and a larger context for the one that is loaded."""

from dataclasses import dataclass
from pathlib import Path

from textual import work

from localspec.errors import LocalspecError
from localspec.models.entries import ModelEntry
from localspec.models.gguf import read_model
from localspec.models.names import resolve
from localspec.models.registry import load_registry
from localspec.models.repository import local_file
from localspec.models.shape import model_shape
from localspec.options import LoadOptions
from localspec.plan.memory import kv_bytes
from localspec.resources import free_ram_bytes
from localspec.session.model_lines import line
from localspec.session.model_list import ModelRow, choices, measured_choices
from localspec.tui.sheets import ListSheet, SheetRow, having

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


def larger_context(target: str, n_ctx: int, kv_type: str, prompt: int) -> LargerContext | None:
    """Return twice the context, or as often as it has to be doubled for a prompt, up to the one that the model was trained for.

    Args:
        target: name or path of the model.
        n_ctx: tokens of the context that is loaded.
        kv_type: type of its cache.
        prompt: tokens that it must have room for, and for one more.

    Returns:
        None where there is no such one, or half of the free memory does not hold what it takes.
    """
    try:
        model = resolve(target, load_registry())
        path = local_file(model) if isinstance(model, ModelEntry) else model
        shape = model_shape(read_model(path)) if isinstance(path, Path) else None
    except LocalspecError:
        return None
    free = free_ram_bytes()
    if shape is None or shape.n_ctx_train is None or free is None:
        return None
    larger = 2 * n_ctx
    while larger <= prompt:
        larger *= 2
    larger = min(larger, shape.n_ctx_train)
    if larger <= prompt:
        return None

    def cache_bytes(tokens: int) -> int:
        options = LoadOptions(tokens, kv_type)
        return kv_bytes(shape.layers, options)

    more = cache_bytes(larger) - cache_bytes(n_ctx)
    return LargerContext(larger, more) if 0 < more <= _MOST_OF_FREE * free else None


_NOTE = "* on this machine · ★ suits it · ● loaded · size · tokens/s"
_OFFLINE = "You are offline: these models are on this machine."
_NONE = SheetRow("", "no models on this machine", "go online, or give a file with --target")


class Picker(ListSheet):
    """Models to choose from. Returns the name of a pair.

    Args:
        loaded: name of the pair that is loaded; empty where none is.
        offline: whether only what is here can be chosen.
    """

    def __init__(self, loaded: str, *, offline: bool = False) -> None:
        self._loaded, self._offline, self._words = loaded, offline, ""
        self._pairs = self._possible(choices())
        note = _OFFLINE if offline else _NOTE
        rows = self._matches("")
        super().__init__("Models", rows, note=note, marked=loaded, search=self._matches, plain=True)

    def on_mount(self) -> None:
        """Show what is known at once, and measure the rest."""
        super().on_mount()
        self._measure()

    @work(thread=True, exclusive=True)
    def _measure(self) -> None:
        rows = measured_choices()
        if self.is_attached:
            self.app.call_from_thread(self._learn, rows)

    def _learn(self, rows: list[ModelRow]) -> None:
        """Add figures to rows, which stay where they are."""
        places = {each.name: at for at, each in enumerate(self._pairs)}
        self._pairs = self._possible(rows)
        self._pairs.sort(key=lambda each: places.get(each.name, len(places)))
        self.fill(self._matches(self._words))

    def _possible(self, rows: list[ModelRow]) -> list[ModelRow]:
        return [each for each in rows if each.here or not self._offline]

    def _matches(self, words: str) -> list[SheetRow]:
        """Return the models whose line has all these words."""
        self._words = words
        width = max((len(each.name) for each in self._pairs), default=0)
        lines = [(e.name, line(e, width, loaded=e.name == self._loaded)) for e in self._pairs]
        return having([SheetRow(*each) for each in lines] or [_NONE], words)
