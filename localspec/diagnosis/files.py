"""Facts about files: directories, settings, registry, and whether the store is whole."""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from localspec.config.files import user_file
from localspec.config.keys import KEYS, as_written
from localspec.config.resolve import Level, resolve
from localspec.diagnosis.fact import Fact
from localspec.models.entries import shards_of
from localspec.models.registry import load_registry
from localspec.storage.files import size_text
from localspec.storage.paths import data_dir, shown

_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK_BYTES = 1 << 20


def places() -> Iterator[Fact]:
    """Yield where things are, and how much room there is."""
    data = data_dir()
    free = shutil.disk_usage(data).free
    yield Fact("places", "data", f"{shown(data)} ({size_text(free)} free)")
    if not os.access(data, os.W_OK):
        yield Fact("places", "data", "cannot be written to: fix its permissions", "broken")
    hub = os.environ.get("HF_HUB_CACHE") or os.path.join(  # noqa: PTH118 - may hold a `~`
        os.environ.get("HF_HOME") or "~/.cache/huggingface", "hub"
    )
    yield Fact("places", "hub's cache", shown(hub))
    file = user_file()
    there = "" if file.exists() else " (does not exist)"
    yield Fact("places", "user's settings", f"{shown(file)}{there}")


def settings() -> Iterator[Fact]:
    """Yield every setting that somebody made."""
    made = [(n, each) for n, each in resolve({}).items() if each.origin.level > Level.DEFAULT]
    for name, each in made:
        yield Fact("settings", name, f"{as_written(KEYS[name], each.value)} ({each.origin})")
    if not made:
        yield Fact("settings", "all", "defaults")
    registry = load_registry()
    yield Fact(
        "settings", "registry", f"{len(registry.models)} models, {len(registry.pairs)} pairs"
    )


def store(
    root: Path, *, verify: bool, progress: Callable[[str], None] = lambda _: None
) -> Iterator[Fact]:
    """Yield what is wrong with the stored files, and how many there are.

    Args:
        root: the data directory.
        verify: read every file and compare its sha256 with its name.
        progress: called with the name of a file that is about to be read.
    """
    blobs = root / "blobs"
    files = sorted(blobs.iterdir()) if blobs.is_dir() else []
    models = load_registry().models.values()
    sizes = {shard.sha256: shard.size_bytes for model in models for shard in shards_of(model)}
    total = 0
    for file in files:
        problem = _problem(file, sizes.get(file.name))
        if problem is None and verify:
            progress(file.name)
            problem = _other_bytes(file)
        if problem is None:
            total += file.stat().st_size
        else:
            advice = f"remove {shown(file)}, and pull the model again"
            yield Fact("store", file.name[:12], f"{problem}: {advice}", "broken")
    how = "re-hashed" if verify else "sizes checked; --verify also hashes"
    yield Fact("store", "files", f"{len(files)}, {size_text(total)} ({how})")


def _problem(file: Path, promised: int | None) -> str | None:
    if not _SHA256.fullmatch(file.name):
        return "is not named by a sha256"
    if not file.exists():  # a link into a cache that was emptied
        return f"points at {shown(file.readlink())}, which is gone"
    if not file.is_file():
        return "is not a file"
    size = file.stat().st_size
    if promised is not None and size != promised:
        return f"has {size} bytes instead of {promised}"
    return None


def _other_bytes(file: Path) -> str | None:
    digest = hashlib.sha256()
    try:
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    found = digest.hexdigest()
    return None if found == file.name else f"holds other bytes, of sha256 {found[:12]}…"
