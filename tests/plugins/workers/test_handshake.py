"""What a worker has to answer before llama.cpp is let at it: against sockets that answer otherwise."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from localspec.errors import UsageError
from localspec.plugins.workers.handshake import (
    PROTOCOL,
    host_and_port,
    is_gone,
    require_worker,
    workers_in,
)
from tests.support.checks import refuses

Serve = Callable[[socket.socket], None]
_SHORT_S = 0.2
_HELLO_BYTES, _COUNT_BYTES = 33, 9
OTHERS = ((6, 0, 0), (8, 0, 0), (7, 1, 0), (7, 0, 1))


def hello(*version: int, size: int = 28) -> bytes:
    return struct.pack("<Q", size) + bytes(version).ljust(size, b"\0")


def worker(*version: int, devices: int = 1) -> Serve:
    def serve(connection: socket.socket) -> None:
        assert connection.recv(_HELLO_BYTES)[:9] == struct.pack("<BQ", 14, 24)
        connection.sendall(hello(*version))
        if connection.recv(_COUNT_BYTES):
            connection.sendall(struct.pack("<QI", 4, devices))

    return serve


def says(answer: bytes) -> Serve:
    """Answer so, and no more; nothing hangs up."""

    def serve(connection: socket.socket) -> None:
        connection.recv(_HELLO_BYTES)
        connection.sendall(answer)
        if answer:
            connection.recv(1)

    return serve


def reads(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


def drips(connection: socket.socket) -> None:
    """Answer as a worker would, a byte at a time, which would take minutes."""
    for byte in hello(*PROTOCOL):
        connection.sendall(bytes([byte]))
        time.sleep(_SHORT_S / 4)


@contextmanager
def listening(serve: Serve) -> Iterator[str]:
    """Yield an address where this is done with every connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with suppress(OSError):  # the other side had enough
                while True:
                    with listener.accept()[0] as connection:
                        serve(connection)

        threading.Thread(target=answer, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def refused(address: str, patience_s: float = 60) -> str:
    """Return why; patience is short only where no answer ever comes, since a busy machine is slow."""
    with pytest.raises(UsageError, match=rf"\Aworker {address} .*\Z") as caught:
        require_worker(address, patience_s)
    return str(caught.value)


def test_a_worker_is_taken_or_gone_or_computes() -> None:
    with listening(worker(*PROTOCOL)) as address:
        require_worker(address)
        assert not is_gone(address)
    with listening(says(b"")) as address:
        assert is_gone(address, 60)
    with listening(reads) as address:
        assert not is_gone(address, _SHORT_S)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    assert is_gone(address, 60)
    assert "cannot be reached" in refused(address)


@pytest.mark.parametrize(
    ("serve", "word"),
    [
        *((worker(*each), "speaks version {}.{}.{}".format(*each)) for each in OTHERS),
        (says(hello(3, 6, 1, size=3)), "speaks version 3.6.1"),  # from before transports
        (says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "something else than llama.cpp's RPC"),
        (says(b"\xff" * 4096), "something else than llama.cpp's RPC"),
        (says(bytes(4096)), "something else than llama.cpp's RPC"),
        (says(b""), "closed the connection without an answer"),
        (worker(*PROTOCOL, devices=0), "has no device"),
    ],
)
def test_what_is_no_worker_of_ours_is_refused_by_what_it_does(serve: Serve, word: str) -> None:
    with listening(serve) as address:
        assert word in refused(address)


@pytest.mark.parametrize("serve", [reads, drips])
def test_silence_is_not_waited_for(serve: Serve) -> None:
    with listening(serve) as address:
        assert f"does not answer within {_SHORT_S:g} s" in refused(address, _SHORT_S)


def test_addresses_have_a_host_and_a_port_and_count_once() -> None:
    assert host_and_port("localhost:50052", "worker") == ("localhost", 50052)
    assert workers_in(["a:1", "b.c:2", "a:1"]) == ("a:1", "b.c:2")
    assert workers_in([]) == ()
    for text in (
        "",
        "host",
        ":1",
        "host:",
        "host:65536",
        "[::1]:1",
        "::1:1",
        "a b:1",
        "a:1,",
        "a:٣",
    ):
        refuses("is not HOST:PORT", workers_in, [text])
    refuses("17 workers are too many", workers_in, [f"host:{port}" for port in range(1, 18)])
