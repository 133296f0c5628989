"""LoadedFiles: what models were loaded from, and whether that was written over since.

A file that another one is moved over, or that is removed, stays what it was for those who have it; one that is copied over
changes under a model that maps it.
"""

from contextlib import suppress
from os import stat_result
from pathlib import Path

from localspec.errors import ModelChanged
from localspec.models.gguf import model_files
from localspec.models.store import file_identity
from localspec.storage.paths import shown


class LoadedFiles:
    """Files as they were when models were loaded from them."""

    def __init__(self) -> None:
        self._seen: dict[Path, stat_result] = {}

    def note(self, path: Path) -> str:
        """Note what a file is, and those that belong to it, before it is loaded; return what tells it from others.

        Raises:
            OSError: it is not there.
            LocalspecError: likewise.
        """
        for each in model_files(path) if "-of-" in path.name else [path]:
            self._seen[each] = each.stat()
        its = self._seen[path]
        return f"{file_identity(path)} {its.st_size} {its.st_mtime_ns}"

    def check(self) -> None:
        """Raise ModelChanged where one was written over; that takes microseconds."""
        for path, was in self._seen.items():
            with suppress(OSError):  # removed: what is loaded stays
                now = path.stat()
                if _place(now) == _place(was) and _content(now) != _content(was):
                    raise ModelChanged(
                        f"{shown(path)} was written over while it was loaded: ask again, and the new file answers"
                    )


def _place(status: stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _content(status: stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns
