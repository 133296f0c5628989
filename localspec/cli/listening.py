"""Where a server listens, a port or a Unix socket, and the file of keys for its API."""

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localspec.display import notice
from localspec.errors import UsageError

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
    """Remove a socket that nobody listens at any more; all else stays."""
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
