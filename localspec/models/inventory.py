"""What is on this machine, under the names that it has, and what of it can be removed.

Never is a file removed that something else uses, nor one that is not ours.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal

from localspec.errors import ModelUnavailable
from localspec.models.architectures import how_it_drafts
from localspec.models.entries import SHA256, HubName, ModelEntry, PairEntry, files_of, shards_of
from localspec.models.gguf import GgufHeader, read_model
from localspec.models.ledger import IMPORTS, PINS, TAILORED, pin_name
from localspec.models.mmproj import encoded, in_words, mmproj_of, takes
from localspec.models.names import look_up, models_of, resolve
from localspec.models.registry import Registry
from localspec.models.sampling import BY_FILE, of_header
from localspec.models.store import Store
from localspec.storage.files import size_text

Where = Literal["store", "hub cache", "link", "unfinished", "damaged", "gone"]
_NAME_DIGITS = 12

Fact = str | int | bool | list[str] | None

# llama.cpp's `llama_ftype`: how most of the weights are stored.
_FILE_TYPE_NAMES = (
    "F32 F16 Q4_0 Q4_1 - - - Q8_0 Q5_0 Q5_1 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M "
    "Q6_K IQ2_XXS IQ2_XS Q2_K_S IQ3_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ3_M IQ2_S IQ2_M IQ4_XS IQ1_M "
    "BF16"
)
_FILE_TYPES = dict(enumerate(_FILE_TYPE_NAMES.split()))


@dataclass(frozen=True, slots=True)
class Item:
    """A model that is here, or was begun.

    Args:
        name: what the registry or the user calls it; `sha256:…` where no list names it any more.
        entry: what its bytes are.
        where: `store` for a file of ours; `hub cache` and `link` for a pointer to a file of others;
            `unfinished` for a download that was cut; `damaged` for a file of another size; `gone` for an import whose
            file is gone.
        path: the file; None unless it is whole.
        here_bytes: how much of it is here.
        mmproj_bytes: how much of its mmproj file is here.
    """

    name: str
    entry: ModelEntry
    where: Where
    path: Path | None
    here_bytes: int
    mmproj_bytes: int = 0

    @property
    def imported(self) -> bool:
        """Whether the user brought it."""
        return self.entry.origin is not None


def inventory(registry: Registry, store: Store) -> list[Item]:
    """Return what is here, by name; also what no registry and no import names: of an entry that was taken out, say."""
    items = []
    for entry in registry.models.values():
        path, begun = store.path_of(entry), store.partial_bytes(entry)
        mmproj = _mmproj_bytes(entry, store)
        if path is not None:
            items.append(Item(entry.name, entry, where(path), path, entry.size_bytes, mmproj))
        elif (damaged := store.damaged_bytes(entry)) is not None:
            items.append(Item(entry.name, entry, "damaged", None, begun + damaged, mmproj))
        elif begun:
            items.append(Item(entry.name, entry, "unfinished", None, begun, mmproj))
    for entry in IMPORTS.load(store.root).values():
        path, mmproj = store.path_of(entry), _mmproj_bytes(entry, store)
        damaged = store.damaged_bytes(entry)
        place: Where = "gone" if damaged is None else "damaged"
        place = place if path is None else where(path)
        here = damaged or 0 if path is None else entry.size_bytes
        items.append(Item(entry.name, entry, place, path, here, mmproj))
    known = {shard.sha256 for entry in registry.models.values() for shard in shards_of(entry)}
    known |= {file.sha256 for item in items for file in files_of(item.entry)}
    for path in (store.root / "blobs").glob("*"):
        if path.name not in known and re.fullmatch(SHA256, path.name) and path.is_file():
            name = f"sha256:{path.name[:_NAME_DIGITS]}"
            entry = ModelEntry(name, path.stat().st_size, path.name)
            items.append(Item(name, entry, where(path), path, entry.size_bytes))
    return sorted(items, key=lambda item: item.name)


def _mmproj_bytes(entry: ModelEntry, store: Store) -> int:
    """Return how much of a model's mmproj file is here."""
    if entry.mmproj is None or store.path_of(entry.mmproj) is None:
        return store.partial_bytes(entry.mmproj) if entry.mmproj else 0
    return entry.mmproj.size_bytes


def where(path: Path) -> Where:
    """Return whose file a name in the store means; of several files, the first one's."""
    if path.parent.parent.name == "sets":
        path = path.parent / path.readlink()
    if not path.is_symlink():
        return "link" if path.stat().st_nlink > 1 else "store"
    in_cache = any(parent.name.startswith("models--") for parent in path.readlink().parents)
    return "hub cache" if in_cache else "link"


