"""Running servers: `localspec ps`, `stop` and `serve --background`; where one listens, and its file of API keys."""

import errno
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from localspec.api import LocalspecError, UsageError, notice
from localspec.cli.options import json_option
from localspec.cli.progress import fields, print_list
from localspec.engine.running import Running, clear_logs, directory, runs, servers
from localspec.engine.shared import states_of

_PATIENCE_S = 30.0
_LOOK_S = 0.05


@click.command()
@json_option
def ps(json_: bool) -> None:
    """List running servers: process, start time, models with their states, and address."""
    running = servers()
    rows, documents = [("PID", "SINCE", "MODEL", "ADDRESS")], []
    for each in running:
        states = states_of(each.engine) if each.engine else {}
        usual = "loading" if each.loading else "unloaded" if states else "loaded"
        default = {each.model: usual}
        models = [
            name if state == "loaded" else f"{name} ({state})"
            for name, state in (default | states).items()
        ]
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.since))
        rows.append((str(each.pid), since, ", ".join(models), " ".join(each.addresses)))
        documents.append({**fields(each, "pid since model addresses"), "models": states})
    none = "no server is running: start one with `localspec serve MODEL`"
    print_list(documents, rows, none, json_=json_, whole=True)


@click.command()
@click.argument("name", metavar="[MODEL|PID|PORT]", required=False)
@click.option("--all", "every", is_flag=True, help="Stop all of them.")
def stop(name: str | None, every: bool) -> None:
    """Stop the running server, or the one of MODEL, process PID or PORT."""
    running = servers()
    chosen = [
        each
        for each in running
        if name in {None, each.model, str(each.pid)}
        or any(f":{name}/" in address for address in each.addresses)
    ]
    if not chosen:
        of, hint = (f" for {name}", ": see `localspec ps`") if name else ("", "")
        raise LocalspecError(f"no server{of} is running{hint}")
    if len(chosen) > 1 and not every:
        raise UsageError(
            f"{len(chosen)} servers are running: give a PID, see `localspec ps`, or --all"
        )
    for each in chosen:
        _stop(each)
        notice(f"{each.model} is stopped")


def _stop(running: Running) -> None:
    """End a server, and wait until it is gone."""
    pid, end_s = running.pid, time.monotonic() + _PATIENCE_S
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError:
        raise LocalspecError(
            f"server {pid} belongs to another user: it cannot be stopped"
        ) from None
    while runs(pid) is not None:
        if time.monotonic() > end_s:
            raise LocalspecError(f"server {pid} does not end: end it with `kill -9 {pid}`")
        time.sleep(_LOOK_S)


_TAIL_BYTES = 4000


def start_in_background(arguments: Sequence[str], *, quiet: bool = False) -> int:
    """Start `localspec` with these arguments; return 0 once it serves, or its exit code if it ends before.

    Unless `quiet`, print where it serves and how to end it.
    """
    process, path = start_server(arguments, subprocess.DEVNULL)
    try:
        running = await_server(process, path)
    except KeyboardInterrupt:
        process.terminate()
        raise
    if running is None:
        return process.returncode
    if not quiet:
        where = " and ".join(running.addresses)
        ends = f"`localspec stop {process.pid}` ends it"
        notice(f"serving {running.model} at {where}; {ends}; log: {path}")
    return 0


