"""Processes that are forks of one that has imported everything: 0.08 s of a processor each instead of 0.6.

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
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, TextIO

ROOT = Path(__file__).parents[1]
# What the package imports late.
_OTHERS = ("huggingface_hub.utils", "jinja2", "llama_cpp", "llguidance", "numpy", "rich.table")
# The program itself; screens, which need a terminal; and what brings `mcp`, which takes longer than all else together.
_NOT_THESE = (
    *("localspec.__main__", "localspec.tui", "localspec.launch.child"),
    *("localspec.toolbox.mcp", "localspec.plugins.mcp_server.tools"),
)
USER = "TESTS_USER"
"""The variable that names by number the user who runs a process: modules are there, whatever that user may read."""
_LENGTH_BYTES = 8
_LINE_BYTES = 16
_STARTING = Lock()


class Process:
    """A running `python -m MODULE ARGUMENTS`, with as much of `subprocess.Popen` as is needed.

    `env` is all its variables, `also` a module that is imported beforehand, too.
    """

    def __init__(
        self,
        module: str,
        arguments: tuple[str, ...],
        env: Mapping[str, str],
        cwd: Path | None = None,
        *,
        own_session: bool = False,
        also: str = "",
    ) -> None:
        self.returncode: int | None = None
        self._hearing = Lock()
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        ours_err, theirs_err = os.pipe()
        self._told, tells = os.pipe()
        theirs = (theirs_in, theirs_out, theirs_err, tells)
        request = {"argv": [module, *arguments], "env": dict(env), "cwd": str(cwd or Path.cwd())}
        message = json.dumps(request | {"own_session": own_session}).encode()
        with _STARTING:
            # A stream, which macOS has, too: the length first, and the descriptors with it.
            server = _server(also)
            socket.send_fds(server, [len(message).to_bytes(_LENGTH_BYTES, "big")], theirs)
            server.sendall(message)
        for each in theirs:
            os.close(each)
        self.stdin = os.fdopen(ours_in, "wb")
        self.stdout = os.fdopen(ours_out, "rb")
        self.stderr = os.fdopen(ours_err, "rb")
        self.pid = int(os.read(self._told, _LINE_BYTES))

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            with self._hearing:
                if self.returncode is None:
                    self.returncode = int(os.read(self._told, _LINE_BYTES))
        return self.returncode

    def __del__(self) -> None:
        os.close(self._told)

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def run(
    module: str,
    arguments: tuple[str, ...],
    env: Mapping[str, str],
    stdin: bytes = b"",
    cwd: Path | None = None,
    timeout_s: float = 120,
    also: str = "",
) -> "subprocess.CompletedProcess[bytes]":
    """Run `python -m MODULE ARGUMENTS` to its end; kill it and raise `TimeoutExpired` after `timeout_s`."""
    process = Process(module, arguments, env, cwd, also=also)

    def write() -> None:
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(stdin)

    with ThreadPoolExecutor(3) as threads, process.stdout, process.stderr:
        threads.submit(write)
        out, err = threads.submit(process.stdout.read), threads.submit(process.stderr.read)
        try:
            code = process.wait(timeout_s)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess([module, *arguments], code, out.result(), err.result())


@cache
def _server(also: str) -> socket.socket:
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(theirs.fileno()), also],
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


def _serve(asked: socket.socket) -> None:
    """Fork whenever asked; return only in a fork, which is to run `sys.argv`."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wakes)
    running: dict[int, int] = {}  # who is told of a process's end
    while True:
        ready, _, _ = select.select([asked.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, _LINE_BYTES)
            _tell_of_ends(running)
        if asked.fileno() not in ready:
            continue
        length, fds, _, _ = socket.recv_fds(asked, _LENGTH_BYTES, 4)
        if not length:
            os._exit(0)
        message = asked.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asked.close()
            for each in (woken, wakes, *running.values(), fds.pop()):
                os.close(each)
            _become(json.loads(message), fds)
            return
        running[pid] = fds.pop()
        os.write(running[pid], f"{pid}\n".encode().ljust(_LINE_BYTES))
        for each in fds:
            os.close(each)


def _tell_of_ends(running: dict[int, int]) -> None:
    for pid, tells in list(running.items()):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            with suppress(BrokenPipeError):  # nobody waits for it
                os.write(tells, f"{code}\n".encode().ljust(_LINE_BYTES))
            os.close(running.pop(pid))


def _become(request: dict[str, Any], fds: list[int]) -> None:
    """Take over the streams, variables and directory that were asked for."""
    if request["own_session"]:
        os.setsid()
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    # As Python makes them when it starts with pipes: what was made for the server's own files knows those.
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        raw = io.FileIO(fd, "r" if fd == 0 else "w", closefd=False)
        buffered = io.BufferedReader(raw) if fd == 0 else io.BufferedWriter(raw)
        old: TextIO = getattr(sys, name)
        stream = io.TextIOWrapper(
            buffered, encoding=old.encoding, errors=old.errors, line_buffering=fd == 2
        )
        setattr(sys, name, stream)
    sys.argv = request["argv"]
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    if user := int(os.environ.pop(USER, "0")):
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)


def _import_all() -> None:
    """Import what programs may need, apart from what reads variables meanwhile."""
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
    if sys.argv[2]:
        importlib.import_module(sys.argv[2])
    gc.freeze()  # what is shared stays shared
    _serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
