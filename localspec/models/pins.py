"""What the hub said of models of which no registry knows the bytes: `pins.toml` beside the store.

Size and sha256 are learnt once, before the first download, and count from then on: the same
file is wanted the next time, whatever the repository has by then, and no network is needed to know
it. Names are those of the user's registry, or `user/repo:QUANT`. Knows no network.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from localspec.models.entries import HubSource, ModelEntry, shards_of
from localspec.models.ledger import read_ledger, write_ledger
from localspec.storage.files import private_directory
from localspec.storage.locks import locked

_FILE = "pins.toml"


def load_pins(root: Path) -> dict[str, ModelEntry]:
    """Return what was pinned, by name.

    Raises:
        LocalspecError: the list cannot be read.
    """
    return read_ledger(root / _FILE, "learnt.json", "pull the models again")


def with_pins(models: Mapping[str, ModelEntry], root: Path) -> dict[str, ModelEntry]:
    """Return a registry's models with what was learnt of them, and those that only the hub names.

    A registry's entry that names another file than the one that was learnt is another model.

    Raises:
        LocalspecError: the list cannot be read.
    """
    pins = load_pins(root)
    completed = {
        name: _completed(entry, pins.get(entry.full_name)) for name, entry in models.items()
    }
    return {**completed, **{name: entry for name, entry in pins.items() if "/" in name}}


def pin(entry: ModelEntry, root: Path) -> None:
    """Note what was learnt of a model; of the same name, the latest counts."""
    private_directory(root)
    with locked(root):
        pins = load_pins(root)
        write_ledger(root / _FILE, {**pins, _key(entry): replace(entry, name=_key(entry))}.values())


def unpin(entry: ModelEntry, root: Path) -> None:
    """Forget what was learnt of a model: the next pull takes what the hub has then."""
    with locked(root):
        pins = load_pins(root)
        if pins.pop(_key(entry), None) is not None:
            write_ledger(root / _FILE, pins.values())


def with_bytes_of(entry: ModelEntry, learnt: ModelEntry) -> ModelEntry:
    """Return a registry's entry with the bytes, and the commit, of what was learnt of it."""
    others = [source for source in entry.sources if not isinstance(source, HubSource)]
    return replace(
        entry,
        size_bytes=learnt.size_bytes,
        sha256=learnt.sha256,
        sources=(*learnt.sources, *others),
        shards=learnt.shards,
        pin=learnt.pin,
    )


def _key(entry: ModelEntry) -> str:
    # The shortest name of a registry's model depends on what else is in the registry.
    return entry.name if "/" in entry.name else entry.full_name


def _completed(entry: ModelEntry, pinned: ModelEntry | None) -> ModelEntry:
    if entry.is_known or pinned is None or _wanted(entry) != _wanted(pinned):
        return entry
    return with_bytes_of(entry, pinned)


def _wanted(entry: ModelEntry) -> list[tuple[str, str, str | None]]:
    """Return repository, file and revision of every file, the latter as it was asked for."""
    return [
        (hub.repo, hub.file, hub.revision if entry.pin is None else entry.pin.revision)
        for shard in shards_of(entry)
        if (hub := shard.hub) is not None
    ]
