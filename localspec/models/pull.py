"""Pulling by name: a pair brings all its models, a model brings itself."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.models.hub_reference import HubReference, hub_reference
from localspec.models.imported import imported_paths
from localspec.models.learning import learn
from localspec.models.learnt import remember
from localspec.models.paths import data_dir
from localspec.models.progress import Report
from localspec.models.reference import resolve
from localspec.models.registry import ModelEntry, Registry, load_registry
from localspec.models.store import Store
from localspec.models.together import obtain_together


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one name stands for: a pair, or a model alone; a path is a file that is here already."""

    name: str
    target: ModelEntry | Path
    draft_model: ModelEntry | Path | None = None

    @property
    def models(self) -> tuple[ModelEntry | Path, ...]:
        """The target, and the draft model if there is one."""
        return (self.target,) if self.draft_model is None else (self.target, self.draft_model)


def pull(
    *names: str,
    progress: Report = lambda _: None,
    offline: bool = False,
    mirrors: Sequence[str] | None = None,
) -> list[Path]:
    """Fetch pairs and models, and return the verified files; what is here is not fetched again.

    Raises:
        ModelUnavailable: no such name, or no source delivers it.
    """
    found = wanted(names, offline=offline)
    return fetch(models_of_all(found), offline=offline, progress=progress, mirrors=mirrors)


def wanted(names: Sequence[str], *, offline: bool = False) -> list[Wanted]:
    """Return what names stand for, with all that has to be known to fetch it. Fetches nothing.

    A name that is both means the pair, which has the model of that name as its target. An imported
    file is here by definition. `user/repo:QUANT` means a model on the hub.

    Raises:
        ModelUnavailable: no such name, or the hub does not tell what it is.
    """
    registry = load_registry()
    imported = imported_paths(data_dir())
    # All names first: one that is misspelt should not cost a question to the hub.
    found = [
        (name, [imported[name]] if name in imported else models_of(name, registry))
        for name in names
    ]
    return [
        Wanted(name, *(learn(each, offline=offline) for each in models)) for name, models in found
    ]


def _name(name: str, models: Sequence[ModelEntry | Path]) -> str:
    """Return the name that lists have: of a pair, as it was written; of a model, its own."""
    alone = models[0] if len(models) == 1 else None
    return alone.name if isinstance(alone, ModelEntry) else name


def models_of_all(found: Iterable[Wanted]) -> list[ModelEntry | Path]:
    """Return all models that are wanted, each once, in order."""
    return list(dict.fromkeys(model for each in found for model in each.models))


def fetch(
    models: Sequence[ModelEntry | Path],
    *,
    offline: bool = False,
    progress: Report = lambda _: None,
    mirrors: Sequence[str] | None = None,
) -> list[Path]:
    """Return the files of models, in order, those that are missing fetched side by side.

    What was learnt of a model is remembered first, so that the next try wants the same file.

    Raises:
        IntegrityError: a model arrived with other bytes.
        ModelUnavailable: a model cannot be had, or the disk has no room for all of them.
    """
    store = Store(data_dir())
    entries = list(dict.fromkeys(each for each in models if isinstance(each, ModelEntry)))
    _remember_all(entries, store.root)
    paths = dict(
        zip(entries, obtain_together(entries, store, offline, progress, mirrors), strict=True)
    )
    _remember_all(entries, store.root)  # `rm` may have been at work meanwhile
    return [paths[each] if isinstance(each, ModelEntry) else each for each in models]


def _remember_all(entries: Iterable[ModelEntry], root: Path) -> None:
    for entry in entries:
        if entry.learnt is not None:
            remember(entry, root)


def models_of(name: str, registry: Registry) -> list[ModelEntry | Path | HubReference]:
    """Return the models that a name stands for: a pair's target and draft model, or one model.

    A user's own pair may name files by their paths, and models on the hub.

    Raises:
        ModelUnavailable: no pair or model has this name, or a file of the pair is not there.
    """
    if name in registry.pairs:
        pair = registry.pairs[name]
        references = [pair.target] + ([pair.draft_model] if pair.draft_model else [])
        return [resolve(reference, registry) for reference in references]
    if registry.find(name) is None and hub_reference(name) is not None:
        return [resolve(name, registry)]
    registry.require(name)
    return [registry.model(name)]
