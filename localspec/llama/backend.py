"""The native library: initialised once, its log captured, its odd functions declared; and what this build of it is.

Nothing of llama.cpp's log reaches the user's screen; the last lines are kept for error messages.
"""

import ctypes
import functools
import re
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.llama.crash_report import report_in_one_line
from localspec.llama.native import native

# ggml's log levels; the last one continues the line before.
_INFO, _ERROR, _CONT = 2, 4, 5


class _Log(threading.local):
    """What llama.cpp said in a thread: one may load weights while another makes passes."""

    def __init__(self) -> None:
        self.lines: deque[tuple[int, str]] = deque(maxlen=400)


_log = _Log()


def _on_line(level: int, text: bytes, _user_data: object) -> None:
    piece, lines = text.decode("utf-8", errors="replace").rstrip("\n"), _log.lines
    if level == _CONT and lines:
        before, line = lines[-1]
        lines[-1] = (before, line + piece)
    elif piece and level >= _INFO:  # at debug level every tensor has its line
        lines.append((level, piece))


# ctypes drops a callback that nothing refers to, and llama.cpp would go on calling it.
_capture = native.llama_log_callback(_on_line)


@functools.cache
def initialise() -> None:
    """Start llama.cpp's backends; only the first call does anything."""
    # The callback goes first: a GPU backend talks while it starts.
    native.llama_log_set(_capture, ctypes.c_void_p(0))
    report_in_one_line(native._lib)  # noqa: SLF001 - the only handle on the loaded library
    native.llama_backend_init()
    from localspec.llama.amx import avoid_amx  # noqa: PLC0415 - of no use to a verb's help

    avoid_amx(library_function)


def capture_log(log_set: Callable[[Any, Any], object]) -> None:
    """Have the log of another of llama.cpp's libraries among the captured lines, by its function that sets a callback."""
    log_set(_capture, ctypes.c_void_p(0))


def log_lines() -> list[str]:
    """Return the captured lines of this thread, oldest first, at most 400."""
    return [line for _, line in _log.lines]


def clear_log() -> None:
    """Forget the captured lines, so that `last_complaint` speaks of what comes next."""
    _log.lines.clear()


def log_of_this_thread() -> Callable[[], None]:
    """Return what has the lines of the thread that calls it captured among those of this one."""
    lines = _log.lines
    return lambda: setattr(_log, "lines", lines)


def last_complaint() -> str:
    """Return what llama.cpp last complained about, on one line; empty when it did not."""
    complaints = [line for level, line in _log.lines if level == _ERROR]
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

    @property
    def features_text(self) -> str:
        """The features for people: `CPU: SSE3, AVX, CUDA: ARCHS 890`; llama.cpp lists `CPU : SSE3 = 1`, `AVX = 1`, …, `CUDA : ARCHS = 890`."""
        words = [f"{each} ".replace(" = 1 ", "").strip() for each in self.features]
        return ", ".join(words).replace(" : ", ": ").replace(" = ", " ")


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
    named = tuple(part for part in parts if part)
    return Build(_version(), backends, named, Path(native.__file__).parents[1])


def _version() -> str:
    """Return what `importlib.metadata` would say, whose import takes 10 ms."""
    version = _VERSION.search((Path(native.__file__).parent / "__init__.py").read_text())
    assert version is not None, "llama-cpp-python is built from this line"  # noqa: S101
    return version[1]
