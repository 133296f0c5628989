"""What is said where native code gives up: one line, no debugger, nothing on stdout."""

import signal
import subprocess
import sys
from pathlib import Path

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
            "llama.cpp gave up (an uncaught exception); most likely memory ran out",
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


# Asked for in a native call, which holds no lock of Python's, as a kernel of llama.cpp asks.
_LOST_PAGE = (
    "import ctypes, mmap, os, sys;"
    "from localspec.llama.backend import initialise;"
    "initialise();"
    "file = open(sys.argv[1], 'r+b');"
    "pages = mmap.mmap(file.fileno(), 0);"
    "os.truncate(sys.argv[1], 0);"
    "place = ctypes.addressof(ctypes.c_char.from_buffer(pages));"
    "ctypes.CDLL(None).memchr(ctypes.c_void_p(place), 7, ctypes.c_size_t(5000))"
)


def test_a_file_that_is_cut_while_it_is_mapped_is_told_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(bytes(100_000))
    ended = subprocess.run(
        [sys.executable, "-c", _LOST_PAGE, str(file)], capture_output=True, check=False
    )
    assert ended.returncode == -signal.SIGBUS
    assert ended.stdout == b""
    assert ended.stderr.decode().count("\n") == 1
    assert ended.stderr.startswith(b"localspec: a mapped page of a file is gone")


def test_the_signal_ends_the_process_also_where_somebody_sent_it() -> None:
    program = (
        "import os, signal, time; from localspec.llama.backend import initialise; initialise();"
        "os.kill(os.getpid(), signal.SIGBUS); time.sleep(60)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert ended.returncode == -signal.SIGBUS