def facts_of(reference: str, registry: Registry, store: Store) -> dict[str, Fact]:
    """Return what is known of a model, by name; None where something is not known.

    The hub is asked only for what nothing on this machine names.

    Raises:
        ModelUnavailable: no such model or file.
        ModelFileError: the file is here and no sound GGUF.
    """
    entry = resolve(reference, registry)
    if isinstance(entry, HubName):
        entry = look_up(reference, registry)
    if isinstance(entry, Path):
        header = read_model(entry)
        own = {**_of_file(entry, header), **_media(entry)}
        if not entry.is_relative_to(store.root):
            own["where"] = None
        if media := encoded(header):
            own["takes"] = in_words(media).split(", ")[1:]
        return {"name": reference, "size_bytes": header.size_bytes, **own}
    sources = [source.label for shard in shards_of(entry) for source in shard.sources]
    facts: dict[str, Fact] = {
        "name": entry.name,
        "size_bytes": entry.size_bytes or None,
        **{
            name: getattr(entry, name)
            for name in ("params", "active", "context", "licence", "tools")
        },
        "sampling": [f"{name} {json.dumps(value)}" for name, value in entry.sampling] or None,
        "sha256": entry.sha256 or None,
        "learnt": None if entry.pin is None else entry.pin.date,
        "commit": None if entry.pin is None else entry.pin.commit,
        "made of": entry.origin,
        "sources": sources,
        **_media(entry),
    }
    path = store.path_of(entry)
    if path is None:
        begun = store.partial_bytes(entry)
        return {**facts, "quant": entry.quant or None, "here": False, "here_bytes": begun or None}
    of_file = _of_file(path, read_model(path))
    return {**facts, "here": True, **{key: of_file[key] for key in of_file if not facts.get(key)}}


def _media(model: ModelEntry | Path) -> dict[str, Fact]:
    """Return what a model takes, and its mmproj file, or which one is still to be fetched."""
    path = mmproj_of(model)
    mmproj = None if path is None else str(path)
    if path is None and isinstance(model, ModelEntry) and model.mmproj is not None:
        size = size_text(model.mmproj.size_bytes) if model.mmproj.size_bytes else "size unknown"
        name = model.mmproj.hub.file if model.mmproj.hub else "in its repository"
        mmproj = f"{name}, {size}, not here"
    return {"takes": in_words(takes(model)).split(", "), "mmproj": mmproj}


def _of_file(path: Path, header: GgufHeader) -> dict[str, Fact]:
    # Heads alone often have none.
    tokenizer = header.tokenizer if "tokenizer.ggml.tokens" in header.metadata else None
    names = (tokenizer.model, tokenizer.pre) if tokenizer else ()
    file_type, sampling = header.metadata.get("general.file_type"), of_header(header)
    return {
        "architecture": header.architecture,
        "params": header.text("general.size_label"),
        "weights": sum(prod(tensor.shape) for tensor in header.tensors),
        "context": header.context_length,
        "quant": _FILE_TYPES.get(file_type) if isinstance(file_type, int) else None,
        "drafting": how_it_drafts(header),
        "sampling": [f"{name} {json.dumps(value)}" for name, value in sampling.items()] or None,
        "sampling_is": BY_FILE if sampling else None,
        "licence": header.text("general.license"),
        "tokenizer": " ".join(filter(None, names)) or None,
        "n_vocab": tokenizer.n_vocab if tokenizer else None,
        "chat_template": header.chat_template is not None,
        "path": str(path),
        "where": where(path),
    }


@dataclass(frozen=True, slots=True)
class Removal:
    """What would be removed, and what has to stay and why."""

    items: tuple[Item, ...]
    stays: tuple[tuple[Item, str], ...]
    shared: frozenset[str]  # sha256 of files, and of splits, that lose a name and keep another
    lacking: tuple[str, ...] = ()  # pairs that stay, and lose the draft model that was named itself

    @property
    def is_empty(self) -> bool:
        """Whether nothing of what was named is here."""
        return not (self.items or self.stays)

    @property
    def frees_bytes(self) -> int:
        """How much of the disk it gives back, about."""
        ours = [item for item in self.items if item.where in {"store", "unfinished", "damaged"}]
        going = {item.entry.sha256: item for item in ours if item.entry.sha256 not in self.shared}
        stay = sum(
            shard.size_bytes
            for item in going.values()
            for shard in item.entry.shards
            if shard.sha256 in self.shared
        )
        mmproj = {
            item.entry.mmproj.sha256: item.mmproj_bytes
            for item in ours
            if item.entry.mmproj and item.entry.mmproj.sha256 not in self.shared
        }
        here = sum(item.here_bytes for item in going.values())
        return max(here - stay, 0) + sum(mmproj.values())


