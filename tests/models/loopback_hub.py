"""A hub on the loopback, with its storage under another name of this machine, and faults on demand."""

import hashlib
import json
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import parse_qs, urlsplit

COMMIT = "c" * 40
PAGE = b"<!DOCTYPE html><html><body>Please log in to the Wi-Fi</body></html>"
_SLICE_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one GET of data: `cut` ends the line `after` bytes, and `silent` sends nothing more."""

    kind: Literal["cut", "silent", "wrong_bytes", "longer", "shorter", "status", "html"]
    after: int = 0
    status: int = 503


@dataclass(frozen=True, slots=True)
class HugeFile:
    """A file of many gigabytes that need not be stored: a header, and zeros behind it."""

    header: bytes
    size_bytes: int
    sha256: str = "5" * 64

    def __len__(self) -> int:
        return self.size_bytes

    def __getitem__(self, part: slice) -> "HugeFile":
        start, end, _ = part.indices(self.size_bytes)
        return HugeFile(self.header[start:end], max(end - start, 0))

    def __bytes__(self) -> bytes:
        return self.header.ljust(self.size_bytes, b"\0")


def _sha256(data: bytes | HugeFile) -> str:
    return data.sha256 if isinstance(data, HugeFile) else hashlib.sha256(data).hexdigest()


@dataclass(slots=True)
class LoopbackHub:
    """What the hub serves, and its requests.

    While `silent` is set, requests get no answer; `listed_sha256` is what lists say of every file (empty: the truth); redirects lead
    to `storage`, whose addresses carry a `signature` and expire with it, or nowhere if it is empty; a `portal` answers everything with
    its page; `leaked` are tokens that came to the storage.
    """

    files: dict[str, bytes | HugeFile] = field(default_factory=dict)
    status: int = 200
    error_code: str | None = None
    requests: list[str] = field(default_factory=list)
    authorization: list[str | None] = field(default_factory=list)
    silent: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    url: str = ""
    commit: str = COMMIT
    listed_sha256: str = ""
    storage: str = ""
    signature: int = 1
    portal: bool = False
    knows_ranges: bool = True
    faults: deque[Fault] = field(default_factory=deque)
    pause_s: float = 0.0
    sent_bytes: int = 0
    offsets: list[int] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer as the hub answers for a large file: with commit, size, and sha256 as ETag."""
        self.requests.append(f"{request.command} {request.path}")
        self.authorization.append(request.headers.get("authorization"))
        if self.silent.is_set():
            self.released.wait(600)
            return
        if self.portal:
            _respond(request, 200, {"Content-Type": "text/html"}, PAGE)
            return
        path = urlsplit(request.path).path
        data = self.files.get(path)
        if path.startswith("/api/models/"):
            siblings = self._siblings(path.removeprefix("/api/models/"))
            status = self.status if siblings or self.status != 200 else 404
            body = json.dumps({"id": "a/b", "sha": self.commit, "siblings": siblings}).encode()
            headers = {"Content-Type": "application/json"}
            _respond(request, status, headers, body if status == 200 else b"")
            return
        if path.startswith("/storage/"):
            self._storage(request, self.files[path.removeprefix("/storage")])
            return
        headers = {"X-Repo-Commit": self.commit}
        if self.status != 200 or data is None:
            status = self.status if self.status != 200 else 404
            code = self.error_code or ("EntryNotFound" if status == 404 else None)
            _respond(request, status, {**headers, **({"X-Error-Code": code} if code else {})})
        elif self.storage:
            location = f"{self.storage}/storage{path}?signature={self.signature}"
            linked = {"X-Linked-Size": str(len(data)), "X-Linked-ETag": f'"{_sha256(data)}"'}
            _respond(request, 302, {**headers, **linked, "Location": location})
        elif request.command == "GET":
            self._data(request, data, {**headers, "ETag": f'"{_sha256(data)}"'})
        else:
            _begin(request, 200, {**headers, "ETag": f'"{_sha256(data)}"'}, len(data))

    def _siblings(self, repo: str) -> list[dict[str, object]]:
        """Return what the hub says of the files of a repository."""
        start, siblings = f"/{re.sub('/revision/.*', '', repo)}/resolve/{self.commit}/", []
        for path, data in self.files.items():
            if path.startswith(start):
                lfs = {"size": len(data), "sha256": self.listed_sha256 or _sha256(data)}
                name = {"rfilename": path.removeprefix(start), "size": len(data)}
                siblings.append({**name, "lfs": {**lfs, "pointerSize": 130}})
        return siblings

    def _storage(self, request: BaseHTTPRequestHandler, data: bytes | HugeFile) -> None:
        if (token := request.headers.get("authorization")) is not None:
            self.leaked.append(token)
        if parse_qs(urlsplit(request.path).query)["signature"] == [str(self.signature)]:
            self._data(request, data, {})
        else:
            _respond(request, 403, {"Content-Type": "application/xml"}, b"<Error>Expired</Error>")

    def _data(
        self, request: BaseHTTPRequestHandler, data: bytes | HugeFile, headers: dict[str, str]
    ) -> None:
        fault = self.faults.popleft() if self.faults else None
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
        start, end = 0, len(data)
        ranged = wanted is not None and self.knows_ranges
        if wanted and ranged:
            start, end = int(wanted[1]), min(int(wanted[2] or len(data)) + 1, len(data))
        self.offsets.append(start)
        total, body = len(data), data[start:end]
        match fault:
            case Fault("status"):
                _respond(request, fault.status, headers)
                return
            case Fault("html"):
                _respond(request, 200, {"Content-Type": "text/html; charset=utf-8"}, PAGE)
                return
            case Fault("wrong_bytes"):
                body = bytes(byte ^ 1 for byte in bytes(body))
            case Fault("longer"):
                total, body = total + 1, bytes(body) + b"x"
            case Fault("shorter"):
                total, body = total - 1, body[:-1]
        if ranged:
            headers = {**headers, "Content-Range": f"bytes {start}-{start + len(body) - 1}/{total}"}
        _begin(request, 206 if ranged else 200, headers, len(body))
        self._send(request, body, fault)

    def _send(
        self, request: BaseHTTPRequestHandler, body: bytes | HugeFile, fault: Fault | None
    ) -> None:
        broken = fault is not None and fault.kind in {"cut", "silent"}
        view = body[: fault.after if fault is not None and broken else len(body)]
        for start in range(0, len(view), _SLICE_BYTES):
            piece = bytes(view[start : start + _SLICE_BYTES])
            # Counted first: a client that has its last byte may look before this thread goes on.
            self.sent_bytes += len(piece)
            request.wfile.write(piece)
            if self.pause_s:
                time.sleep(self.pause_s)
        if fault is not None and fault.kind == "silent":
            self.released.wait(600)
        if broken:
            request.close_connection = True
            request.connection.shutdown(socket.SHUT_RDWR)


def _begin(
    request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], length: int
) -> None:
    request.send_response(status)
    for key, value in {**headers, "Content-Length": str(length)}.items():
        request.send_header(key, value)
    request.end_headers()


def _respond(
    request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes = b""
) -> None:
    _begin(request, status, headers, len(body))
    if request.command == "GET":
        request.wfile.write(body)


@contextmanager
def loopback_hub(*, with_storage: bool = False) -> Iterator[LoopbackHub]:
    """Run a hub on a free port; one with a storage redirects there, under another name, as the real hub does."""
    hub = LoopbackHub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hub.answer(self)

        def do_HEAD(self) -> None:
            hub.answer(self)

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A client that was killed is no news."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    hub.storage = f"http://localhost:{server.server_port}" if with_storage else ""
    try:
        yield hub
    finally:
        hub.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
