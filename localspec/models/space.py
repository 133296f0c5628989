"""Room on a disk, and sizes as people read them."""

import shutil
from pathlib import Path

from localspec.models.paths import shown
from localspec.models.progress import SourceFailedError


def size_text(size_bytes: int) -> str:
    """Return a size as it is told to people."""
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.0f} MB"


def free_bytes(directory: Path) -> int:
    """Return how much room the disk of a directory has, whether that is there yet or not."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    return shutil.disk_usage(directory).free


def require_space(directory: Path, needed_bytes: int) -> None:
    """Raise SourceFailedError unless a directory, there yet or not, has room for so many bytes."""
    free = free_bytes(directory)
    if free < needed_bytes:
        raise SourceFailedError(
            f"needs {size_text(needed_bytes)} free in {shown(directory)}, which has {size_text(free)}"
        )
