"""The servers that run: `localspec ps`, `stop` and `serve --background`; where one listens, and the file of keys for its API."""

import errno
import os
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

from localspec.display import notice, table
from localspec.engine.running import Running, clear_logs, directory, runs, servers
from localspec.errors import LocalspecError, UsageError

_PATIENCE_S = 30.0
_LOOK_S = 0.05


@click.command()
def ps() -> int:
    """List running servers: process, start time, model and address."""
    rows = [("PID", "SINCE", "MODEL", "ADDRESS")]
    for each in servers():
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.since))
        rows.append((str(each.pid), since, each.model, " ".join(each.addresses)))
    if len(rows) == 1:
        click.echo("no server is running: start one with `localspec serve MODEL`", err=True)
        return 0
    for line in table(rows):
        click.echo(line)
    return 0


@click.command()
@click.argument("name", metavar="[MODEL|PID]", required=False)
@click.option("--all", "every", is_flag=True, help="Stop all of them.")
def stop(name: str | None, every: bool) -> int:
    """Stop the running server, or the one that serves MODEL, or process PID."""
    for each in _chosen(name, every=every):
        _stop(each)
        notice(f"{each.model} is stopped")
    return 0


def _chosen(name: str | None, *, every: bool) -> list[Running]:
    found = servers()
    if name is not None:
        found = [each for each in found if name in {each.model, str(each.pid)}]
        if not found:
            raise LocalspecError(f"no server of {name} is running: see `localspec ps`")
    elif not found:
        raise LocalspecError("no server is running")
    if len(found) > 1 and not every:
        raise UsageError(
            f"{len(found)} servers run: name one by its process, see `localspec ps`, or give --all"
        )
    return found


def _stop(running: Running) -> None:
    """End a server, and wait until it is gone."""
    try:
        os.kill(running.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError:
        raise LocalspecError(
            f"server {running.pid} is of another user: it cannot be stopped"
        ) from None
    end_s = time.monotonic() + _PATIENCE_S
    while runs(running.pid) is not None:
        if time.monotonic() > end_s:
            raise LocalspecError(
                f"server {running.pid} does not end: end it with `kill -9 {running.pid}`"
            )
        time.sleep(_LOOK_S)


_TAIL_BYTES = 4000


def start_in_background(arguments: Sequence[str]) -> int:
    """Start `localspec` with these arguments; return 0 once it serves, else the code that it ended with."""
    clear_logs()
    descriptor, name = tempfile.mkstemp(dir=directory())
    with os.fdopen(descriptor, "wb") as log:
        process = subprocess.Popen(  # noqa: S603 - this program, with what it was given
            [sys.executable, "-P", "-m", "localspec", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    path = Path(name).rename(directory() / f"{process.pid}.log")
    try:
        while (running := runs(process.pid)) is None:
            if process.poll() is not None:
                click.echo(_last_line(path), err=True)
                path.unlink(missing_ok=True)
                return process.returncode
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        process.terminate()
        raise
    where = " and ".join(running.addresses)
    notice(
        f"serving {running.model} at {where}; `localspec stop {process.pid}` ends it; log: {path}"
    )
    return 0


def _last_line(path: Path) -> str:
    lines = path.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "localspec: the server ended without a word"


LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""How this machine calls itself."""
BACKLOG = 256
"""Connections that may wait to be accepted; all of them are, at once, so fewer than a process may have descriptors."""


@contextmanager
def listening(
    host: str | None, port: int | None, path: str | None
) -> Iterator[list[socket.socket]]:
    """Listen while this lasts.

    Args:
        host: an address; None is this machine's own.
        port: 0 takes a free one, None the usual one, or none where only a path is given.
        path: of a Unix socket that only this user may connect to; removed in the end.

    Raises:
        UsageError: there is something else already, or it cannot be listened at.
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
        # What Python says of it names the address once more.
        reason = os.strerror(errno.EADDRINUSE) if taken else error.strerror or str(error)
        others = " (`localspec ps` lists your servers)" if taken else ""
        raise UsageError(
            f"cannot listen on {host}, port {port}: {reason}; give another --port{others}"
        ) from None


def _at_path(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # A file that is made is this user's alone from its first moment on.
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
    """Remove a socket without a listener; all else stays."""
    if not Path(path).exists() or not stat.S_ISSOCK(Path(path).stat().st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)


_GATE = "gate="
_LEAST_CHARS = 16
_OTHERS = 0o066


def keys_of(file: str) -> dict[str, str]:
    """Return the keys of an `--api-key-file`, each with the name of its gate, empty where it has none of its own.

    A line is `[NAME] KEY [gate=GATE]`; `#` begins a comment. A file that others may read or change is warned about, and not refused:
    secrets that are mounted into containers often are.

    Raises:
        UsageError: it cannot be read, has no keys, or a line that is none; no message has a key in it.
    """
    path = Path(file)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        is_open = path.stat().st_mode & _OTHERS
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise UsageError(f"--api-key-file {file} cannot be read: {reason}") from None
    keys: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = _words(line)
        gate = words.pop().removeprefix(_GATE) if words[-1:] and _is_gate(words[-1]) else None
        if not words and gate is None:
            continue
        where = f"--api-key-file {file}, line {number}"
        if len(words) not in {1, 2}:
            raise UsageError(
                f"{where} has {len(words)} words: write one key, with a name before it if you like"
            )
        key = words[-1]
        if len(key) < _LEAST_CHARS:
            raise UsageError(
                f"{where}: the key has {len(key)} characters: use {_LEAST_CHARS} or more, such as from `openssl rand -hex 16`"
            )
        if key in keys:
            raise UsageError(f"{where} has the key of an earlier line: remove one of them")
        keys[key] = gate or ""
    if not keys:
        raise UsageError(f"--api-key-file {file} has no keys: write one per line")
    if is_open:
        notice(f"--api-key-file {file} is open to other users: run `chmod 600` on it")
    return keys


def _words(line: str) -> list[str]:
    """Return the words before a comment; a `#` within a word is part of it."""
    words = line.split()
    end = next((at for at, word in enumerate(words) if word.startswith("#")), len(words))
    return words[:end]


def _is_gate(word: str) -> bool:
    return word.startswith(_GATE)
