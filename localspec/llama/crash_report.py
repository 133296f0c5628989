"""What is said when native code gives up, or the kernel takes this process for want of memory: one line, where by default a debugger is started and writes pages, or there is silence.

Memory that runs out in the middle of a native call is the usual reason, and a mapped file that is cut another one. The
process ends all the same.
"""

import atexit
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from localspec.display import printable

_SMALLER = "try a smaller model or a smaller --ctx"
_ADVICE = f"most likely memory ran out: {_SMALLER}"
_KILLS = Path("/proc/vmstat")
_SURVIVOR = f"""
count() {{ while read -r name kills; do [ "$name" = oom_kill ] && break; done < {_KILLS}; }}
count; before=$kills
read -r end || {{ count; [ "$kills" = "$before" ] || echo "localspec: killed (SIGKILL), since memory ran out: {_SMALLER}"; }}
"""
"""A shell's: its stdin ends with the process that started it, without a word where that was killed."""
_LOST_PAGE = (
    "a mapped page of a file is gone (SIGBUS): a model's file was truncated, or its disk failed; "
    "check the file, then start again"
)
_LONGEST = 300

_ABORT = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_TERMINATE = ctypes.CFUNCTYPE(None)
_SIGNAL = ctypes.CFUNCTYPE(None, ctypes.c_int)


def report_in_one_line(library: Any) -> None:
    """Report in one line on stderr what makes llama.cpp abort, or lose a page of a model's file.

    Args:
        library: the loaded one.
    """
    library.ggml_set_abort_callback(_on_abort)
    # An exception that nobody catches does not come by there.
    with suppress(OSError, AttributeError):
        _set_terminate()(_on_terminate)
    # Not Python's own handlers: they wait for the interpreter, and the page would be asked for without end.
    with suppress(OSError, AttributeError):
        _set_signal()(signal.SIGBUS, ctypes.cast(_on_lost_page, ctypes.c_void_p))


@cache
def report_a_kill() -> None:
    """Have a shell report on stderr that the kernel killed this process since memory ran out, which it cannot itself."""
    if not _KILLS.exists():
        return
    source, sink = os.pipe()
    streams = [(os.POSIX_SPAWN_DUP2, source, 0), (os.POSIX_SPAWN_DUP2, 2, 1)]
    with suppress(OSError):  # no room for a process, or no shell
        # In a group of its own, which Ctrl-C does not reach.
        words = ["sh", "-c", _SURVIVOR]
        os.posix_spawn("/bin/sh", words, os.environ, file_actions=streams, setpgroup=0)
        atexit.register(_say_goodbye, sink)
    os.close(source)


def _say_goodbye(sink: int) -> None:
    with suppress(OSError):
        os.write(sink, b"\n")


def _set_terminate() -> Callable[[Any], Any]:
    """Return C++'s `std::set_terminate`, by the name that it has in GNU's library."""
    function = ctypes.CDLL("libstdc++.so.6")["_ZSt13set_terminatePFvvE"]
    function.restype = ctypes.c_void_p
    return function


def _set_signal() -> Callable[[int, Any], Any]:
    """Return C's `signal`."""
    function = ctypes.CDLL(None).signal
    function.argtypes, function.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    return function


def blame_instead(file: str, words: Callable[[], str]) -> None:
    """Where llama.cpp gives up in a file of its sources, write other words, and let the process end by itself.

    Args:
        file: its name.
        words: called on whatever thread gave up; says what is to blame, in one line.
    """
    _blamed[file] = words


@contextmanager
def blaming(words: str) -> Iterator[None]:
    """Where llama.cpp gives up meanwhile, whatever the file, write these words, and let the process end by itself."""
    blame_instead("", lambda: words)
    try:
        yield
    finally:
        del _blamed[""]


_blamed: dict[str, Callable[[], str]] = {}
_LAST_NOTICES_S = 0.3
"""What was confirmed shortly before is still on its way to its reader."""


def _report(reason: str) -> None:
    words = next((words for file, words in _blamed.items() if file in reason), None)
    if words is not None:
        time.sleep(_LAST_NOTICES_S)
        _write(printable(words())[:_LONGEST])
        os._exit(1)
    file, colon, what = reason.partition(":")  # the file as it was called where it was compiled
    reason = file.rpartition("/")[2] + colon + what
    line = printable(reason)[:_LONGEST]
    _write(f"llama.cpp gave up ({line}); {_ADVICE}")


def _write(line: str) -> None:
    with suppress(OSError):
        os.write(2, f"localspec: {line}\n".encode())


_reported = [False]


def _lost_page(number: int) -> None:
    if not _reported[0]:  # several threads may ask for lost pages at once
        _reported[0] = True
        _write(_LOST_PAGE)
    _set_signal()(number, None)  # SIG_DFL
    os.kill(os.getpid(), number)  # where it was only sent, no page is asked for again on return


# ctypes drops a callback that nothing refers to.
_on_abort = _ABORT(lambda text: _report(text.decode(errors="replace")))
_on_terminate = _TERMINATE(lambda: _report("an uncaught exception"))
_on_lost_page = _SIGNAL(_lost_page)
