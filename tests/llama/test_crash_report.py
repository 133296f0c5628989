"""What is printed where native code gives up: one line, no debugger, nothing on stdout."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

_START = "import ctypes, mmap, os, signal, sys, time; from localspec.llama.backend import initialise, library_function; initialise();"
_ABORT = (
    "give_up = library_function('ggml_abort', None, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p);"
    "give_up(b'ggml.c', 7, b'no room')"
)
_BLAMED = f"from localspec.llama.crash_report import blaming; words = blaming('over x.gguf'); words.__enter__();{_ABORT}"
_TERMINATE = "ctypes.CDLL('libstdc++.so.6')['_ZSt9terminatev']()"
# Asked for in a native call, which holds no lock of Python's, as a kernel of llama.cpp asks.
_LOST_PAGE = (
    "file = open(sys.argv[1], 'r+b');"
    "pages = mmap.mmap(file.fileno(), 0);"
    "os.truncate(sys.argv[1], 0);"
    "place = ctypes.addressof(ctypes.c_char.from_buffer(pages));"
    "ctypes.CDLL(None).memchr(ctypes.c_void_p(place), 7, ctypes.c_size_t(5000))"
)
_SENT = "os.kill(os.getpid(), signal.SIGBUS); time.sleep(60)"
_GAVE_UP = "llama.cpp gave up ({}); most likely memory ran out"


@pytest.mark.parametrize(
    ("program", "number", "line"),
    [
        (_ABORT, signal.SIGABRT, _GAVE_UP.format("ggml.c:7: no room")),
        pytest.param(
            *(_TERMINATE, signal.SIGABRT, _GAVE_UP.format("an uncaught exception")),
            marks=pytest.mark.skipif(sys.platform != "linux", reason="GNU's C++ library"),
        ),
        (_LOST_PAGE, signal.SIGBUS, "a mapped page of a file is gone"),
        (_SENT, signal.SIGBUS, "a mapped page of a file is gone"),
    ],
    ids=["abort", "terminate", "a file that is cut while it is mapped", "a signal that was sent"],
)
def test_giving_up_is_one_line(program: str, number: int, line: str, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(bytes(100_000))
    command = [sys.executable, "-c", _START + program, str(file)]
    ended = subprocess.run(command, capture_output=True, check=False)
    assert ended.returncode == -number
    assert ended.stdout == b""
    assert ended.stderr.decode().count("\n") == 1
    assert ended.stderr.decode().startswith(f"localspec: {line}")


def test_what_it_gave_up_over_is_blamed() -> None:
    command = [sys.executable, "-c", _START + _BLAMED]
    ended = subprocess.run(command, capture_output=True, check=False, text=True)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "localspec: over x.gguf\n"
