"""Files that no registry names: their names, in `imported.json` beside the store.

The user brought them, or named them on the hub.

The store points to such a file, or holds a copy; either way it is known by its sha256.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from localspec.errors import LocalspecError, ModelUnavailable, UsageError
from localspec.models.gguf_header import read_header
from localspec.models.locks import locked
from localspec.models.paths import shown
from localspec.models.registry import ModelEntry, Registry
from localspec.models.store import Store

_INDEX = "imported.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,79}")
_LISTED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,255}")  # also `user/repo:QUANT`
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Imported:
    """A file that the user brought, and where it lay when it was imported."""

    name: str
    sha256: str
    size_bytes: int
    origin: str

    @property
    def entry(self) -> ModelEntry:
        """What the store needs to know of it."""
        return ModelEntry(self.name, self.size_bytes, self.sha256, None, None, None, ())


def load_imported(root: Path) -> dict[str, Imported]:
    """Return the imported files by name.

    Raises:
        LocalspecError: the index cannot be read.
    """
    path = root / _INDEX
    try:
        top = json.loads(path.read_text(encoding="utf-8"))
        found = {name: Imported(name, **values) for name, values in top.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        reason = getattr(error, "strerror", None) or "it is damaged"
        raise LocalspecError(
            f"the list of imported files {shown(path)} cannot be read ({reason}): "
            "mend or remove it, and import the files again"
        ) from error
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
    read_header(file)
    name = _name_for(file) if name is None else name
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:80]!r} cannot be a name: use letters, digits and . _ : -, at most 80 of them"
        )
    file = file.resolve()
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    imported = Imported(name, digest, file.stat().st_size, str(file))
    store.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(store.root):
        known = load_imported(store.root)
        _require_free(imported, known, registry)
        if store.path_of(imported.entry) is None or copy:
            _take_in(imported, file, store, copy=copy)
        if name not in registry.models:
            _write(store.root, {**known, name: imported})
    return imported


def remember(imported: Imported, root: Path) -> None:
    """List a file that the store has already; of the same name, the latest counts."""
    with locked(root):
        _write(root, {**load_imported(root), imported.name: imported})


def forget_imported(root: Path, name: str) -> None:
    """Forget a name; its file stays."""
    with locked(root):
        known = load_imported(root)
        if known.pop(name, None) is not None:
            _write(root, known)


def _take_in(imported: Imported, file: Path, store: Store, *, copy: bool) -> None:
    if not copy:
        store.point_to(imported.entry, file)
        return
    with store.stage(imported.entry) as staging, file.open("rb") as stream:
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


def _is_sound(imported: Imported) -> bool:
    return (
        bool(_LISTED_NAME.fullmatch(imported.name))
        and isinstance(imported.sha256, str)
        and bool(_SHA256.fullmatch(imported.sha256))
        and type(imported.size_bytes) is int
        and isinstance(imported.origin, str)
    )


def _write(root: Path, known: Mapping[str, Imported]) -> None:
    index = {name: asdict(each) for name, each in sorted(known.items())}
    for values in index.values():
        del values["name"]
    beside = root / f"{_INDEX}.new"
    with suppress(FileNotFoundError):
        beside.unlink()
    with beside.open("x", encoding="utf-8") as stream:
        json.dump(index, stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(root / _INDEX)
