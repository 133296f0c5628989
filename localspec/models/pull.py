"""Pulling by name: a pair brings all its models, a model brings itself."""

from pathlib import Path

from localspec.models.obtain import obtain
from localspec.models.paths import data_dir
from localspec.models.progress import Report
from localspec.models.registry import load_registry
from localspec.models.store import Store


def pull(name: str, progress: Report = lambda _: None) -> list[Path]:
    """Fetch a pair or a model, and return the verified files; what is here is not fetched again.

    A name that is both means the pair, which has the model of that name as its target.

    Raises:
        ModelUnavailable: no such name, or no source delivers it.
    """
    registry = load_registry()
    registry.require(name)
    if name not in registry.pairs:
        wanted = [name]
    else:
        pair = registry.pair(name)
        wanted = [pair.target] + ([pair.draft_model] if pair.draft_model else [])
    store = Store(data_dir())
    return [obtain(registry.model(each), store, progress=progress) for each in wanted]
