"""What this build of llama.cpp is: version, backends, and the CPU features that it uses."""

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path

from localspec.llama.backend import initialise, library_function
from localspec.llama.native import native

_VERSION = re.compile(r"^__version__ = [\"'](.+)[\"']$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Build:
    """A build of llama.cpp.

    Args:
        version: of llama-cpp-python, which carries it.
        backends: such as CPU, CUDA or Metal; workers that were added since are none of the build.
        features: of every backend, as it tells them: `CPU: AVX2 = 1`.
        folder: where its package is.
    """

    version: str
    backends: tuple[str, ...]
    features: tuple[str, ...]
    folder: Path


def build() -> Build:
    """Return what the loaded library says of itself."""
    initialise()
    count = library_function("ggml_backend_reg_count", ctypes.c_size_t)
    get = library_function("ggml_backend_reg_get", ctypes.c_void_p, ctypes.c_size_t)
    name = library_function("ggml_backend_reg_name", ctypes.c_char_p, ctypes.c_void_p)
    names = (name(get(index)).decode() for index in range(count()))
    # A worker is registered under RPC[HOST:PORT].
    backends = tuple(each for each in names if "[" not in each)
    features = native.llama_print_system_info().decode(errors="replace")
    parts = (part.strip() for part in features.split("|"))
    told = tuple(part for part in parts if part)
    return Build(_version(), backends, told, Path(native.__file__).parents[1])


def _version() -> str:
    """Return what `importlib.metadata` would say, whose import takes 10 ms."""
    found = _VERSION.search((Path(native.__file__).parent / "__init__.py").read_text())
    assert found is not None, "llama-cpp-python is built from this line"  # noqa: S101
    return found[1]
