"""Handshake: whether what listens at an address is a worker that answers, in our version of llama.cpp's RPC.

llama.cpp ends the process where a worker is away or of another version, and waits for ever where it is silent. So it is
let only at workers that answered here. Knows sockets, and nothing of llama.cpp's library.
"""

import re
import socket
import struct
import time
from collections.abc import Iterable

from localspec.api import UsageError
from localspec.display import printable

PROTOCOL = (7, 0, 0)
"""Of the pinned llama.cpp, `RPC_PROTO_*_VERSION`. The last number changes with the list of operations, so it has to be the same, too."""
PORT = 50052
"""Where llama.cpp's own program listens."""
PATIENCE_S = 5.0
_LOOK_S = 1.0
_MOST_WORKERS = 16  # GGML_RPC_MAX_SERVERS

# In IPv4 alone, as llama.cpp connects and listens.
_ADDRESS = re.compile(r"([A-Za-z0-9._-]{1,253}):([0-9]{1,5})")
# A command is a byte, the size of what follows, and that; an answer is its size, and that.
_HELLO = struct.pack("<BQ24x", 14, 24)
_DEVICE_COUNT = struct.pack("<BQ", 15, 0)
_HELLO_BYTES, _COUNT_BYTES = 28, 4
_LIKE_HELLO = range(3, 65)
"""Sizes that the answer to a hello has, or had in other versions."""


class _Strange(OSError):
    """What came is no answer of a worker of ours; the text is the rest of a sentence."""


def workers_in(addresses: Iterable[str]) -> tuple[str, ...]:
    """Return addresses, each of them once.

    Raises:
        UsageError: one of them is none, or there are too many.
    """
    workers = tuple(dict.fromkeys(addresses))
    for each in workers:
        host_and_port(each, "worker")
    if len(workers) > _MOST_WORKERS:
        raise UsageError(f"{len(workers)} workers are too many: llama.cpp takes {_MOST_WORKERS}")
    return workers


def host_and_port(address: str, what: str) -> tuple[str, int]:
    """Return the two parts of an address; `what` names it where it is none.

    Raises:
        UsageError: it is none.
    """
    parts = _ADDRESS.fullmatch(address)
    if parts is None or int(parts[2]) >= 1 << 16:
        raise UsageError(
            f"{what} {printable(address[:80])!r} is not HOST:PORT, such as 127.0.0.1:{PORT}; llama.cpp's RPC does not support IPv6"
        )
    return parts[1], int(parts[2])


def require_worker(address: str, patience_s: float = PATIENCE_S) -> None:
    """See that a worker answers, in our version, and has a device.

    Args:
        address: HOST:PORT.
        patience_s: seconds that all of it may take; the lookup of a name takes as long as the system lets it.

    Raises:
        UsageError: it does not; the text names it.
    """
    try:
        _greet(address, patience_s)
    except TimeoutError:
        problem = (
            f"does not answer within {patience_s:g} s: it hangs, is not reached, or is busy with another "
            "program, since a worker serves one at a time"
        )
    except ConnectionResetError:
        problem = (
            "closed the connection without an answer: behind a tunnel, nothing listens at its other end; "
            "otherwise it is not a worker, or one of another version"
        )
    except _Strange as error:
        problem = str(error)
    except OSError as error:
        problem = (
            f"cannot be reached ({error.strerror or error}): start it there with `localspec worker`"
        )
    else:
        return
    raise UsageError(f"worker {address} {problem}")


def is_gone(address: str, patience_s: float = _LOOK_S) -> bool:
    """Return whether nothing is behind an address any more; a worker that keeps silent may be computing."""
    try:
        _greet(address, patience_s)
    except (TimeoutError, _Strange):
        return False
    except OSError:
        return True
    return False


def _greet(address: str, patience_s: float) -> None:
    """Say hello and have the devices counted; raise what goes wrong, as OSError."""
    end_s = time.monotonic() + patience_s
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(patience_s)
        connection.connect(host_and_port(address, "worker"))
        connection.sendall(_HELLO)
        size = _size(connection, end_s)
        if size not in _LIKE_HELLO:
            raise _Strange("answers something else than llama.cpp's RPC: is that its port?")
        version = tuple(_exactly(connection, size, end_s)[:3])
        if version != PROTOCOL:
            theirs, ours = (".".join(map(str, each)) for each in (version, PROTOCOL))
            raise _Strange(
                f"speaks version {theirs} of llama.cpp's RPC, and this side {ours}: install the same "
                "llama-cpp-python on both"
            )
        connection.sendall(_DEVICE_COUNT)
        answers = size == _HELLO_BYTES and _size(connection, end_s) == _COUNT_BYTES
        if not answers or not any(_exactly(connection, _COUNT_BYTES, end_s)):
            raise _Strange("has no device to compute on")


def _size(connection: socket.socket, end_s: float) -> int:
    return int.from_bytes(_exactly(connection, 8, end_s), "little")


def _exactly(connection: socket.socket, count: int, end_s: float) -> bytes:
    """Return so many bytes, however they come."""
    content = b""
    while len(content) < count:
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        connection.settimeout(left_s)
        more = connection.recv(count - len(content))
        if not more:
            raise ConnectionResetError
        content += more
    return content
