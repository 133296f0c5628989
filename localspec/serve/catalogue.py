"""Catalogue: which models a request may name: those on the disk, by the names of the registry and of imports.

A request never starts a download, and no path is looked at because a request names it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from localspec.models.entries import ModelEntry
from localspec.models.ledger import IMPORTS
from localspec.models.registry import Registry, load_registry
from localspec.models.store import Store, is_here
from localspec.options import LaunchOptions, ReplyOptions
from localspec.serve.http import NotFound
from localspec.serve.residence import ServedModel
from localspec.storage.paths import data_dir


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
            what = "holds heads of another" if known.embedding is None else "makes vectors of texts"
            raise NotFound(f"model {name[:80]!r} {what}, and writes no answers")
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

    def listed(self) -> list[str]:
        """Return the names that requests may have, those of what the server was started with before the others."""
        names = dict.fromkeys(self.names)
        if not self.pinned:
            names |= dict.fromkeys(_here(load_registry(), Store(data_dir())))
        return list(names)


def _here(registry: Registry, store: Store) -> Iterator[str]:
    """Yield the names of what is on the disk."""
    for pair in registry.pairs.values():
        if _answers(registry.find(pair.target)):
            yield pair.name
    for entry in (*registry.models.values(), *IMPORTS.load(store.root).values()):
        if _answers(entry):
            yield entry.name


def _launch(
    name: str, like: LaunchOptions, registry: Registry, store: Store
) -> tuple[str, LaunchOptions] | None:
    """Return the usual name of a model that is on the disk, and what loads it, as another one is; None without one."""
    bare = replace(like, pair=None, target=None, draft_model=None, draft_lora=None, offline=True)
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
