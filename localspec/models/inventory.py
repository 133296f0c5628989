"""What is on this machine: every file in the store, under the names that it has."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from localspec.models.imported import load_imported
from localspec.models.registry import ModelEntry, Registry
from localspec.models.shard_set import shards_of
from localspec.models.store import Store

Where = Literal["store", "hub cache", "link", "unfinished", "gone"]
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SHOWN_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Item:
    """A model that is here, or was begun.

    Args:
        name: what the registry or the user calls it; `sha256:…` where nobody knows it any more.
        entry: what its bytes are.
        where: `store` for a file of ours; `hub cache` and `link` for a pointer to a file of others;
            `unfinished` for a download that was cut; `gone` for an import whose file is gone.
        path: the file; None unless it is whole.
        here_bytes: how much of it is here.
        imported: the user brought it.
    """

    name: str
    entry: ModelEntry
    where: Where
    path: Path | None
    here_bytes: int
    imported: bool = False


def inventory(registry: Registry, store: Store) -> list[Item]:
    """Return what is here, by name."""
    items = []
    entries = {entry.name: entry for entry in registry.models.values()}
    for entry in entries.values():
        path, begun = store.path_of(entry), store.partial_bytes(entry)
        if path is not None:
            items.append(Item(entry.name, entry, where(path), path, entry.size_bytes))
        elif begun:
            items.append(Item(entry.name, entry, "unfinished", None, begun))
    for each in load_imported(store.root).values():
        path = store.path_of(each.entry)
        place = where(path) if path is not None else "gone"
        size = each.size_bytes if path is not None else 0
        items.append(Item(each.name, each.entry, place, path, size, imported=True))
    named = [item.entry for item in items] + list(entries.values())
    known = {shard.sha256 for entry in named for shard in shards_of(entry)}
    items += _unnamed(store, known)
    return sorted(items, key=lambda item: item.name)


def where(path: Path) -> Where:
    """Return whose file a name in the store means; of several files, the first one's."""
    if path.parent.parent.name == "sets":
        path = path.parent / path.readlink()
    if not path.is_symlink():
        return "link" if path.stat().st_nlink > 1 else "store"
    target = path.readlink()
    in_cache = any(parent.name.startswith("models--") for parent in target.parents)
    return "hub cache" if in_cache else "link"


def _unnamed(store: Store, known: set[str]) -> list[Item]:
    """Return what no registry and no import names: of an entry that was taken out, say."""
    items = []
    for path in sorted((store.root / "blobs").glob("*")):
        if path.name in known or not _SHA256.fullmatch(path.name) or not path.is_file():
            continue
        size = path.stat().st_size
        name = f"sha256:{path.name[:_SHOWN_DIGITS]}"
        entry = ModelEntry(name, size, path.name, None, None, None, ())
        items.append(Item(name, entry, where(path), path, size))
    return items
