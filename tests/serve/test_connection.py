"""Connections that ask for nothing are let go; those that wait for an answer are not."""

import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest

from localspec.serve import connection
from tests.serve.serving import Served, served
from tests.waiting import PATIENCE_S

HALF = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n{"


def connected(server: Served, sent: bytes = b"") -> socket.socket:
    """Return a connection that has sent something."""
    port = int(server.url.rpartition(":")[2])
    client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    with suppress(ConnectionError):  # it was let go before it could send
        client.sendall(sent)
    return client


def is_let_go(client: socket.socket) -> bool:
    """Wait for the end of a connection that nothing is answered on; return whether it was that."""
    try:
        return client.recv(1) == b""
    except ConnectionError:  # with something in it that nobody has read
        return True


@pytest.mark.parametrize("sent", [b"", b"POST /v1/", HALF])
def test_a_request_that_does_not_arrive_is_not_waited_for(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "REQUEST_WITHIN_S", 0.05)
    with served({}) as server, connected(server, sent) as client:
        assert is_let_go(client)


def test_an_answer_may_take_longer_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_WITHIN_S", 1.0)
    with served({"otherwise": ["x" * 40], "pass_s": 0.03}) as server:
        for _ in range(2):  # on the same connection
            text = server.chat("hello").json()["choices"][0]["message"]["content"]
            assert text == "x" * 40


def test_one_too_many_ends_the_one_that_has_asked_for_nothing_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 3)
    go_on = tmp_path / "go on"
    script = {"otherwise": ["x" * 60], "rests": {"at": 3, "until": str(go_on)}}
    with served(script) as server:
        body = {"messages": [{"role": "user", "content": "hello"}], "stream": True}
        with server.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            first = connected(server)
            others = []
            for _ in range(2):
                time.sleep(0.02)
                others.append(connected(server))
            assert is_let_go(first)
            go_on.touch()
            assert "[DONE]" in list(filter(None, lines))[-1]
        for each in (first, *others):
            each.close()
