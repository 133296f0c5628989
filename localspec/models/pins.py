"""What the hub said of models of which no registry knows the bytes: `pins.toml`, a file in a registry's own form.

Size and sha256 are learnt once, before the first download, and count from then on: the same
file is wanted the next time, whatever the repository has by then, and no network is needed to know
it. Names are those of the user's registry, or `user/repo:QUANT`. Knows no network.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from localspec.errors import LocalspecError, UsageError
from localspec.models.entries import HubSource, ModelEntry, read_model, shards_of
from localspec.models.toml import Table, parse_toml
from localspec.storage.files import private_directory, read_bounded, write_atomic
from localspec.storage.locks import locked
from localspec.storage.paths import shown

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


_NAME = r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,255}"  # also `user/repo:QUANT`
_MOST_BYTES = 16 << 20


def read_ledger(path: Path, before: str, remedy: str) -> dict[str, ModelEntry]:
    """Return the entries of a file that the program keeps, by name; none where there is no file.

    Args:
        path: of the file.
        before: the name beside it under which an earlier version kept the same as JSON.
        remedy: how to go on without it, for messages.

    Raises:
        LocalspecError: it cannot be read, or holds what the program does not write.
    """
    path = path if os.path.lexists(path) else path.with_name(before)
    try:
        text = read_bounded(path, _MOST_BYTES).decode()
        is_old = path.name == before
        top = Table({"models": _of_before(text)}, before) if is_old else parse_toml(text, path.name)
        models = [read_model(key, table, kept=True) for key, table in top.tables("models", _NAME)]
        top.finish()
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, UsageError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LocalspecError(
            f"{shown(path)} cannot be read ({reason}): fix or remove it, and {remedy}"
        ) from error
    return {model.name: model for model in models}


def write_ledger(path: Path, entries: Iterable[ModelEntry]) -> None:
    """Replace a file that the program keeps. The caller holds the lock of its directory."""
    tables = [_kept_text(entry) for entry in sorted(entries, key=lambda entry: entry.name)]
    content = "\n".join(tables).encode()
    if not path.exists() or path.read_bytes() != content:
        write_atomic(path, content)


def _kept_text(entry: ModelEntry) -> str:
    files = shards_of(entry)
    hub, pin = files[0].hub, entry.pin
    values = {
        "origin": entry.origin,
        "repo": hub and hub.repo,
        "revision": hub and hub.revision,
        "branch": pin and pin.revision,
        "pinned": pin and pin.date,
        "quant": entry.quant,
    }
    lines = [f"[models.{_quoted(entry.name)}]"]
    lines += [f"{key} = {_quoted(value)}" for key, value in values.items() if value]
    lines.append("files = [")
    for each in files:
        file = f"file = {_quoted(each.hub.file)}, " if each.hub else ""
        lines.append(f'  {{ {file}size_bytes = {each.size_bytes}, sha256 = "{each.sha256}" }},')
    return "\n".join([*lines, "]", ""])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # names and printable text alone come here


def _of_before(text: str) -> dict[str, Any]:
    """Return what an earlier version kept as JSON, under the keys of today."""
    try:
        tables = {}
        for name, old in json.loads(text).items():
            parts = old.get("shards") or [(old.get("sha256"), old.get("size_bytes"))]
            files = [{"sha256": sha256, "size_bytes": size} for sha256, size in parts]
            values = {key: old.get(key) for key in ("origin", "repo", "quant")}
            values |= {"revision": old.get("commit"), "branch": old.get("revision")}
            values |= {"pinned": old.get("date"), "files": old.get("files") or files}
            tables[name] = {key: value for key, value in values.items() if value}
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise ValueError("it is damaged") from error
    return tables