def plan_removal(names: Sequence[str], registry: Registry, store: Store) -> Removal:
    """Return what `names`, of pairs, models or imported files, come to; what is not here is left out.

    Raises:
        ModelUnavailable: nothing has such a name.
    """
    here = inventory(registry, store)
    going = list(dict.fromkeys(item for name in names for item in _items_of(name, here, registry)))
    stays = []
    # What has to stay may keep its companion in use, so look again after each.
    while (used := next(_in_use(going, here, names, registry), None)) is not None:
        going.remove(used[0])
        stays.append(used)
    whole = {item.name for item in here if item.path is not None and item not in going}
    lacking = [
        pair.name
        for pair in registry.pairs.values()
        for target, draft_model in [_names_of(pair, registry)]
        if target in whole and any(item.name == draft_model for item in going)
    ]
    staying = {sha256 for item in here if item not in going for sha256 in _digests(item)}
    shared = staying & {sha256 for item in going for sha256 in _digests(item)}
    return Removal(tuple(going), tuple(stays), frozenset(shared), tuple(lacking))


def remove(removal: Removal, store: Store) -> int:
    """Remove what was planned; return how many bytes that freed."""
    freed = 0
    for item in removal.items:
        if item.imported:
            IMPORTS.remove(store.root, item.name)
            TAILORED.remove(store.root, item.name)
        if item.entry.shards and item.entry.sha256 not in removal.shared:
            store.unlink_shards(item.entry)
        for file in files_of(item.entry):
            if file.sha256 not in removal.shared:
                freed += store.forget_partial(file) + store.remove(file)
        if item.entry.pin is not None:
            PINS.remove(store.root, pin_name(item.entry))
    return freed


def _digests(item: Item) -> set[str]:
    return {item.entry.sha256, *(file.sha256 for file in files_of(item.entry))}


def _items_of(name: str, here: Sequence[Item], registry: Registry) -> list[Item]:
    is_known = name in registry.models or name in registry.pairs
    items = [each for each in here if each.name == name and (each.imported or not is_known)]
    if items:
        return items
    present = f"here are {', '.join(item.name for item in here) or 'none'}"
    try:
        entries = models_of(name, registry)
    except ModelUnavailable as error:
        raise ModelUnavailable(f"{error}; {present}") from None
    if any(isinstance(entry, HubName) and entry.text == name for entry in entries):
        raise ModelUnavailable(f"{name[:120]} is not on this machine; {present}")
    wanted = {entry.name: entry for entry in entries if isinstance(entry, ModelEntry)}
    items = [item for item in here if item.name in wanted and not item.imported]
    # What was learnt of a model outlives its file, until its name is removed.
    gone = [
        each for each in wanted.values() if each.pin and each.name not in {i.name for i in items}
    ]
    return [*items, *(Item(entry.name, entry, "gone", None, 0) for entry in gone)]


def _in_use(
    going: Sequence[Item], here: Sequence[Item], names: Sequence[str], registry: Registry
) -> Iterator[tuple[Item, str]]:
    """Yield what may not go: another name has the same file, or a pair that stays needs it.

    A draft model that was named itself may: its target is of use without it.
    """
    ours = [item for item in going if not item.imported]
    goes = {item.name for item in going}
    for item in ours:
        same = {each.name for each in here if each.entry.sha256 == item.entry.sha256} - goes
        if same:
            yield item, f"{min(same)} is the same file"
    whole = {item.name for item in here if item.path is not None} - goes
    for pair in registry.pairs.values():
        if pair.name in names or pair.draft_model is None:
            continue
        target, draft_model = _names_of(pair, registry)
        companions = {target: draft_model, draft_model: target}
        for item in ours:
            is_named_draft = item.name == draft_model and item.name in names
            if item.path is not None and companions.get(item.name) in whole and not is_named_draft:
                yield item, f"pair {pair.name} uses it"


def _names_of(pair: PairEntry, registry: Registry) -> tuple[str | None, str | None]:
    both = [registry.find(each) if each else None for each in (pair.target, pair.draft_model)]
    target, draft_model = (each.name if each else None for each in both)
    return target, draft_model
