"""Removing models: never a file that something else uses, and never one that is not ours."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from localspec.errors import ModelUnavailable
from localspec.models.entries import HubName, ModelEntry, shards_of
from localspec.models.imports import forget_import
from localspec.models.inventory import Item, inventory
from localspec.models.names import models_of
from localspec.models.pins import unpin
from localspec.models.registry import Registry
from localspec.models.store import Store


@dataclass(frozen=True, slots=True)
class Removal:
    """What would be removed, and what has to stay and why."""

    items: tuple[Item, ...]
    kept: tuple[tuple[Item, str], ...]
    shared: frozenset[str]  # sha256 of files, and of splits, that lose a name and keep another

    @property
    def frees_bytes(self) -> int:
        """How much of the disk it gives back, about."""
        ours = [item for item in self.items if item.where in {"store", "unfinished"}]
        kept = sum(
            shard.size_bytes
            for item in ours
            for shard in item.entry.shards
            if shard.sha256 in self.shared and item.entry.sha256 not in self.shared
        )
        freed = {
            item.entry.sha256: item.here_bytes
            for item in ours
            if item.entry.sha256 not in self.shared
        }
        return max(sum(freed.values()) - kept, 0)


def plan_removal(names: Sequence[str], registry: Registry, store: Store) -> Removal:
    """Return what `names`, of pairs, models or imported files, come to; what is not here is left out.

    Raises:
        ModelUnavailable: nothing has such a name.
    """
    here = inventory(registry, store)
    wanted: list[Item] = []
    for name in names:
        wanted += [item for item in _meant(name, here, registry) if item not in wanted]
    going, kept = list(wanted), []
    # What has to stay may keep its companion in use, so look again after each.
    while (found := next(_in_use(going, here, names, registry), None)) is not None:
        going.remove(found[0])
        kept.append(found)
    staying = {sha256 for item in here if item not in going for sha256 in _digests(item)}
    shared = staying & {sha256 for item in going for sha256 in _digests(item)}
    return Removal(tuple(going), tuple(kept), frozenset(shared))


def remove(removal: Removal, store: Store) -> int:
    """Remove what was planned; return how many bytes that freed."""
    freed = 0
    for item in removal.items:
        if item.imported:
            forget_import(store.root, item.name)
        if item.entry.shards and item.entry.sha256 not in removal.shared:
            store.unlink_shards(item.entry)
        for shard in shards_of(item.entry):
            if shard.sha256 not in removal.shared:
                freed += store.forget_partial(shard) + store.remove(shard)
        if item.entry.pin is not None:
            unpin(item.entry, store.root)
    return freed


def _digests(item: Item) -> set[str]:
    return {item.entry.sha256, *(shard.sha256 for shard in shards_of(item.entry))}


def _meant(name: str, here: Sequence[Item], registry: Registry) -> list[Item]:
    items = [
        item for item in here if item.name == name and (item.imported or not _known(name, registry))
    ]
    if items:
        return items
    try:
        entries = models_of(name, registry)
    except ModelUnavailable as error:
        names = ", ".join(item.name for item in here)
        raise ModelUnavailable(f"{error}; here are {names or 'none'}") from None
    unknown = [entry.text for entry in entries if isinstance(entry, HubName)]
    if name in unknown:
        names = ", ".join(item.name for item in here)
        raise ModelUnavailable(f"{name[:120]} is not on this machine; here are {names or 'none'}")
    wanted = {entry.name: entry for entry in entries if isinstance(entry, ModelEntry)}
    items = [item for item in here if item.name in wanted and not item.imported]
    # What was learnt of a model outlives its file, until its name is removed.
    learnt = [entry for entry in wanted.values() if entry.pin is not None]
    gone = [entry for entry in learnt if entry.name not in {item.name for item in items}]
    return [*items, *(Item(entry.name, entry, "gone", None, 0) for entry in gone)]


def _known(name: str, registry: Registry) -> bool:
    return name in registry.models or name in registry.pairs


def _in_use(
    going: Sequence[Item], here: Sequence[Item], names: Sequence[str], registry: Registry
) -> Iterator[tuple[Item, str]]:
    """Yield what may not go: another name has the same file, or a pair that stays needs it."""
    for item in going:
        same = [each.name for each in here if each.entry.sha256 == item.entry.sha256]
        staying = sorted(set(same) - {each.name for each in going})
        if staying and not item.imported:
            yield item, f"{staying[0]} is the same file"
    goes = {item.name for item in going}
    whole = {item.name for item in here if item.path is not None} - goes
    for pair in registry.pairs.values():
        if pair.name in names or pair.draft_model is None:
            continue
        pair_of = [registry.find(each) for each in (pair.target, pair.draft_model)]
        target, draft_model = (each.name if each else None for each in pair_of)
        for item in going:
            companion = {target: draft_model, draft_model: target}.get(item.name)
            if companion in whole and not item.imported and item.path is not None:
                yield item, f"pair {pair.name} uses it"
