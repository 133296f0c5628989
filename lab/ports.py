"""Ports that can be had, and had again: the system gives none of them to who leaves it the choice."""

import random
import socket
from contextlib import suppress

_PORTS = range(20_000, 30_000)  # below those that Linux and macOS choose from


def free_port() -> int:
    """Return a port of this machine that nobody listens at.

    A port that the system chose may be the end of somebody's connection as soon as it is let go.

    Raises:
        OSError: there is none.
    """
    for port in random.sample(_PORTS, 1000):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError(0, f"no port from {_PORTS.start} to {_PORTS.stop} is free")
