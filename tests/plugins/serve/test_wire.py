"""What clients do wrong on the wire: chunks that break off print nothing, and a refusal reaches a client that sends all before it reads."""

import asyncio
import http.client
import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn

from localspec.plugins.serve import command
from localspec.plugins.serve.drafts.socket import Drafts
from localspec.plugins.serve.http import Guard
from localspec.plugins.serve.metrics import Metrics
from tests.plugins.serve.serving import CHAT, Served, served

KEY = "a-key-of-a-test-0123"
TORN = (b"5\r\nhello\r\nzz\r\n", b"5\r\nhelloworld\r\n", b"-1\r\n\r\n", b"5;\x00\r\n", b"\r\n\r\n")


@pytest.fixture(scope="module")
def keyed() -> Iterator[Served]:
    """A server that needs a key."""
    guard = Guard((KEY,), {"127.0.0.1"})
    with served({"otherwise": ["Hello."]}, guard=guard) as server:
        server.client.headers["Authorization"] = f"Bearer {KEY}"
        yield server


def port_of(server: Served) -> int:
    return int(server.url.rpartition(":")[2])


def exchanged(server: Served, head: bytes, *pieces: bytes) -> bytes:
    """Send pieces, each when the last was taken, and return all that comes until the server ends the connection."""
    with socket.create_connection(("127.0.0.1", port_of(server)), timeout=30) as client:
        got = b""
        try:
            for piece in (head, *pieces):
                client.sendall(piece)
                client.settimeout(0.05)
                with suppress(TimeoutError):
                    got += client.recv(1 << 16)
            client.settimeout(30)
            client.shutdown(socket.SHUT_WR)
            while piece := client.recv(1 << 16):
                got += piece
        except OSError:
            pass
        return got


def test_chunks_that_break_off_get_an_answer_and_print_nothing(
    keyed: Served, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    routes = (
        *("POST /api/create", "POST /api/push", "PUT /v1/chat/completions", "POST /nowhere"),
        *("GET /health", "HEAD /v1/completions", "POST /v1/chat/completions", "POST /tokenize"),
    )
    key = f"\r\nAuthorization: Bearer {KEY}".encode()
    with caplog.at_level(logging.WARNING):
        for route, torn, bearer in product(routes, TORN, (key, b"")):
            head = f"{route} HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked".encode()
            for pieces in ([torn], [b"3\r\nabc\r\n", torn], [b"3\r\nabc\r\n0\r\n\r\n", torn]):
                got = exchanged(keyed, head + bearer + b"\r\n\r\n", *pieces)
                assert got[:9] in (b"HTTP/1.1 ", b""), (route, pieces)
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []
    assert "Traceback" not in "".join(capfd.readouterr())
    assert keyed.chat("hello").status_code == 200


@pytest.mark.parametrize(
    ("path", "method", "headers", "status"),
    [
        (CHAT, "POST", {"Authorization": "Bearer wrong"}, 401),
        ("/api/chat", "POST", {}, 401),
        (CHAT, "POST", {"Host": "example.org"}, 400),
        (CHAT, "POST", {"Origin": "https://example.org"}, 403),
        ("/nowhere", "POST", {}, 404),
        (CHAT, "PUT", {}, 405),
        ("/api/push", "POST", {}, 400),
        (CHAT, "POST", {"Content-Encoding": "gzip"}, 400),
        ("/v1/embeddings", "POST", {}, 413),
    ],
)
def test_a_refusal_reaches_a_client_that_sends_all_before_it_reads(
    keyed: Served, path: str, method: str, headers: dict[str, str], status: int
) -> None:
    size = (20 << 20) if status == 413 else (5 << 20)
    body = json.dumps({"messages": [], "input": "x" * size}).encode()
    bearer = {} if status == 401 else {"Authorization": f"Bearer {KEY}"}
    for _ in range(4):
        # As urllib has it: the connection ends with the answer.
        client = http.client.HTTPConnection("127.0.0.1", port_of(keyed), timeout=60)
        given = {"Connection": "close", **bearer, **headers}
        client.request(method, path, body, given)
        answer = client.getresponse()
        assert answer.status == status, answer.read()
        assert json.loads(answer.read()) if status != 400 or "Host" not in headers else True
        client.close()


def test_a_body_that_never_ends_is_read_no_further_than_is_bounded(
    keyed: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.plugins.serve.wire.DRAINED_WITHIN_S", 0.2)
    head = b"POST /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999999999\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port_of(keyed)), timeout=30) as client:
        client.sendall(head)
        got = b""
        while piece := client.recv(1 << 16):  # it ends the connection, whatever the client does
            got += piece
    assert got.startswith(b"HTTP/1.1 401 ")
    monkeypatch.setattr("localspec.plugins.serve.wire.DRAINED_WITHIN_S", 60)
    monkeypatch.setattr("localspec.plugins.serve.wire.MOST_DRAINED_BYTES", 1 << 20)
    sent = 0
    with socket.create_connection(("127.0.0.1", port_of(keyed)), timeout=30) as client:
        client.sendall(head)
        with suppress(OSError):
            while sent < 1 << 28:
                client.sendall(b"x" * (1 << 20))
                sent += 1 << 20
    assert sent < 64 << 20


def test_connections_go_on_behind_a_refusal(keyed: Served) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port_of(keyed), timeout=60)
    for status, headers in [(401, {}), (200, {"Authorization": f"Bearer {KEY}"})] * 3:
        client.request(
            "POST", CHAT, json.dumps({"messages": [{"role": "user", "content": "hello"}]}), headers
        )
        answer = client.getresponse()
        assert (answer.status, bool(answer.read())) == (status, True)
    client.close()


def test_a_next_request_that_comes_with_the_rest_of_a_refused_one_is_answered(
    keyed: Served,
) -> None:
    head = (
        "POST /api/copy HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n"
        f"Authorization: Bearer {KEY}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port_of(keyed)), timeout=30) as client:
        answers = client.makefile("rb")
        for sent in (head, "{}" + head, "{}" + head):
            client.sendall(sent.encode())
            assert answers.readline().startswith(b"HTTP/1.1 400 ")
            size = int(http.client.parse_headers(answers)["Content-Length"])
            assert "localspec import" in json.loads(answers.read(size))["error"]


@pytest.fixture
def bare() -> uvicorn.Server:
    """The server of the command, with nothing to serve."""
    nothing: Any = SimpleNamespace(drafts=Drafts())
    return command._server(nothing, Metrics(), Guard(), command.Closing(nothing))


def test_a_connection_outlasts_the_time_after_which_clients_let_it_go(bare: uvicorn.Server) -> None:
    kept_s = httpx.Limits().keepalive_expiry
    assert kept_s is not None
    assert bare.config.timeout_keep_alive > kept_s


def test_one_too_many_is_told_so_though_it_sends_all_before_it_reads(bare: uvicorn.Server) -> None:
    bare.config.limit_concurrency = 1
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    thread = threading.Thread(target=asyncio.run, args=(bare.serve(sockets=[listener]),))
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            for _ in range(2):
                assert client.get("/page.js").status_code == 200
                other = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                other.request("POST", CHAT, bytes(5 << 20))
                assert other.getresponse().status == 503
                other.close()
    finally:
        bare.should_exit = True
        thread.join()
