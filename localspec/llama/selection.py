"""Chosen: which build of llama.cpp is used, the environment's own or one that `localspec setup` made beside it.

A build is a folder that holds the package `llama_cpp`. Builds are in the environment where localspec runs, and go with it; a
link beside them names the chosen one. It is replaced as a whole, so whatever is interrupted, a build that works is in use.
"""

import os
import sys
from pathlib import Path

BUILD_VARIABLE = "LOCALSPEC_BUILD"
"""Names the folder of a build for one process, or `own`, instead of the link."""
OWN = "own"
_LINK = "chosen"


def builds_dir() -> Path:
    """Return where builds are; it need not exist."""
    return Path(sys.prefix, "share", "localspec", "builds")


def chosen() -> Path | None:
    """Return the folder of the build to use; None for the environment's own."""
    forced = os.environ.get(BUILD_VARIABLE)
    if forced:
        return None if forced == OWN else Path(forced)
    return linked()


def linked() -> Path | None:
    """Return the folder of the build that the link names; None for the environment's own."""
    link = builds_dir() / _LINK
    return link.resolve() if link.is_symlink() else None


def choose(folder: Path | None) -> None:
    """Have every later process use a build in `builds_dir`; None goes back to the environment's own.

    Raises:
        OSError: the link cannot be replaced; what was chosen stays.
    """
    link = builds_dir() / _LINK
    if folder is None:
        link.unlink(missing_ok=True)
        return
    made = link.with_name(f".{_LINK}.{os.getpid()}")
    made.unlink(missing_ok=True)
    made.symlink_to(folder.name)
    made.replace(link)
