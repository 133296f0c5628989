"""What this build of llama.cpp is: version, backends, and the CPU features that it uses."""

import ctypes
from dataclasses import dataclass
from importlib.metadata import version

import llama_cpp.llama_cpp as native

from localspec.llama.backend import initialise, library_function


@dataclass(frozen=True, slots=True)
class Build:
    """A build of llama.cpp.

    Args:
        version: of llama-cpp-python, which carries it.
        backends: such as CPU, CUDA or Metal.
        features: of every backend, as it tells them: `CPU: AVX2 = 1`.
    """

    version: str
    backends: tuple[str, ...]
    features: tuple[str, ...]


def build() -> Build:
    """Return what the loaded library says of itself."""
    initialise()
    count = library_function("ggml_backend_reg_count", ctypes.c_size_t)
    get = library_function("ggml_backend_reg_get", ctypes.c_void_p, ctypes.c_size_t)
    name = library_function("ggml_backend_reg_name", ctypes.c_char_p, ctypes.c_void_p)
    backends = tuple(name(get(index)).decode() for index in range(count()))
    features = native.llama_print_system_info().decode(errors="replace")
    parts = (part.strip() for part in features.split("|"))
    return Build(version("llama-cpp-python"), backends, tuple(part for part in parts if part))
