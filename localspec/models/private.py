"""Files and directories that only their owner can read, whatever the umask is."""

import os
from pathlib import Path


def private_directory(path: Path) -> None:
    """Make a directory, and those above it that are missing; one that is there stays as it is.

    Raises:
        OSError: it cannot be made, or is a file.
    """
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)  # raises where it is a file


def private_opener(path: str, flags: int) -> int:
    """Open a file as `open` does; one that is made is its owner's alone."""
    return os.open(path, flags, 0o600)
