"""Files in which the program notes models, in a registry's own form: pins, and imports.

Knows how entries are written and read again, not what they are noted for.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from localspec.errors import LocalspecError, UsageError
from localspec.models.entries import ModelEntry, shards_of
from localspec.models.registry_file import read_model
from localspec.models.toml import Table, parse_toml
from localspec.storage.files import read_bounded, write_atomic
from localspec.storage.paths import shown

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
            f"{shown(path)} cannot be read ({reason}): mend or remove it, and {remedy}"
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
