"""Whether anything is installed, and what a name means. Reads no model, so that a start costs little."""

from dataclasses import replace

from localspec.engine.protocol import Load
from localspec.models.registry import Registry, load_registry
from localspec.models.store import Store
from localspec.storage.paths import data_dir


def nothing_is_here(registry: Registry | None = None) -> bool:
    """Return whether no pair has all of its models in the store."""
    registry = registry or load_registry()
    store = Store(data_dir())

    def here(name: str) -> bool:
        entry = registry.find(name)
        return entry is not None and entry.is_known and store.path_of(entry) is not None

    return not any(
        here(pair.target) and (pair.draft_model is None or here(pair.draft_model))
        for pair in registry.pairs.values()
    )


def named(load: Load, name: str) -> Load:
    """Return a request for what a name means, a pair or else a target, loaded like the one before."""
    is_pair = name in load_registry().pairs
    pair, target = (name, None) if is_pair else (None, name)
    return replace(load, pair=pair, target=target, draft_model=None)


def resumed(load: Load, name: str) -> Load:
    """Return a request for what a conversation was last held with, unless something else was asked for."""
    return named(load, name) if name and not (load.pair or load.target) else load
