"""Files that the user brought: their names, in `imported.json` beside the store.

The store points to such a file, or holds a copy; either way it is known by its sha256.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from localspec.errors import ModelUnavailable, UsageError
from localspec.models.entries import of_shards
from localspec.models.gguf_header import read_header
from localspec.models.index_file import damaged, read_index, write_index
from localspec.models.locks import locked
from localspec.models.paths import shown
from localspec.models.private import private_directory
from localspec.models.registry import ModelEntry, Registry
from localspec.models.shard_set import link_set, shards_of
from localspec.models.split_model import other_shards
from localspec.models.store import Store

_INDEX = "imported.json"
_WHAT, _REMEDY = "imported files", "import the files again"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,79}")
_LISTED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,255}")  # also `user/repo:QUANT`
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Imported:
    """A model that the user brought, and where it lay when it was imported.

    Args:
        name: what the user called it.
        sha256: of the file; of a split model, as in `ModelEntry`.
        size_bytes: of all its files.
        origin: where the file was, or the first of several.
        shards: sha256 and size of every file of a split model; empty for one file.
    """

    name: str
    sha256: str
    size_bytes: int
    origin: str
    shards: tuple[tuple[str, int], ...] = ()

    @property
    def entry(self) -> ModelEntry:
        """What the store needs to know of it."""
        return _entry(self.name, self.shards or [(self.sha256, self.size_bytes)])


def load_imported(root: Path) -> dict[str, Imported]:
    """Return the imported files by name.

    Raises:
        LocalspecError: the index cannot be read.
    """
    index = read_index(root / _INDEX, _WHAT, _REMEDY)
    try:
        found = {name: _imported(name, values) for name, values in index.items()}
    except (TypeError, ValueError) as error:
        raise damaged(root / _INDEX, _WHAT, _REMEDY) from error
    # The sha256 becomes a file name.
    return {name: each for name, each in found.items() if _is_sound(each)}


def imported_paths(root: Path) -> dict[str, Path]:
    """Return where the imported files are that are still there, by name."""
    store = Store(root)
    paths = {name: store.path_of(each.entry) for name, each in load_imported(root).items()}
    return {name: path for name, path in paths.items() if path is not None}


def require_here(imported: Imported, store: Store) -> Path:
    """Return where an imported file is.

    Raises:
        ModelUnavailable: it was moved or removed since.
    """
    path = store.path_of(imported.entry)
    if path is None:
        raise ModelUnavailable(
            f"{imported.name} was imported from {shown(imported.origin)}, which is gone or another "
            f"file now: pull or import it again, or `localspec rm {imported.name}`"
        )
    return path


def import_file(
    file: Path, name: str | None, registry: Registry, store: Store, *, copy: bool = False
) -> Imported:
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
    files = [file.resolve()]
    if (header := read_header(file)).metadata.get("split.count") is not None:
        files += [other.resolve() for other in other_shards(file, header)]
    name = _name_for(file) if name is None else name
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:80]!r} cannot be a name: use letters, digits and . _ : -, at most 80 of them"
        )
    parts = [(_digest(each), each.stat().st_size) for each in files]
    entry = _entry(name, parts)
    shards = tuple(parts) if len(parts) > 1 else ()
    imported = Imported(name, entry.sha256, entry.size_bytes, str(files[0]), shards)
    private_directory(store.root)
    with locked(store.root):
        known = load_imported(store.root)
        _require_free(imported, known, registry)
        for shard, each in zip(shards_of(entry), files, strict=True):
            if store.path_of(shard) is None or copy:
                _take_in(shard, each, store, copy=copy)
        if shards:
            link_set(store.root, entry)
        if name not in registry.models:
            _write(store.root, {**known, name: imported})
    return imported


def forget_imported(root: Path, name: str) -> None:
    """Forget a name; its file stays."""
    with locked(root):
        known = load_imported(root)
        if known.pop(name, None) is not None:
            _write(root, known)


def _entry(name: str, parts: Sequence[tuple[str, int]]) -> ModelEntry:
    shards = [
        ModelEntry(f"{name} shard {number} of {len(parts)}", size, sha256, None, None, None, ())
        for number, (sha256, size) in enumerate(parts, 1)
    ]
    return of_shards(name, shards)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _take_in(entry: ModelEntry, file: Path, store: Store, *, copy: bool) -> None:
    if not copy:
        store.point_to(entry, file)
        return
    with store.stage(entry) as staging, file.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            staging.write(chunk)
        staging.commit()


def _require_free(imported: Imported, known: Mapping[str, Imported], registry: Registry) -> None:
    name = imported.name
    taken = [each.sha256 for each in (known.get(name), registry.models.get(name)) if each]
    if name in registry.pairs and not taken:
        taken = [""]
    if any(sha256 != imported.sha256 for sha256 in taken):
        raise UsageError(f"the name {name} is taken by another model: give another one with --name")


def _name_for(file: Path) -> str:
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem.removesuffix(".gguf")).strip("._-").lower()
    return stem[:80] or "imported"


def _imported(name: str, values: object) -> Imported:
    if not isinstance(values, dict):
        raise TypeError
    shards = tuple((sha256, size) for sha256, size in values.get("shards", ()))
    return Imported(name, **{**values, "shards": shards})


def _is_sound(imported: Imported) -> bool:
    parts = [(imported.sha256, imported.size_bytes), *imported.shards]
    return (
        bool(_LISTED_NAME.fullmatch(imported.name))
        and all(isinstance(sha256, str) and _SHA256.fullmatch(sha256) for sha256, _ in parts)
        and all(type(size) is int for _, size in parts)
        and isinstance(imported.origin, str)
    )


def _write(root: Path, known: Mapping[str, Imported]) -> None:
    index = {name: asdict(each) for name, each in known.items()}
    for values in index.values():
        del values["name"]
        if not values["shards"]:
            del values["shards"]
    write_index(root / _INDEX, index)
