"""A hub on the loopback with models of many gigabytes that nobody has to store.

A file is a real header and nothing behind it; whoever asks for more than the header gets zeros. Data
comes from a storage under another name of this machine, as the hub's does, by redirect.
"""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "d" * 40
_SLICE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class HugeFile:
    header: bytes
    size_bytes: int
    sha256: str = "5" * 64

    def part(self, start: int, end: int) -> bytes:
        known = self.header[start:end]
        return known + bytes(max(0, min(end, self.size_bytes) - start - len(known)))


@dataclass(slots=True)
class HeaderHub:
    """Repositories by name, each with files by path; and what was served."""

    repos: dict[str, dict[str, HugeFile]] = field(default_factory=dict)
    url: str = ""
    storage: str = ""
    sent_bytes: int = 0
    ranges: list[str | None] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    """Tokens that the storage was shown."""
    tokens: set[str | None] = field(default_factory=set)
    """What the hub was shown."""
    knows_ranges: bool = True
    status: int = 200
    page: bytes = b""
    """What a captive portal answers to everything."""
    cuts: int = 0
    """So many answers of the storage end after half of what was asked for."""

    def answer(self, request: BaseHTTPRequestHandler, with_body: bool) -> None:
        path = unquote(urlsplit(request.path).path)
        self.asked.append(f"{request.command} {path}")
        if self.page:
            _respond(request, 200, {"Content-Type": "text/html"}, self.page if with_body else b"")
        elif path.startswith("/storage/"):
            self._data(request, path.removeprefix("/storage"))
        else:
            self.tokens.add(request.headers.get("authorization"))
            self._hub(request, path)

    def _hub(self, request: BaseHTTPRequestHandler, path: str) -> None:
        if self.status != 200:
            _respond(request, self.status, {"X-Error-Code": "GatedRepo"})
            return
        listed = re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/[^/]+)?", path)
        if listed and listed[1] in self.repos:
            siblings = [
                {
                    "rfilename": name,
                    "size": file.size_bytes,
                    "blobId": "1" * 40,
                    "lfs": {"sha256": file.sha256, "size": file.size_bytes, "pointerSize": 135},
                }
                for name, file in self.repos[listed[1]].items()
            ]
            siblings.append({"rfilename": "README.md", "size": 10, "blobId": "2" * 40})
            body = json.dumps({"id": listed[1], "sha": COMMIT, "siblings": siblings}).encode()
            _respond(request, 200, {"Content-Type": "application/json"}, body)
            return
        file = self._file(path)
        if file is None:
            _respond(request, 404, {"X-Error-Code": "RepoNotFound"})
            return
        _respond(
            request,
            302,
            {
                "X-Repo-Commit": COMMIT,
                "X-Linked-Size": str(file.size_bytes),
                "X-Linked-ETag": f'"{file.sha256}"',
                "Location": f"{self.storage}/storage{path}?signature=1",
            },
        )

    def _data(self, request: BaseHTTPRequestHandler, path: str) -> None:
        if (token := request.headers.get("authorization")) is not None:
            self.leaked.append(token)
        file = self._file(path)
        assert file is not None
        asked = request.headers.get("range")
        self.ranges.append(asked)
        start, end, status = 0, file.size_bytes, 200
        headers = {}
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", asked or "")
        if match and self.knows_ranges:
            start, end, status = int(match[1]), int(match[2] or file.size_bytes - 1) + 1, 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.size_bytes}"
        _respond(request, status, headers, None, end - start)
        if self.cuts:
            self.cuts -= 1
            end = (start + end) // 2
            request.close_connection = True
        for at in range(start, end, _SLICE_BYTES):
            piece = file.part(at, min(at + _SLICE_BYTES, end))
            # Counted first: a client that has its last byte may look before this thread goes on.
            self.sent_bytes += len(piece)
            try:
                request.wfile.write(piece)
            except OSError:  # the client has read enough
                self.sent_bytes -= len(piece)
                request.close_connection = True
                return

    def _file(self, path: str) -> HugeFile | None:
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        return self.repos.get(match[1], {}).get(match[3]) if match else None


def _respond(
    request: BaseHTTPRequestHandler,
    status: int,
    headers: dict[str, str],
    body: bytes | None = b"",
    length: int = 0,
) -> None:
    request.send_response(status)
    for key, value in headers.items():
        request.send_header(key, value)
    request.send_header("Content-Length", str(length if body is None else len(body)))
    request.end_headers()
    if body and request.command != "HEAD":
        request.wfile.write(body)


@contextmanager
def header_hub() -> Iterator[HeaderHub]:
    """Run a hub on a free port; its storage is the same server under its other name."""
    hub = HeaderHub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            hub.answer(self, with_body=False)

        def do_GET(self) -> None:
            hub.answer(self, with_body=True)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    hub.storage = f"http://localhost:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
