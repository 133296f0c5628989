"""What the program itself notes of models, in TOML files of the data directory: pins, imports, and draft models made here.

A pin is what the hub first answered about a model of which no registry knows the bytes: the same file is wanted the next
time, whatever the repository has by then, and no network is needed to know it. Its name is that of the user's registry,
or `user/repo:QUANT`. An import is a user's own file under a name. Knows no network.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from localspec.display import notice
from localspec.errors import LocalspecError, UsageError
from localspec.models.entries import HubSource, ModelEntry, shards_of
from localspec.storage.files import private_directory, read_bounded, write_atomic
from localspec.storage.locks import locked
from localspec.storage.paths import shown
from localspec.storage.toml import convert, dump_toml, key_error, parse_toml

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,255}")  # also `user/repo:QUANT`
_MOST_BYTES = 16 << 20


class _Models(Struct, forbid_unknown_fields=True):
    models: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class ModelLedger:
    """Entries by name in one file.

    Args:
        file: its name in the data directory.
        remedy: how to go on without it, for messages.
        has_names: whether the user gave its names: then it stays where it is, even if it cannot be used.
    """

    file: str
    remedy: str
    has_names: bool = False

    def load(self, root: Path) -> dict[str, ModelEntry]:
        """Return the entries by name; none where there is no file.

        A file that holds what this version does not write is set aside, with a notice.

        Raises:
            LocalspecError: it cannot be read, or has names of the user's and cannot be used.
        """
        path, models = root / self.file, {}
        try:
            text = read_bounded(path, _MOST_BYTES).decode()
            tables = convert(parse_toml(text, self.file), _Models, self.file).models
            for name, table in tables.items():
                if not _NAME.fullmatch(name):
                    raise key_error(self.file, "is not a usable name", "models", name)
                entry = convert(table, ModelEntry, self.file, "models", name)
                files = (entry, *entry.shards, *((entry.mmproj,) if entry.mmproj else ()))
                if not all(each.is_known for each in files):
                    raise key_error(self.file, "lacks a size or a sha256", "models", name)
                models[name] = replace(entry, name=name)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, UsageError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            if not (self.has_names or isinstance(error, OSError)):
                with suppress(FileNotFoundError):  # another process has set it aside
                    path.replace(path.with_name(f"{self.file}.damaged"))
                notice(f"{shown(path)} is now {self.file}.damaged ({reason}): {self.remedy}")
                return {}
            raise LocalspecError(
                f"{shown(path)} cannot be read ({reason}): fix or remove it, and {self.remedy}"
            ) from error
        return models

    def add(self, root: Path, name: str, entry: ModelEntry) -> None:
        """Note an entry; of the same name, the latest counts."""
        private_directory(root)
        with locked(root):
            self.write(root, {**self.load(root), name: entry})

    def remove(self, root: Path, name: str) -> None:
        """Forget an entry, if there is one; its file stays."""
        with locked(root):
            known = self.load(root)
            if known.pop(name, None) is not None:
                self.write(root, known)

    def write(self, root: Path, entries: Mapping[str, ModelEntry]) -> None:
        """Replace the file. The caller holds the lock of the directory."""
        path = root / self.file
        tables = {name: to_builtins(replace(each, name="")) for name, each in entries.items()}
        content = dump_toml({"models": dict(sorted(tables.items()))})
        if not path.exists() or path.read_bytes() != content:
            write_atomic(path, content)


PINS = ModelLedger("pins.toml", "pull the models again")
IMPORTS = ModelLedger(
    "imports.toml",
    "import the files again (an older version wrote another form: names and places stand in it)",
    has_names=True,
)
TAILORED = ModelLedger("tailored.toml", "tailor again")


def pin_name(entry: ModelEntry) -> str:
    """Return the name under which a model is pinned, which does not depend on what else a registry has."""
    return entry.name if "/" in entry.name else entry.full_name


def with_pins(models: Mapping[str, ModelEntry], root: Path) -> dict[str, ModelEntry]:
    """Return a registry's models with what was learnt of them, and those that only the hub names.

    A registry's entry that names another file than the one that was learnt is another model.

    Raises:
        LocalspecError: the list cannot be read.
    """
    pins = PINS.load(root)
    completed = {}
    for name, entry in models.items():
        pinned = pins.get(entry.full_name)
        same = pinned is not None and _wanted(entry) == _wanted(pinned)
        completed[name] = with_bytes_of(entry, pinned) if pinned and same else entry
    return {**completed, **{name: entry for name, entry in pins.items() if "/" in name}}


def with_bytes_of(entry: ModelEntry, learnt: ModelEntry) -> ModelEntry:
    """Return a registry's entry with the bytes, and the commit, of what was learnt of it that the registry does not say."""
    if learnt.mmproj is not None and entry.mmproj is not None and not entry.mmproj.is_known:
        mmproj = replace(learnt.mmproj, takes=entry.mmproj.takes)
        entry = replace(entry, mmproj=mmproj, pin=learnt.pin)
    if entry.is_known:
        return entry
    others = [source for source in entry.sources if not isinstance(source, HubSource)]
    hub = [source for source in learnt.sources if isinstance(source, HubSource)]
    return replace(
        entry,
        size_bytes=learnt.size_bytes,
        sha256=learnt.sha256,
        sources=(*hub, *others),
        shards=learnt.shards,
        pin=learnt.pin,
    )


def _wanted(entry: ModelEntry) -> list[tuple[str, str, str | None]]:
    """Return repository, file and revision of every file, the latter as the registry has it."""
    return [
        (hub.repo, hub.file, entry.pin.revision if entry.pin else hub.revision)
        for shard in shards_of(entry)
        if (hub := shard.hub) is not None
    ]
