"""Malformed requests over every route of `serve`: `python -m lab.fuzz.requests --count 10000 --seed 8`.

The server is the real one, on a port, before an engine that tells a script. What is sent begins as a request that a client of
some interface sends, and is changed: a value by one of another type, JSON as what it is, bytes; chunks break off, lengths
lie, keys, hosts and methods are wrong. Each is answered or refused in a line, none by 500, and nothing prints a traceback;
the exit code is 1 otherwise.
"""

import argparse
import json
import os
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.fuzz.documents import changed
from localspec.plugins.serve.app import _METHODS, _PAGE
from tests.plugins.serve.serving import FIM, served

_ROUTES = [
    *((method, path) for method, paths in _METHODS.items() for path in paths if "{" not in path),
    *(("GET", path) for path in (*_PAGE, "/v1/models/a-pair", "/health", "/metrics")),
]
_OTHERS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "get", "G\0T")
_SEEDS: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text())
"""By the path that takes it, what a client sends."""
_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 1e308, 2**63, 2**200, "", "x", "\ud800", "\0", " ", "none"),
    *([], {}, [[]], [{}], {"type": []}, {"type": {}}, [None], {"": None}, ["x"] * 50, "x" * 5000),
    *(
        {"type": "function"},
        {"type": "text"},
        {"role": "user"},
        [[1, 2], "x"],
        {"a": {"b": {"c": []}}},
    ),
)
_PATIENCE_S = 2.0
_DEEP = b'{"messages": ' + b"[" * 60_000 + b"]" * 60_000 + b"}"
_HEADERS = (
    *("Content-Encoding: gzip", "Content-Type: text/plain", "Host: example.org", "Host: [::1"),
    *("Origin: https://example.org", "Origin: null", "Authorization: Bearer x", "Authorization: é"),
    *("x-api-key: 1", "anthropic-version: 2026-10-21", "Accept: text/html", "Expect: 100-continue"),
    *("Upgrade: websocket\r\nConnection: Upgrade", "Connection: close", "Cookie: a=b"),
)


