"""Finds CUDA's runtime libraries in the `nvidia-*` wheels of the environment, without a variable of the environment.

A build for CUDA names them, but does not bring them along. What the process has loaded already under such a name, the system's
linker takes.
"""

import ctypes
import sys
from contextlib import suppress
from pathlib import Path

_NAMES = ("libcudart.so", "libcublasLt.so", "libcublas.so")
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
    names = backend.read_bytes()
    for start in _NAMES:
        for file in sorted(files):
            # The major version is in the name, and has to be the one that it was built with.
            if file.name.startswith(f"{start}.") and f"{file.name}\0".encode() in names:
                with suppress(OSError):  # the error of the backend itself says more
                    ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
                    found.append(file)
                break
    return found
