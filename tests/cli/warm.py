"""The command line in processes that are forks of one that has imported everything: 20 ms each instead of a second.

Each is a process of its own, with the streams, variables and working directory that it is given, and ends as
Python ends. Only what a start from nothing imports, and when, has to be asked of such a start.
"""

import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).parents[2]
# What the package imports late.
_OTHERS = ("huggingface_hub.utils", "jinja2", "llama_cpp", "llguidance", "numpy", "rich.table")
# The program itself, and screens, which need a terminal.
_NOT_THESE = ("localspec.__main__", "localspec.ui", "localspec.launch.child")
_MOST_BYTES = 1 << 20


def run(
    module: str,
    arguments: tuple[str, ...],
    env: Mapping[str, str],
    stdin: bytes = b"",
    cwd: Path | None = None,
    timeout_s: float = 120,
) -> "subprocess.CompletedProcess[bytes]":
    """Run `python -m MODULE ARGUMENTS` to its end.

    Args:
        module: the program.
        arguments: what follows its name.
        env: all its variables.
        stdin: what a pipe brings.
        cwd: the working directory.
        timeout_s: after which it is killed.

    Raises:
        subprocess.TimeoutExpired: it was killed.
    """
    theirs_in, ours_in = os.pipe()
    ours_out, theirs_out = os.pipe()
    ours_err, theirs_err = os.pipe()
    request = {"argv": [module, *arguments], "env": dict(env), "cwd": str(cwd or Path.cwd())}
    try:
        server = _server()
        server.settimeout(None)
        socket.send_fds(server, [json.dumps(request).encode()], [theirs_in, theirs_out, theirs_err])
    finally:
        for each in (theirs_in, theirs_out, theirs_err):
            os.close(each)
    with ThreadPoolExecutor(3) as threads:
        threads.submit(_write, ours_in, stdin)
        out, err = threads.submit(_read, ours_out), threads.submit(_read, ours_err)
        pid = json.loads(server.recv(_MOST_BYTES))
        try:
            server.settimeout(timeout_s)
            code = json.loads(server.recv(_MOST_BYTES))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            server.settimeout(None)
            server.recv(_MOST_BYTES)
            raise subprocess.TimeoutExpired([module, *arguments], timeout_s) from None
    return subprocess.CompletedProcess([module, *arguments], code, out.result(), err.result())


def _write(fd: int, data: bytes) -> None:
    with suppress(BrokenPipeError), os.fdopen(fd, "wb") as stream:
        stream.write(data)


def _read(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as stream:
        return stream.read()


@cache
def _server() -> socket.socket:
    """Start the process that forks."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(theirs.fileno())],
        stdin=subprocess.DEVNULL,
        pass_fds=(theirs.fileno(),),
        cwd=ROOT,
    )
    theirs.close()

    def end() -> None:
        ours.close()  # which is what it waits for
        process.wait()

    atexit.register(end)
    return ours


def _serve(fd: int) -> None:
    """Fork whenever asked; return only in a fork, which is to run `sys.argv`."""
    asked = socket.socket(fileno=fd)
    while True:
        message, fds, _, _ = socket.recv_fds(asked, _MOST_BYTES, 3)
        if not message:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            asked.close()
            _become(json.loads(message), fds)
            return
        for each in fds:
            os.close(each)
        asked.send(json.dumps(pid).encode())
        _, status = os.waitpid(pid, 0)
        asked.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())


def _become(request: dict[str, Any], fds: list[int]) -> None:
    """Take over the streams, variables and directory that were asked for."""
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    # As Python makes them when it starts with pipes: what was made for the server's own files knows those.
    sys.stdin = _like(sys.stdin, 0)
    sys.stdout = _like(sys.stdout, 1)
    sys.stderr = _like(sys.stderr, 2)
    sys.argv = request["argv"]
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])


def _like(stream: TextIO, fd: int) -> TextIO:
    raw = io.FileIO(fd, "r" if fd == 0 else "w", closefd=False)
    buffered = io.BufferedReader(raw) if fd == 0 else io.BufferedWriter(raw)
    return io.TextIOWrapper(
        buffered, encoding=stream.encoding, errors=stream.errors, line_buffering=fd == 2
    )


def _import_all() -> None:
    """Import what the command line may need, apart from what reads variables meanwhile."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as the program does; a fork needs one thread alone
    for name in _OTHERS:
        importlib.import_module(name)
    package = importlib.import_module("localspec")
    for each in pkgutil.walk_packages(package.__path__, "localspec."):
        if not each.name.startswith(_NOT_THESE):
            importlib.import_module(each.name)
    # It reads variables when it is imported: only what it imports in turn is kept.
    for name in [each for each in sys.modules if each.startswith("huggingface_hub")]:
        del sys.modules[name]


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _import_all()
    gc.freeze()  # what is shared stays shared
    _serve(int(sys.argv[1]))
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
