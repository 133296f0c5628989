"""Catalogue: which models a request may name: those on the disk, by the names of the registry and of imports.

A request never starts a download, and no path is looked at because a request names it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.api import LaunchOptions, LocalspecError, ReplyOptions, data_dir, load_registry
from localspec.models.entries import ModelEntry
from localspec.models.ledger import IMPORTS
from localspec.models.mmproj import mmproj_of, takes
from localspec.models.names import resolve
from localspec.models.registry import Registry
from localspec.models.requested import named_models, without_files
from localspec.models.store import Store, is_here
from localspec.options import LoadOptions
from localspec.plugins.serve.http import NotFound
from localspec.plugins.serve.model_pool import ServedModel

_USUAL_RANKER = "bge-reranker-v2-m3"
"""What to fetch where no model makes scores."""
LATEST = ":latest"
"""What Ollama's clients add to a name that has no tag."""


@dataclass(frozen=True, slots=True, eq=False)
class Catalogue:
    """The models that requests may name.

    Args:
        models: what the server was started with; the first is that of requests which name none.
        options_of: returns how a model answers where a request does not say, by its name.
        pinned: whether there are no others.
    """

    models: tuple[ServedModel, ...]
    options_of: Callable[[str], ReplyOptions]
    pinned: bool = False

    @property
    def first(self) -> ServedModel:
        """The model of requests that name none."""
        return self.models[0]

    @property
    def names(self) -> list[str]:
        """The names of what the server was started with."""
        return [name for each in self.models for name in (each.name, *each.names)]

    def find(self, name: str) -> ServedModel:
        """Return the model of a name; an empty one is the first's.

        Raises:
            NotFound: there is none, or it is not on the disk.
        """
        name = _without_latest(name)
        started = self._started(name) if name else self.first
        if started is not None:
            return started
        if self.pinned:
            raise NotFound(
                f"model {name[:80]!r} is not served here: ask for {' or '.join(self.names)}"
            )
        registry, store = load_registry(), Store(data_dir())
        entry = _launch(name, self.first.launch, registry, store)
        known = registry.find(name)
        if entry is None and known is not None and not known.writes:
            embedding = known.embedding
            what = (
                "has draft heads of another model" if embedding is None else "is an embedding model"
            )
            what = "is a reranker" if embedding is not None and embedding.ranks else what
            raise NotFound(f"model {name[:80]!r} {what} and cannot generate text")
        if entry is None and registry.knows(name):
            raise NotFound(
                f"model {name[:80]!r} is not on this machine: run `localspec pull {registry.name(name)}`"
            )
        if entry is None:
            raise NotFound(
                f"there is no model {name[:80]!r}: ask for {self.first.name}, or another that /v1/models lists"
            )
        called, launch = entry
        return self._started(called) or ServedModel(called, launch, self.options_of(called))

    def _started(self, name: str) -> ServedModel | None:
        """Return the model of a name, if the server was started with it."""
        return next((each for each in self.models if name in (each.name, *each.names)), None)

    def embedder(self, name: str, *, ranks: bool = False) -> ServedModel:
        """Return the model of a name, to make vectors; an empty one is that of the first which does nothing else.

        Args:
            name: of any model: one that writes makes vectors, too, and where nothing else does, the first.
            ranks: look for one that makes scores, where no name is given.

        Raises:
            NotFound: there is none, or it is not on the disk.
        """
        registry, store = load_registry(), Store(data_dir())
        name = _without_latest(name) or self._usual_embedder(registry, store, ranks=ranks)
        started = self._started(name)
        if self.pinned and started is None:
            raise NotFound(
                f"model {name[:80]!r} is not served here: ask for {' or '.join(self.names)}"
            )
        pair = registry.pairs.get(registry.name(name))
        known = registry.find(name if pair is None else pair.target)
        entry = IMPORTS.load(store.root).get(name) or known
        if started is not None:
            target, _ = named_models(started.launch, registry)
        elif entry is None:
            raise NotFound(f"there is no model {name[:80]!r}: ask for one that /v1/models lists")
        elif not is_here(entry):
            raise NotFound(
                f"model {name[:80]!r} is not on this machine: run `localspec pull {entry.name}`"
            )
        else:
            target = entry.name
        like = self.first.launch
        load = replace(like.load, n_ctx=None, kv_type=LoadOptions().kv_type)
        launch = LaunchOptions(target=target, load=load, offline=True, fit=like.fit)
        return ServedModel(target, launch, ReplyOptions(), embeds=True)

    def _usual_embedder(self, registry: Registry, store: Store, *, ranks: bool) -> str:
        found = None if self.pinned else next(_embedders(registry, store, ranks=ranks), None)
        if found is None and ranks:
            raise NotFound(
                f"no model here ranks texts: run `localspec pull {_USUAL_RANKER}`, and serve without --pin"
            )
        return self.first.name if found is None else found

    def listed(self) -> list[str]:
        """Return the names that requests may have: of what the server was started with, of others that write, and of what makes vectors."""
        names = dict.fromkeys(self.names)
        if not self.pinned:
            registry, store = load_registry(), Store(data_dir())
            names |= dict.fromkeys(_here(registry, store))
            for ranks in (False, True):
                names |= dict.fromkeys(_embedders(registry, store, ranks=ranks))
        return list(names)


