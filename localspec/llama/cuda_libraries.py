"""Finds CUDA's runtime libraries in the `nvidia-*` wheels of the environment, or in the toolkit, without a variable of the environment.

A build for CUDA names them, but does not bring them along. What the process has loaded already under such a name, the system's
linker takes; a toolkit that is unpacked by hand it does not know. What it does find goes before a toolkit, since LD_LIBRARY_PATH may
name another one.
"""

import ctypes
import mmap
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

_NAMES = ("libcudart", "libcublasLt", "libcublas")
"""In the order in which they need each other."""
_TOOLKITS = ("/usr/local/cuda/lib64", "/opt/cuda/lib64")


def preload(
    backend: Path, search: list[str] | None = None, toolkits: Sequence[str] | None = None
) -> list[Path]:
    """Load the libraries that a CUDA backend names, as far as wheels or a toolkit have them; return which.

    Args:
        backend: `libggml-cuda.so` of a build.
        search: folders where wheels are installed; Python's own by default. What they have comes first.
        toolkits: folders of libraries; by default, those of the toolkit whose `nvcc` is on the path, and where toolkits usually are.
    """
    loaded: list[Path] = []
    folders = [Path(each, "nvidia") for each in (sys.path if search is None else search)]
    wheels = [
        file
        for folder in folders
        if folder.is_dir()
        for file in sorted(folder.glob("*/lib/lib*.so.*"))
    ]
    places = _toolkits() if toolkits is None else toolkits
    files = wheels + [file for each in places for file in sorted(Path(each).glob("lib*.so.*"))]
    if not files:
        return loaded
    here = [start for start in _NAMES if any(file.name.startswith(f"{start}.") for file in files)]
    for name in _named(backend, here):
        for file in files:
            if file.name == name:
                if file not in wheels and _is_known(name):
                    break
                with suppress(OSError):  # the error of the backend itself says more
                    ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
                    loaded.append(file)
                break
    return loaded


def _toolkits() -> Sequence[str]:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        return _TOOLKITS
    toolkit = Path(nvcc).resolve().parent.parent
    return (str(toolkit / "lib64"), str(toolkit / "lib"), *_TOOLKITS)


def _is_known(name: str) -> bool:
    """Load a library where the system's linker finds it; say whether it does."""
    try:
        ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


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
