"""What is said when native code gives up: one line, where by default a debugger is started and writes pages.

Memory that runs out in the middle of a native call is the usual reason. The process ends all the same.
"""

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_ADVICE = "most likely memory ran out: try a smaller model or a smaller --ctx"
_LONGEST = 300

_ABORT = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_TERMINATE = ctypes.CFUNCTYPE(None)


def say_one_line(library: Any) -> None:
    """Have whatever makes llama.cpp abort told in one line on stderr.

    Args:
        library: the loaded one.
    """
    library.ggml_set_abort_callback(_on_abort)
    # An exception that nobody catches does not come by there.
    with suppress(OSError, AttributeError):
        _set_terminate()(_on_terminate)


def _set_terminate() -> Callable[[Any], Any]:
    """Return C++'s `std::set_terminate`, by the name that it has in GNU's library."""
    function = ctypes.CDLL("libstdc++.so.6")["_ZSt13set_terminatePFvvE"]
    function.restype = ctypes.c_void_p
    return function


def _tell(reason: str) -> None:
    file, colon, what = reason.partition(":")  # the file as it was called where it was compiled
    reason = file.rpartition("/")[2] + colon + what
    line = "".join(each if each.isprintable() else " " for each in reason)[:_LONGEST]
    with suppress(OSError):
        os.write(2, f"localspec: llama.cpp gave up ({line}); {_ADVICE}\n".encode())


# ctypes drops a callback that nothing refers to.
_on_abort = _ABORT(lambda text: _tell(text.decode(errors="replace")))
_on_terminate = _TERMINATE(lambda: _tell("an exception that nobody caught"))