def start_server(arguments: Sequence[str], stdin: int) -> tuple[subprocess.Popen[bytes], Path]:
    """Start `localspec` with these arguments, out of the reach of this terminal; return it and its log."""
    clear_logs()
    descriptor, name = tempfile.mkstemp(dir=directory())
    with os.fdopen(descriptor, "wb") as log:
        process = subprocess.Popen(  # noqa: S603 - this program, with what it was given
            [sys.executable, "-P", "-m", "localspec", *arguments],
            stdin=stdin,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return process, Path(name).rename(directory() / f"{process.pid}.log")


def await_server(process: subprocess.Popen[bytes], log: Path) -> Running | None:
    """Return the server once it has loaded; None, and print its last line, if it ends before."""
    while (running := runs(process.pid)) is None or running.loading:
        if process.poll() is not None:
            click.echo(last_line(log), err=True)
            log.unlink(missing_ok=True)
            return None
        time.sleep(_LOOK_S)
    return running


def last_line(path: Path) -> str:
    """Return the last line of a log."""
    lines = path.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "localspec: the server ended without a message"


LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names of this machine."""
BACKLOG = 256
"""Connections that may wait to be accepted: fewer than a process may have descriptors."""


@contextmanager
def listening(
    host: str | None, port: int | None, path: str | None
) -> Iterator[list[socket.socket]]:
    """Yield listening sockets, and close them in the end.

    Args:
        host: an address; None is this machine's own.
        port: 0 takes a free one; None the usual one, or none if only a path is given.
        path: of a Unix socket that only this user may connect to; removed in the end.

    Raises:
        UsageError: one of them is taken, or cannot be listened on.
    """
    listeners = []
    try:
        if host is not None or port is not None or path is None:
            listeners.append(_at_port(host or "127.0.0.1", 8080 if port is None else port))
        if path is not None:
            listeners.append(_at_path(path))
        yield listeners
    finally:
        for each in listeners:
            each.close()
            if each.family == socket.AF_UNIX:
                Path(str(path)).unlink(missing_ok=True)


def _at_port(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        # Python's own message repeats the address.
        reason = os.strerror(errno.EADDRINUSE) if taken else error.strerror or str(error)
        others = " (`localspec ps` lists your servers)" if taken else ""
        other = "--port" if taken or error.errno == errno.EACCES else "--host"
        raise UsageError(
            f"cannot listen on {host}, port {port}: {reason}; give another {other}{others}"
        ) from None


def _at_path(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The socket is this user's alone from the start.
    mask = os.umask(0o177)
    try:
        _remove_dead(path)
        listener.bind(path)
        listener.listen(BACKLOG)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot listen on --socket {path[:200]!r}: {reason}; give another path"
        ) from None
    finally:
        os.umask(mask)
    return listener


def _remove_dead(path: str) -> None:
    """Remove a socket that has no listener; nothing else."""
    if not Path(path).exists() or not stat.S_ISSOCK(Path(path).stat().st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)


_LEAST_CHARS = 16
_OTHERS = 0o066
_COMMENT = re.compile(r"(?:^|\s)#.*")


def keys_of(file: str) -> dict[str, str]:
    """Return the keys of an `--api-key-file`, each with its gate, empty for none of its own.

    A line is `[NAME] KEY [gate=GATE]`; `#` begins a comment. If others may read or change the file, that is a warning and no error:
    secrets that are mounted into containers often are like that.

    Raises:
        UsageError: it cannot be read, or has no keys or a wrong line; no message contains a key.
    """
    try:
        lines = Path(file).read_text(encoding="utf-8-sig").splitlines()
        is_open = Path(file).stat().st_mode & _OTHERS
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise UsageError(f"--api-key-file {file} cannot be read: {reason}") from None
    keys: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words, gate = _COMMENT.sub("", line).split(), None
        if words and words[-1].startswith("gate="):
            gate = words.pop().removeprefix("gate=")
        if not words and gate is None:
            continue
        where = f"--api-key-file {file}, line {number}"
        if len(words) not in {1, 2}:
            raise UsageError(
                f"{where} has {len(words)} words: write one key, with a name before it if you like"
            )
        if len(words[-1]) < _LEAST_CHARS:
            raise UsageError(
                f"{where}: the key has {len(words[-1])} characters: use {_LEAST_CHARS} or more, such as from `openssl rand -hex 16`"
            )
        if words[-1] in keys:
            raise UsageError(f"{where} repeats the key of an earlier line: remove one of them")
        keys[words[-1]] = gate or ""
    if not keys:
        raise UsageError(f"--api-key-file {file} has no keys: write one per line")
    if is_open:
        notice(f"--api-key-file {file} is open to other users: run `chmod 600` on it")
    return keys
