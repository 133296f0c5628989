"""The native library: initialised once, its log captured, its odd functions declared.

Nothing of llama.cpp's log reaches the user's screen; the last lines are kept for error messages.
"""

import ctypes
import functools
from collections import deque
from typing import Any

from localspec.llama.last_words import say_one_line
from localspec.llama.native import native

# ggml's log levels; the last one continues the line before.
_INFO, _ERROR, _CONT = 2, 4, 5

_lines: deque[tuple[int, str]] = deque(maxlen=400)


def _on_line(level: int, text: bytes, _user_data: object) -> None:
    piece = text.decode("utf-8", errors="replace").rstrip("\n")
    if level == _CONT and _lines:
        before, line = _lines[-1]
        _lines[-1] = (before, line + piece)
    elif piece and level >= _INFO:  # at debug level every tensor has its line
        _lines.append((level, piece))


# ctypes drops a callback that nothing refers to, and llama.cpp would go on calling it.
_capture = native.llama_log_callback(_on_line)


@functools.cache
def initialise() -> None:
    """Start llama.cpp's backends; only the first call does anything."""
    # The callback goes first: a GPU backend talks while it starts.
    native.llama_log_set(_capture, ctypes.c_void_p(0))
    say_one_line(native._lib)  # noqa: SLF001 - the only handle on the loaded library
    native.llama_backend_init()
    from localspec.llama.amx import avoid_amx  # noqa: PLC0415 - of no use to a verb's help

    avoid_amx(library_function)


def log_lines() -> list[str]:
    """Return the captured lines, oldest first, at most 400."""
    return [line for _, line in _lines]


def clear_log() -> None:
    """Forget the captured lines, so that `last_complaint` speaks of what comes next."""
    _lines.clear()


def last_complaint() -> str:
    """Return what llama.cpp last complained about, on one line; empty when it did not."""
    complaints = [line for level, line in _lines if level == _ERROR]
    # The first error names the cause; those after it only say that loading failed.
    return complaints[0].strip().replace("\n", " ") if complaints else ""


def library_function(name: str, result: Any, *arguments: Any) -> Any:
    """Return a function that the loaded library has, but that llama_cpp does not wrap.

    Raises:
        AttributeError: this build has no such function.
    """
    function = getattr(native._lib, name)  # noqa: SLF001 - the only handle on the loaded library
    function.restype = result
    function.argtypes = list(arguments)
    return function
