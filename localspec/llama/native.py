"""llama.cpp's functions: `llama_cpp.llama_cpp`, without the package around it.

That package imports chat formats, a cache with a database and more, of which nothing is used here, and for which every
first token would wait 25 ms.
"""

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = ["native"]

_PACKAGE = "llama_cpp"


def _module() -> ModuleType:
    """Import it in a package that was not started; whoever imports that later starts it as usual."""
    name = f"{_PACKAGE}.{_PACKAGE}"
    spec = None if _PACKAGE in sys.modules else find_spec(_PACKAGE)
    if spec is None:
        return import_module(name)
    sys.modules[_PACKAGE] = module_from_spec(spec)
    try:
        return import_module(name)
    finally:
        del sys.modules[_PACKAGE]


if TYPE_CHECKING:
    import llama_cpp.llama_cpp as native
else:
    native = _module()
