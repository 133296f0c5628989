"""A model in several files: side by side in a folder of links, under the names llama.cpp looks for.

llama.cpp opens the first file, and finds the others by `-00002-of-0000N.gguf`. The files themselves
are in the store like all others, by sha256; which names they had elsewhere does not matter.
"""

import os
import shutil
from pathlib import Path

from localspec.models.private import private_directory
from localspec.models.registry import ModelEntry


def shards_of(entry: ModelEntry) -> tuple[ModelEntry, ...]:
    """Return the files that a model consists of, itself where it is one file."""
    return entry.shards or (entry,)


def is_set(entry: ModelEntry) -> bool:
    """Return whether a model comes in several files."""
    return bool(entry.shards)


def set_path(root: Path, entry: ModelEntry) -> Path | None:
    """Return the file to open, or None unless every file has its name."""
    paths = _paths(root, entry)
    return paths[0] if all(path.is_file() for path in paths) else None


def link_set(root: Path, entry: ModelEntry) -> Path:
    """Give all files of a model their names, and return the one to open."""
    paths = _paths(root, entry)
    private_directory(paths[0].parent)
    for path, shard in zip(paths, shards_of(entry), strict=True):
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        beside.unlink(missing_ok=True)
        beside.symlink_to(Path("..", "..", "blobs", shard.sha256))
        beside.replace(path)
    return paths[0]


def unlink_set(root: Path, entry: ModelEntry) -> None:
    """Remove the names; the files stay."""
    shutil.rmtree(_paths(root, entry)[0].parent, ignore_errors=True)


def _paths(root: Path, entry: ModelEntry) -> list[Path]:
    folder, count = root / "sets" / entry.sha256, len(shards_of(entry))
    return [folder / f"model-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]
