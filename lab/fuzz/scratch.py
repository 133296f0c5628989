"""A folder for targets that read files: in memory where the system has one."""

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path


@cache
def scratch() -> Path:
    """Return this process's folder; it goes with the process."""
    shared = Path("/dev/shm")
    place = shared if os.access(shared, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="localspec-fuzz-", dir=place))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
