"""Pulling by name: a pair brings all its models, a model brings itself."""

from collections.abc import Sequence
from pathlib import Path

from localspec.errors import ModelUnavailable
from localspec.models.hub_files import HubReference, find_on_hub, hub_reference
from localspec.models.imported import Imported, imported_paths, remember
from localspec.models.paths import data_dir
from localspec.models.progress import Report
from localspec.models.reference import resolve
from localspec.models.registry import ModelEntry, Registry, load_registry
from localspec.models.store import Store
from localspec.models.together import obtain_together


def pull(
    *names: str,
    progress: Report = lambda _: None,
    offline: bool = False,
    mirrors: Sequence[str] | None = None,
) -> list[Path]:
    """Fetch pairs and models, and return the verified files; what is here is not fetched again.

    A name that is both means the pair, which has the model of that name as its target. An imported
    file is here by definition. `user/repo:QUANT` means a file on the hub, which keeps that name.

    Raises:
        ModelUnavailable: no such name, or no source delivers it.
    """
    registry, store = load_registry(), Store(data_dir())
    imported = imported_paths(store.root)
    wanted: list[ModelEntry | Path] = []
    on_hub: list[ModelEntry] = []
    for name in names:
        found: list[ModelEntry | Path]
        if name in imported:
            found = [imported[name]]
        elif (reference := _on_hub(name, registry)) is not None:
            on_hub.append(_look_up(reference, offline))
            found = [on_hub[-1]]
        else:
            found = models_of(name, registry)
        wanted += [each for each in found if each not in wanted]
    entries = [each for each in wanted if isinstance(each, ModelEntry)]
    paths = dict(
        zip(entries, obtain_together(entries, store, offline, progress, mirrors), strict=True)
    )
    for entry in on_hub:
        if not entry.shards:
            remember(Imported(entry.name, entry.sha256, entry.size_bytes, "the hub"), store.root)
    return [paths[each] if isinstance(each, ModelEntry) else each for each in wanted]


def models_of(name: str, registry: Registry) -> list[ModelEntry | Path]:
    """Return the models that a name stands for: a pair's target and draft model, or one model.

    A user's own pair may name files by their paths.

    Raises:
        ModelUnavailable: no pair or model has this name, or a file of the pair is not there.
    """
    registry.require(name)
    if name not in registry.pairs:
        return [registry.model(name)]
    pair = registry.pairs[name]
    references = [pair.target] + ([pair.draft_model] if pair.draft_model else [])
    return [resolve(reference, registry) for reference in references]


def _on_hub(name: str, registry: Registry) -> HubReference | None:
    known = name in registry.pairs or registry.find(name) is not None
    return None if known else hub_reference(name)


def _look_up(reference: HubReference, offline: bool) -> ModelEntry:
    if offline:
        raise ModelUnavailable(
            f"{reference.text} is not on this machine: go online and pull it, or give a known name"
        )
    return find_on_hub(reference)
