"""Finds CUDA's runtime libraries in the `nvidia-*` wheels of the environment, or in the toolkit, without a variable of the environment.

A build for CUDA names them, but does not bring them along. What the process has loaded already under such a name, the system's
linker takes; a toolkit that is unpacked by hand it does not know.
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
_TOOLKITS = ("/usr/local/cuda/lib64", "/opt/cuda/lib64")


def preload(
    backend: Path, search: list[str] | None = None, toolkits: Sequence[str] = _TOOLKITS
) -> list[Path]:
    """Load the libraries that a CUDA backend names, as far as wheels or a toolkit have them; return which.

    Args:
        backend: `libggml-cuda.so` of a build.
        search: folders where wheels are installed; Python's own by default. What they have comes first.
        toolkits: folders of libraries.
    """
    found: list[Path] = []
    folders = [Path(each, "nvidia") for each in (sys.path if search is None else search)]
    files = [
        file
        for folder in folders
        if folder.is_dir()
        for file in sorted(folder.glob("*/lib/lib*.so.*"))
    ]
    files += [file for folder in toolkits for file in sorted(Path(folder).glob("lib*.so.*"))]
    if not files:
        return found
    here = [start for start in _NAMES if any(file.name.startswith(f"{start}.") for file in files)]
    for name in _named(backend, here):
        for file in files:
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
