"""What the hub said of models of which no registry knows the bytes: `pins.toml`, a file in a registry's own form.

Size and sha256 are learnt once, before the first download, and count from then on: the same
file is wanted the next time, whatever the repository has by then, and no network is needed to know
it. Names are those of the user's registry, or `user/repo:QUANT`. Knows no network.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from localspec.errors import LocalspecError, UsageError
from localspec.models.entries import (
    COMMIT,
    HubSource,
    ModelEntry,
    Name,
    Phrase,
    Pin,
    Positive,
    Repo,
    Segments,
    Sha256,
    of_shards,
    shards_of,
)
from localspec.storage.files import private_directory, read_bounded, write_atomic
from localspec.storage.locks import locked
from localspec.storage.paths import shown
from localspec.storage.toml import convert, dump_toml, key_error, parse_toml

_FILE = "pins.toml"


def load_pins(root: Path) -> dict[str, ModelEntry]:
    """Return what was pinned, by name.

    Raises:
        LocalspecError: the list cannot be read.
    """
    return read_ledger(root / _FILE, "pull the models again")


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


_NAME = r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,255}"  # also `user/repo:QUANT`
_MOST_BYTES = 16 << 20


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file of a model, as the program notes it."""

    size_bytes: Positive
    sha256: Sha256
    file: Segments = ""


class _Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A model as the program notes it: imported from `origin`, or learnt of `repo` at its commit `revision`."""

    files: Annotated[tuple[_File, ...], msgspec.Meta(min_length=1)]
    origin: Phrase | None = None
    repo: Repo | None = None
    revision: Annotated[str, msgspec.Meta(pattern=rf"\A{COMMIT}\Z")] | None = None
    branch: Name | None = None
    pinned: Annotated[str, msgspec.Meta(pattern=r"\A\d{4}-\d\d-\d\d\Z")] = ""
    quant: Name = ""

    def __post_init__(self) -> None:
        is_pin = bool(self.revision and self.pinned and all(each.file for each in self.files))
        if (self.repo is None) == is_pin or (self.origin is None) != is_pin:
            raise ValueError("is neither an import nor a pin")


class _Ledger(msgspec.Struct, forbid_unknown_fields=True):
    models: dict[str, Any] = {}


def read_ledger(path: Path, remedy: str) -> dict[str, ModelEntry]:
    """Return the entries of a file that the program keeps, by name; none where there is no file.

    Args:
        path: of the file.
        remedy: how to go on without it, for messages.

    Raises:
        LocalspecError: it cannot be read, or holds what the program does not write.
    """
    try:
        top = parse_toml(read_bounded(path, _MOST_BYTES).decode(), path.name)
        tables = convert(top, _Ledger, path.name).models
        return {name: _entry(name, table, path.name) for name, table in tables.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, UsageError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LocalspecError(
            f"{shown(path)} cannot be read ({reason}): fix or remove it, and {remedy}"
        ) from error


def _entry(name: str, table: object, file: str) -> ModelEntry:
    if not re.fullmatch(_NAME, name):
        raise key_error(file, "is not a usable name", "models", name)
    read = convert(table, _Model, file, "models", name)
    shards = [
        ModelEntry(
            f"{name} shard {number} of {len(read.files)}",
            each.size_bytes,
            each.sha256,
            sources=(HubSource(read.repo, each.file, read.revision),) if read.repo else (),
        )
        for number, each in enumerate(read.files, 1)
    ]
    pin = None if read.revision is None else Pin(read.pinned, read.revision, read.branch)
    return replace(of_shards(name, shards), quant=read.quant, pin=pin, origin=read.origin)


def write_ledger(path: Path, entries: Iterable[ModelEntry]) -> None:
    """Replace a file that the program keeps. The caller holds the lock of its directory."""
    tables = {entry.name: _table(entry) for entry in sorted(entries, key=lambda each: each.name)}
    content = dump_toml({"models": msgspec.to_builtins(tables)})
    if not path.exists() or path.read_bytes() != content:
        write_atomic(path, content)


def _table(entry: ModelEntry) -> _Model:
    files = shards_of(entry)
    hub, pin = files[0].hub, entry.pin
    return _Model(
        tuple(
            _File(each.size_bytes, each.sha256, each.hub.file if each.hub else "") for each in files
        ),
        origin=entry.origin,
        repo=hub.repo if hub else None,
        revision=hub.revision if hub else None,
        branch=pin.revision if pin else None,
        pinned=pin.date if pin else "",
        quant=entry.quant,
    )
