"""llama.cpp's functions: `llama_cpp.llama_cpp`, without the package around it.

That package imports chat formats, a cache with a database and more, of which nothing is used here, and for which every
first token would wait 25 ms.
"""

import functools
import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from localspec.llama.selection import BUILD_VARIABLE, chosen

__all__ = ["mtmd", "native"]

_PACKAGE = "llama_cpp"


def _module() -> ModuleType:
    """Import it from the build that was chosen, or else from the environment's own."""
    own = None if _PACKAGE in sys.modules else find_spec(_PACKAGE)
    if own is None:
        return import_module(f"{_PACKAGE}.{_PACKAGE}")
    folder = chosen()
    other = None if folder is None else PathFinder.find_spec(_PACKAGE, [str(folder)])
    # What packages say of themselves is little more than their version: its structs are an ABI.
    if other is None or _file(other).read_bytes() != _file(own).read_bytes():
        return _imported(own)
    try:
        return _imported(other)
    except (ImportError, OSError, RuntimeError):  # its driver is gone, for example
        if os.environ.get(BUILD_VARIABLE):
            raise
        for name in [each for each in sys.modules if each.startswith(f"{_PACKAGE}.")]:
            del sys.modules[name]
        return _imported(own)


def _imported(spec: ModuleSpec) -> ModuleType:
    """Import it in a package that was not started; a later import of that starts it as usual."""
    sys.modules[_PACKAGE] = module_from_spec(spec)
    cuda = _file(spec).with_name("lib") / "libggml-cuda.so"
    try:
        if cuda.exists():
            from localspec.llama.cuda_libraries import preload  # noqa: PLC0415 - few builds need it

            preload(cuda)
        return import_module(f"{_PACKAGE}.{_PACKAGE}")
    finally:
        del sys.modules[_PACKAGE]


@functools.cache
def mtmd() -> Any:
    """Return `llama_cpp.mtmd_cpp`, the functions of the encoders of pictures and sounds, of the build of `native`.

    Raises:
        ImportError: this build has none.
    """
    package = ModuleType(_PACKAGE)
    package.__path__ = [str(Path(native.__file__).parent)]
    package.llama_cpp = native  # type: ignore[attr-defined]
    before = sys.modules.get(_PACKAGE)
    sys.modules[_PACKAGE] = package
    try:
        return import_module(f"{_PACKAGE}.mtmd_cpp")
    except (FileNotFoundError, RuntimeError) as error:
        raise ImportError(str(error)) from error
    finally:
        del sys.modules[_PACKAGE]
        if before is not None:
            sys.modules[_PACKAGE] = before


def _file(spec: ModuleSpec) -> Path:
    assert spec.origin is not None, "a package has a file"  # noqa: S101
    return Path(spec.origin)


if TYPE_CHECKING:
    import llama_cpp.llama_cpp as native
else:
    native = _module()
