"""What is told once on a machine, and not at every start."""

import hashlib
from contextlib import suppress

from localspec.errors import LocalspecError
from localspec.storage.files import private_directory
from localspec.storage.paths import data_dir

_FOLDER = "told"


def first_time(what: str) -> bool:
    """Return whether this was never told here, and note that it is now; False where that cannot be noted.

    Args:
        what: any words for it.
    """
    with suppress(OSError, LocalspecError):
        folder = data_dir() / _FOLDER
        private_directory(folder)
        # An empty file that only one program can make.
        (folder / hashlib.sha256(what.encode()).hexdigest()).touch(exist_ok=False)
        return True
    return False
