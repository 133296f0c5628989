"""Whether anything is installed. Reads no model, so that a start without a choice costs little."""

from localspec.models.paths import data_dir
from localspec.models.registry import Registry, load_registry
from localspec.models.store import Store


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
