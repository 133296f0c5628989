"""Where a server listens: a port, a Unix socket, or both. What is taken is told before gigabytes are loaded."""

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
