"""What is on this machine: every file in the store, under the names that it has, and what is known of it."""

import json
import re
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal

from localspec.models.entries import SHA256, HubName, ModelEntry, shards_of
from localspec.models.gguf import GgufHeader, read_model
from localspec.models.imports import load_imports
from localspec.models.names import look_up, resolve
from localspec.models.obtain import label
from localspec.models.registry import Registry
from localspec.models.store import Store

Where = Literal["store", "hub cache", "link", "unfinished", "gone"]
_SHOWN_DIGITS = 12

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
        name: what the registry or the user calls it; `sha256:…` where nobody knows it any more.
        entry: what its bytes are.
        where: `store` for a file of ours; `hub cache` and `link` for a pointer to a file of others;
            `unfinished` for a download that was cut; `gone` for an import whose file is gone.
        path: the file; None unless it is whole.
        here_bytes: how much of it is here.
    """

    name: str
    entry: ModelEntry
    where: Where
    path: Path | None
    here_bytes: int

    @property
    def imported(self) -> bool:
        """Whether the user brought it."""
        return self.entry.origin is not None


def inventory(registry: Registry, store: Store) -> list[Item]:
    """Return what is here, by name."""
    items = []
    for entry in registry.models.values():
        path, begun = store.path_of(entry), store.partial_bytes(entry)
        if path is not None:
            items.append(Item(entry.name, entry, where(path), path, entry.size_bytes))
        elif begun:
            items.append(Item(entry.name, entry, "unfinished", None, begun))
    for entry in load_imports(store.root).values():
        path = store.path_of(entry)
        place = "gone" if path is None else where(path)
        items.append(Item(entry.name, entry, place, path, entry.size_bytes if path else 0))
    entries = [*registry.models.values(), *(item.entry for item in items)]
    known = {shard.sha256 for entry in entries for shard in shards_of(entry)}
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
        if path.name in known or not re.fullmatch(SHA256, path.name) or not path.is_file():
            continue
        size = path.stat().st_size
        name = f"sha256:{path.name[:_SHOWN_DIGITS]}"
        entry = ModelEntry(name, size, path.name)
        items.append(Item(name, entry, where(path), path, size))
    return items


def facts_of(reference: str, registry: Registry, store: Store) -> dict[str, Fact]:
    """Return what is known of a model, by name; None where something is not known.

    The hub is asked only for what nothing on this machine names.

    Raises:
        ModelUnavailable: no such model or file.
        ModelFileError: the file is here and no sound GGUF.
    """
    found = resolve(reference, registry)
    if isinstance(found, HubName):
        found = look_up(reference, registry)
    if isinstance(found, ModelEntry):
        return _of_entry(found, store)
    header = read_model(found)
    return {"name": reference, "size_bytes": header.size_bytes, **_of_file(found, header)}


def _of_entry(entry: ModelEntry, store: Store) -> dict[str, Fact]:
    facts: dict[str, Fact] = {
        "name": entry.name,
        "size_bytes": entry.size_bytes or None,
        "params": entry.params,
        "active": entry.active,
        "context": entry.context,
        "licence": entry.licence,
        "sampling": [f"{name} {json.dumps(value)}" for name, value in entry.sampling] or None,
        "sha256": entry.sha256 or None,
        "learnt": None if entry.pin is None else entry.pin.date,
        "commit": None if entry.pin is None else entry.pin.commit,
        "sources": [label(source) for shard in shards_of(entry) for source in shard.sources],
    }
    path = store.path_of(entry)
    if path is None:
        begun = store.partial_bytes(entry)
        return {**facts, "quant": entry.quant or None, "here": False, "here_bytes": begun or None}
    of_file = _of_file(path, read_model(path))
    return {**facts, "here": True, **{key: of_file[key] for key in of_file if not facts.get(key)}}


def _of_file(path: Path, header: GgufHeader) -> dict[str, Fact]:
    tokenizer = header.tokenizer
    file_type = header.metadata.get("general.file_type")
    return {
        "architecture": header.architecture,
        "params": header.text("general.size_label"),
        "weights": sum(prod(tensor.shape) for tensor in header.tensors),
        "context": header.context_length,
        "quant": _FILE_TYPES.get(file_type) if isinstance(file_type, int) else None,
        "licence": header.text("general.license"),
        "tokenizer": " ".join(filter(None, (tokenizer.model, tokenizer.pre))),
        "n_vocab": tokenizer.n_vocab,
        "chat_template": header.chat_template is not None,
        "path": str(path),
        "where": where(path),
    }
