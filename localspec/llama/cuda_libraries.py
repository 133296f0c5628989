"""Finds CUDA's runtime libraries in the `nvidia-*` wheels of the environment, without a variable of the environment.

A build for CUDA names them, but does not bring them along. What the process has loaded already under such a name, the system's
linker takes.
"""

import ctypes
import mmap
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

_NAMES = ("libcudart", "libcublasLt", "libcublas")
"""In the order in which they need each other."""


def preload(backend: Path, search: list[str] | None = None) -> list[Path]:
    """Load the libraries that a CUDA backend names, as far as wheels have them; return which.

    Args:
        backend: `libggml-cuda.so` of a build.
        search: folders where wheels are installed; Python's own by default.
    """
    found: list[Path] = []
    folders = [Path(each, "nvidia") for each in (sys.path if search is None else search)]
    files = [
        file for folder in folders if folder.is_dir() for file in folder.glob("*/lib/lib*.so.*")
    ]
    if not files:
        return found
    here = [start for start in _NAMES if any(file.name.startswith(f"{start}.") for file in files)]
    for name in _named(backend, here):
        for file in sorted(files):
            if file.name == name:
                with suppress(OSError):  # the error of the backend itself says more
                    ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
                    found.append(file)
                break
    return found


def _named(backend: Path, starts: Sequence[str]) -> Iterator[str]:
    """Yield how libraries are called, with the major version that the backend was built with.

    Of its hundreds of megabytes, only what lies before the names is read.
    """
    with (
        backend.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as all_of_it,
    ):
        for start in starts:
            name = re.search(rb"%b\.so\.\d+(?=\0)" % start.encode(), all_of_it)
            if name is not None:
                yield name[0].decode()
