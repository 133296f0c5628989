"""What is said where native code gives up: one line, no debugger, nothing on stdout."""

import signal
import subprocess
import sys

import pytest

_ABORT = (
    "from ctypes import c_char_p, c_int;"
    "from localspec.llama.backend import initialise, library_function;"
    "initialise();"
    "give_up = library_function('ggml_abort', None, c_char_p, c_int, c_char_p);"
    "give_up(b'ggml.c', 7, b'no room')"
)
_TERMINATE = (
    "import ctypes;"
    "from localspec.llama.backend import initialise;"
    "initialise();"
    "ctypes.CDLL('libstdc++.so.6')['_ZSt9terminatev']()"
)


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (_ABORT, "llama.cpp gave up (ggml.c:7: no room); most likely memory ran out"),
        pytest.param(
            _TERMINATE,
            "llama.cpp gave up (an exception that nobody caught); most likely memory ran out",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="GNU's C++ library"),
        ),
    ],
)
def test_native_code_that_gives_up_says_so_in_one_line(program: str, told: str) -> None:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert ended.returncode == -signal.SIGABRT
    assert ended.stdout == b""
    assert ended.stderr.decode().count("\n") == 1
    assert ended.stderr.decode().startswith(f"localspec: {told}")
