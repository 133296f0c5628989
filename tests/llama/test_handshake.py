"""What is asked of a worker before llama.cpp is let at it: against sockets that answer whatever they like."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from localspec.errors import UsageError
from localspec.llama.handshake import (
    PROTOCOL,
    host_and_port,
    is_gone,
    require_worker,
    workers_in,
)

Serve = Callable[[socket.socket], None]
_SHORT_S = 0.2
_HELLO_BYTES, _COUNT_BYTES = 33, 9


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
    def serve(connection: socket.socket) -> None:
        connection.recv(_HELLO_BYTES)
        connection.sendall(answer)
        connection.recv(1)

    return serve


def hangs_up(connection: socket.socket) -> None:
    connection.recv(_HELLO_BYTES)


def reads(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


def sleeps(_: socket.socket) -> None:
    time.sleep(300 * _SHORT_S)


def drips(connection: socket.socket) -> None:
    """Answer as a worker would, a byte at a time, which would take minutes."""
    for byte in hello(*PROTOCOL):
        connection.sendall(bytes([byte]))
        time.sleep(_SHORT_S / 4)


@contextmanager
def listening(serve: Serve) -> Iterator[str]:
    """Yield the address of somebody who does this with a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            try:
                with listener.accept()[0] as connection:
                    serve(connection)
            except OSError:
                pass  # the other side had enough

        threading.Thread(target=answer, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def refused(address: str, patience_s: float = 60) -> str:
    """Return why; patience is short only with those who never answer, since a busy machine is slow."""
    with pytest.raises(UsageError) as caught:
        require_worker(address, patience_s)
    told = str(caught.value)
    assert told.startswith(f"worker {address} ")
    assert "\n" not in told
    return told


def test_a_worker_of_our_version_is_taken() -> None:
    with listening(worker(*PROTOCOL)) as address:
        require_worker(address)
    with listening(worker(*PROTOCOL)) as address:
        assert not is_gone(address)


@pytest.mark.parametrize("version", [(6, 0, 0), (8, 0, 0), (7, 1, 0), (7, 0, 1)])
def test_another_version_is_named_beside_ours(version: tuple[int, ...]) -> None:
    theirs = ".".join(map(str, version))
    with listening(worker(*version)) as address:
        assert f"speaks version {theirs} of llama.cpp's RPC, and this side 7.0.0" in refused(
            address
        )


def test_a_version_from_before_transports_is_named_too() -> None:
    with listening(says(hello(3, 6, 1, size=3))) as address:
        assert "speaks version 3.6.1" in refused(address)


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 4096, bytes(8), bytes(4096)]
)
def test_garbage_is_told_from_a_worker(answer: bytes) -> None:
    with listening(says(answer)) as address:
        assert "answers something else than llama.cpp's RPC" in refused(address)


@pytest.mark.parametrize("serve", [reads, drips, sleeps])
def test_who_never_answers_is_not_waited_for(serve: Serve) -> None:
    with listening(serve) as address:
        assert f"does not answer within {_SHORT_S:g} s" in refused(address, _SHORT_S)


def test_who_hangs_up_is_told_apart() -> None:
    with listening(hangs_up) as address:
        assert "closed the connection without an answer" in refused(address)


def test_nobody_there_is_told_how_to_start_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    assert "cannot be reached" in (told := refused(address))
    assert "localspec worker" in told


def test_a_worker_without_devices_is_refused() -> None:
    with listening(worker(*PROTOCOL, devices=0)) as address:
        assert "has no device" in refused(address)


def test_whoever_hangs_up_or_is_away_is_gone_and_whoever_computes_is_not() -> None:
    with listening(hangs_up) as address:
        assert is_gone(address, 60)
    assert is_gone(address, 60)
    with listening(reads) as address:
        assert not is_gone(address, _SHORT_S)


def test_a_worker_that_is_named_twice_is_one() -> None:
    assert workers_in(["a:1", "b.c:2", "a:1"]) == ("a:1", "b.c:2")
    assert workers_in([]) == ()


@pytest.mark.parametrize(
    "text",
    ["", "host", ":1", "host:", "host:65536", "[::1]:1", "::1:1", "a b:1", "a:1,", "a:٣"],
)
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match="is no HOST:PORT") as caught:
        workers_in([text])
    assert "\n" not in str(caught.value)


def test_more_workers_than_llama_cpp_takes_are_refused() -> None:
    with pytest.raises(UsageError, match="17 workers are too many"):
        workers_in([f"host:{port}" for port in range(1, 18)])


def test_an_address_has_a_host_and_a_port() -> None:
    assert host_and_port("localhost:50052", "worker") == ("localhost", 50052)