@dataclass(slots=True)
class Found:
    """What became of the requests, and what was wrong."""

    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def nodes(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place of a document: what holds it, and its key."""
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, each in pairs:
        yield value, key
        yield from nodes(each)


def body_for(path: str, chance: random.Random) -> bytes:
    """Return a body that is nearly as it should be."""
    head = path.removeprefix("/v1")
    usual = next(
        (each for name, each in _SEEDS.items() if head.startswith(name.removeprefix("/v1"))),
        _SEEDS["/v1/chat/completions"],
    )
    seed = usual if chance.random() < 0.8 else chance.choice([*_SEEDS.values()])
    document = json.loads(json.dumps(seed))
    for _ in range(chance.choice((0, 1, 1, 1, 2, 4))):
        places = [*nodes(document)]
        holder, key = chance.choice(places) if places else (document, "model")
        holder[key] = json.loads(json.dumps(chance.choice(_ODD)))
    for name in chance.sample([*document], min(len(document), chance.choice((0, 0, 1, 3)))):
        del document[name]
    raw = json.dumps(document).encode()
    kind = chance.random()
    if kind < 0.1:
        raw = changed(raw, chance) or raw
    elif kind < 0.2:
        data = bytearray(raw)
        for _ in range(3):
            data[chance.randrange(len(data))] = chance.randrange(256)
        raw = bytes(data)
    elif kind < 0.23:
        raw = chance.choice(
            (b"", b"null", b"[]", b'"x"', b"{", b"\xff\xfe", b"NaN", _DEEP, raw[: len(raw) // 2])
        )
    return raw


def request_for(chance: random.Random) -> tuple[bytes, list[bytes]]:
    """Return a request's head, and the pieces behind it."""
    method, path = chance.choice(_ROUTES)
    if chance.random() < 0.05:
        method = chance.choice(_OTHERS)
    if chance.random() < 0.05:
        path = chance.choice(
            (
                path + "/",
                path.upper(),
                "/../etc/passwd",
                "/%00",
                "/é",
                path + "?a=[",
                "/v1/models/%2e%2e/x",
            )
        )
    body = body_for(path, chance)
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
    if chance.random() < 0.1:
        lines.append(chance.choice(_HEADERS))
    way = chance.random()
    if way < 0.85:
        length = (
            len(body)
            if chance.random() < 0.97
            else chance.choice((0, len(body) + 9, len(body) // 2))
        )
        return _head([*lines, f"Content-Length: {length}"]), [body]
    if way < 0.88:
        return _head([*lines, chance.choice(("Content-Length: x", "Content-Length: -1", ""))]), [
            body
        ]
    pieces = [b"%x\r\n%s\r\n" % (len(each), each) for each in (body[:50], body[50:]) if each]
    pieces.append(
        chance.choice((b"0\r\n\r\n", b"0\r\n\r\n", b"zz\r\n", b"", b"5\r\nabcdefgh", b"-1\r\n"))
    )
    return _head([*lines, "Transfer-Encoding: chunked"]), pieces


def _head(lines: list[str]) -> bytes:
    return "\r\n".join([*filter(None, lines), "", ""]).encode(errors="surrogatepass")


def exchange(port: int, head: bytes, pieces: list[bytes]) -> bytes:
    """Send a request, and return what comes until nothing does, or the connection ends."""
    got = b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        with suppress(OSError):
            for each in (head, *pieces):
                client.sendall(each)
        client.settimeout(_PATIENCE_S)
        ends = False
        while True:
            try:
                piece = client.recv(1 << 16)
            except TimeoutError:
                if ends:
                    raise
                ends = True  # the server waits for the rest of a request, which never comes
                client.settimeout(60)
                client.shutdown(socket.SHUT_WR)
                continue
            if not piece:
                break
            got += piece
    return got


def judge(head: bytes, pieces: list[bytes], got: bytes, found: Found) -> None:
    """Note what became of a request, and what was wrong."""
    status = got[9:12].decode("latin-1") if got.startswith(b"HTTP/1.1 ") else "left"
    found.statuses[status] += 1
    text = got.partition(b"\r\n\r\n")[2]
    faults = [b"this is a bug", b"Traceback", b"Internal Server Error"]
    if status == "500" or any(each in got for each in faults):
        found.wrong.append(
            f"{status}: {head[:200]!r} {b''.join(pieces)[:3000]!r} -> {text[:500]!r}"
        )


@contextmanager
def stderr_in(file: Path) -> Iterator[None]:
    """Write what this process and its children print as errors into a file."""
    before, taken = os.dup(2), os.open(file, os.O_WRONLY | os.O_CREAT)
    os.dup2(taken, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(taken)


def run(count: int, seed: int, clients: int) -> Found:
    """Send so many requests, some at once, and return what became of them."""
    found = Found()
    script = {"otherwise": ["Hello."], "parallel": 4, "fim": FIM, "sees": True, "calls": True}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "stderr")
        with (
            stderr_in(file),
            served(script, most=64) as server,
            ThreadPoolExecutor(clients) as pool,
        ):
            port = int(server.url.rpartition(":")[2])

            def send(number: int) -> None:
                head, pieces = request_for(random.Random(f"{seed} {number}"))
                judge(head, pieces, exchange(port, head, pieces), found)

            for done in [pool.submit(send, number) for number in range(count)]:
                done.result()
            server.wait_until(0)
            answer = server.chat("hello").json()
            if "choices" not in answer:
                found.wrong.append(f"afterwards: {answer}")
        printed = file.read_text(errors="replace")
    if "Traceback" in printed:
        found.wrong.append(f"printed: {printed[:4000]}")
    return found


def main() -> int:
    """Run it, and print a line."""
    parser = argparse.ArgumentParser(prog="python -m lab.fuzz.requests", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=8)
    parser.add_argument("--clients", type=int, default=8)
    asked = parser.parse_args()
    begun_s = time.monotonic()
    found = run(asked.count, asked.seed, asked.clients)
    took_s = time.monotonic() - begun_s
    statuses = ", ".join(f"{name}: {n}" for name, n in sorted(found.statuses.items()))
    print(f"{asked.count} requests in {took_s:.0f} s ({statuses}), wrong: {len(found.wrong)}")
    for each in found.wrong[:20]:
        print(each)
    return bool(found.wrong)


if __name__ == "__main__":
    sys.exit(main())
