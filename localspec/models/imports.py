"""Files that the user brought: their names, in `imports.toml` beside the store.

The store points to such a file, or holds a copy; either way it is known by its sha256.
"""

import re
from dataclasses import replace
from pathlib import Path

from localspec.errors import ModelUnavailable, UsageError
from localspec.models.entries import ModelEntry, of_shards, shards_of
from localspec.models.gguf import other_shards, read_header
from localspec.models.ledger import read_ledger, write_ledger
from localspec.models.registry import Registry
from localspec.models.store import Store, sha256_of
from localspec.storage.files import private_directory
from localspec.storage.locks import locked
from localspec.storage.paths import shown

_FILE = "imports.toml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,79}")


def load_imports(root: Path) -> dict[str, ModelEntry]:
    """Return the imported models by name.

    Raises:
        LocalspecError: the list cannot be read.
    """
    return read_ledger(root / _FILE, "imported.json", "import the files again")


def imported_path(imported: ModelEntry, store: Store) -> Path:
    """Return where an imported file is.

    Raises:
        ModelUnavailable: it was moved or removed since.
    """
    path = store.path_of(imported)
    if path is None:
        raise ModelUnavailable(
            f"{imported.name} was imported from {imported.origin}, which is gone or another "
            f"file now: pull or import it again, or `localspec rm {imported.name}`"
        )
    return path


def import_file(
    file: Path, name: str | None, registry: Registry, store: Store, *, copy: bool = False
) -> ModelEntry:
    """Give a GGUF file a name, and let the store point to it or hold a copy.

    Args:
        file: the file; its header is checked first.
        name: what to call it; None makes a name of the file's.
        registry: its names are taken, but for files with the very bytes that it promises.
        store: takes it in.
        copy: copy it instead of pointing to it.

    Raises:
        ModelUnavailable: the file cannot be read.
        ModelFileError: it is no sound GGUF.
        UsageError: the name cannot be used or is taken.
        OSError: the store does not take it.
    """
    files = [file.resolve(), *(each.resolve() for each in other_shards(file, read_header(file)))]
    name = _name_for(file) if name is None else name
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:80]!r} cannot be a name: use letters, digits and . _ : -, at most 80 of them"
        )
    parts = [
        ModelEntry(f"{name} shard {number} of {len(files)}", each.stat().st_size, sha256_of(each))
        for number, each in enumerate(files, 1)
    ]
    imported = replace(of_shards(name, parts), origin=shown(files[0]))
    private_directory(store.root)
    with locked(store.root):
        known = load_imports(store.root)
        taken = [each.sha256 for each in (known.get(name), registry.models.get(name)) if each]
        if name in registry.pairs and not taken:
            taken = [""]
        if any(sha256 != imported.sha256 for sha256 in taken):
            raise UsageError(
                f"the name {name} is taken by another model: give another one with --name"
            )
        for shard, each in zip(shards_of(imported), files, strict=True):
            if copy:
                store.copy(shard, each)
            elif store.path_of(shard) is None:
                store.point_to(shard, each)
        if imported.shards:
            store.link_shards(imported)
        if name not in registry.models:
            write_ledger(store.root / _FILE, {**known, name: imported}.values())
    return imported


def forget_import(root: Path, name: str) -> None:
    """Forget a name; its file stays."""
    with locked(root):
        known = load_imports(root)
        if known.pop(name, None) is not None:
            write_ledger(root / _FILE, known.values())


def _name_for(file: Path) -> str:
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem.removesuffix(".gguf")).strip("._-").lower()
    return stem[:80] or "imported"