def target_of(model: ServedModel) -> ModelEntry | Path | None:
    """Return what the registry says of a model, or its file; None where neither is known."""
    try:
        target = resolve(named_models(model.launch, registry := load_registry())[0], registry)
    except LocalspecError:
        return None
    return target if isinstance(target, ModelEntry | Path) else None


def senses_of(model: ServedModel) -> tuple[bool, bool]:
    """Return whether a model takes pictures, and whether sounds, as its files on the disk say."""
    target = target_of(model)
    if target is None or model.launch.reads_text_only or mmproj_of(target) is None:
        return False, False
    media = takes(target)
    return "image" in media, "audio" in media


def _without_latest(name: str) -> str:
    """Return a name as the registry or an import has it."""
    bare = name.removesuffix(LATEST)
    return name if bare != name and name in IMPORTS.load(data_dir()) else bare


def _here(registry: Registry, store: Store) -> Iterator[str]:
    """Yield the names of what is on the disk."""
    for pair in registry.pairs.values():
        if _answers(registry.find(pair.target)):
            yield pair.name
    for entry in (*registry.models.values(), *IMPORTS.load(store.root).values()):
        if _answers(entry):
            yield entry.name


def _embedders(registry: Registry, store: Store, *, ranks: bool) -> Iterator[str]:
    """Yield the names of models on the disk that make vectors, or scores, and nothing else."""
    for entry in (*registry.models.values(), *IMPORTS.load(store.root).values()):
        if entry.embedding is not None and entry.embedding.ranks == ranks and is_here(entry):
            yield entry.name


def _launch(
    name: str, like: LaunchOptions, registry: Registry, store: Store
) -> tuple[str, LaunchOptions] | None:
    """Return the usual name of a model that is on the disk, and what loads it, as another one is; None without one."""
    bare = replace(without_files(like), pair=None, target=None, offline=True)
    imported = IMPORTS.load(store.root).get(name)
    if imported is not None:
        return (name, replace(bare, target=name)) if _answers(imported) else None
    if not registry.knows(name):
        return None
    usual = registry.name(name)
    pair = registry.pairs.get(usual)
    target = registry.find(usual if pair is None else pair.target)
    if target is None or not _answers(target):
        return None
    if pair is None:
        return target.name, replace(bare, target=target.name)
    drafts = pair.draft_model is None or is_here(registry.find(pair.draft_model))
    whole = replace(bare, pair=pair.name) if drafts else replace(bare, target=target.name)
    return pair.name, whole


def _answers(entry: ModelEntry | None) -> bool:
    """Return whether a model is on the disk and writes texts."""
    return entry is not None and entry.writes and is_here(entry)
