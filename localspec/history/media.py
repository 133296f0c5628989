"""MediaFiles: pictures and sounds of the history, each in a file that is named after its hash, however many messages have it."""

import hashlib
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path

from localspec.media import MOST_BYTES
from localspec.storage.database import remove
from localspec.storage.files import private_directory, read_bounded, write_atomic

_MOST_READ = 64
"""Files whose content is not read twice: the branch that is visible holds most of them anyway."""


class MediaFiles:
    """Files of a directory. While some are written or removed, the database is locked: no file is removed before its message is there.

    Args:
        directory: made with the first file.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read = lru_cache(_MOST_READ)(self._content)

    def read(self, sha256: str) -> bytes:
        """Return the content of a file; empty where it is missing or damaged."""
        return self._read(sha256)

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write contents by their hashes, where they are not there already.

        Raises:
            OSError: the disk does not take one.
        """
        if not files:
            return
        private_directory(self._directory)
        for sha256, data in files.items():
            if data and self._content(sha256) != data:
                write_atomic(self._directory / sha256, data)
        self._read.cache_clear()  # one that was missing is there now

    def remove_others(self, hashes: Collection[str]) -> None:
        """Overwrite and remove all files but those of these hashes.

        Raises:
            OSError: one cannot be removed.
        """
        if self._directory.is_dir():
            for each in self._directory.iterdir():
                if each.name not in hashes:
                    remove(each)

    def _content(self, sha256: str) -> bytes:
        try:
            data = read_bounded(self._directory / sha256, MOST_BYTES)
        except OSError:
            return b""
        return data if hashlib.sha256(data).hexdigest() == sha256 else b""
