"""The hub's state, from servers of our own, none of which is trusted."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from localspec.diagnosis.doctor import Fact, network
from tests.waiting import PATIENCE_S

seen: list[str] = []


@contextmanager
def serving(kind: str, status: int = 200, location: str = "") -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(str(self.headers))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "HF_HUB_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def hub(
    monkeypatch: pytest.MonkeyPatch,
    endpoint: str,
    *,
    offline: bool = False,
    deadline_s: float = PATIENCE_S,
) -> Fact:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    return list(network(offline=offline, deadline_s=deadline_s))[-1]


LOGIN = "a web page came instead of the file: a login page of the network"


@pytest.mark.parametrize(
    ("kind", "status", "words", "state"),
    [
        ("application/json; charset=utf-8", 200, "answers", "ok"),
        ("text/html", 200, LOGIN, "warning"),
        ("text/plain", 302, LOGIN, "warning"),  # to a login page
        ("application/json", 503, "does not answer (HTTP 503); ", "warning"),
    ],
)
def test_a_hub_that_answers(
    monkeypatch: pytest.MonkeyPatch, kind: str, status: int, words: str, state: str
) -> None:
    with serving("text/html") as portal, serving(kind, status, portal) as address:
        fact = hub(monkeypatch, address)
    assert (fact.name, fact.state) == ("hub 127.0.0.1", state)
    assert words in fact.value


@pytest.mark.parametrize("listens", [False, True])
def test_without_an_answer_it_says_what_still_works(
    monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()
        fact = hub(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}", deadline_s=0.5)
    assert fact.state == "warning"
    assert fact.value.endswith("; models on this machine work")


def test_offline_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("application/json") as address:
        seen.clear()
        assert hub(monkeypatch, address, offline=True).value == "not checked, offline"
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        assert hub(monkeypatch, address).value == "not checked, HF_HUB_OFFLINE"
        assert seen == []


def test_no_token_is_sent_and_no_secret_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_s3cret")
    with serving("application/json") as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        seen.clear()
        facts = list(network(offline=False, deadline_s=PATIENCE_S))
        assert Fact("HF_TOKEN", "set") in facts
        assert "s3cret" not in f"{facts}{seen}"
        assert len(seen) == 1
    monkeypatch.setenv("HF_ENDPOINT", "http://me:s3cret@127.0.0.1:9")
    assert "s3cret" not in str(list(network(offline=True)))


@pytest.mark.parametrize("proxy", ["http://me:s3cret", "socks9://me:s3cret@127.0.0.1:9"])
def test_the_password_of_a_proxy_that_cannot_be_used_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    fact = hub(monkeypatch, "http://hub.example")
    assert fact.state == "warning"
    assert "s3cret" not in fact.value


def test_an_endpoint_that_is_no_address_needs_mending(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hub(monkeypatch, "file:///etc/passwd").state == "broken"
